//! Text that must not be in the source, and text that must.

use crate::lexer;
use crate::source::{Source, Tree, assert_finds, assert_tidy};

/// In code, tests included. Comments and literals may speak of them.
const BANNED_CODE: &[(&str, &str)] = &[
    ("todo!", "unfinished work is an issue, not a panic"),
    ("unimplemented!", "unfinished work is an issue, not a panic"),
    ("dbg!", "left over from looking for something"),
    ("#[ignore", "a test that does not run proves nothing; slow ones stand behind --full"),
    ("#[should_panic", "say what is wrong with assert, not that something is"),
    ("mem::forget", "what is never dropped is never released"),
    ("Box::leak", "what is never dropped is never released"),
];

/// In product code only.
const BANNED_PRODUCT: &[(&str, &str)] = &[
    (".unwrap()", "nothing from outside may panic the program"),
    (".expect(\"", "nothing from outside may panic the program"),
    (".expect(&format!", "nothing from outside may panic the program"),
    ("panic!(", "return an error that says what the caller can do"),
    ("unreachable!(", "say it in the types, or return an error"),
    ("println!", "cli writes through its own writer; everybody else logs"),
    ("static mut", "no global state"),
    ("LazyLock", "no global state: what a part needs is handed to it"),
    ("OnceLock", "no global state: what a part needs is handed to it"),
    ("thread_local!", "no global state: what a part needs is handed to it"),
];

/// Anywhere in any text file. Written in two pieces, so that this file passes itself.
const BANNED_TEXT: &[([&str; 2], &str)] = &[
    (["FIX", "ME"], "an issue remembers better"),
    (["XX", "X"], "an issue remembers better"),
    (["TO", "DO:"], "an issue remembers better"),
    (["<<<<", "<<< "], "an unfinished merge"),
    (["/wo", "rk/"], "a path of the machine it was written on"),
    (["/ro", "ot/"], "a path of the machine it was written on"),
    (["/home/", "user"], "a path of the machine it was written on"),
    (["/tmp/ba", "sh"], "a path of the machine it was written on"),
    ([".cargo/", "registry"], "a path of the machine it was written on"),
    (["/usr/local/", "cargo"], "a path of the machine it was written on"),
    (["far", "m-"], "a host of the place it was written in"),
    ([".inter", "nal:"], "a host of the place it was written in"),
];

/// Module names that say nothing; the field has a word for everything.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "misc", "helper", "helpers", "manager"];

fn each_line(found: &mut Vec<String>, source: &Source, part: &str, banned: &[(&str, &str)]) {
    for (text, why) in banned {
        for line in Source::lines_with(part, text) {
            found.push(format!("{}:{line}: `{text}`: {why}", source.path));
        }
    }
}

fn code_problems(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in &tree.sources {
        each_line(&mut found, source, &source.code, BANNED_CODE);
        // The simulators print what they are asked for, and are no part of the daemon.
        if source.path.starts_with("src/") {
            each_line(&mut found, source, &source.product, BANNED_PRODUCT);
        }
        found.extend(wildcards(source));
        found.extend(unreasoned(source));
        let name = source.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        if EMPTY_NAMES.contains(&name) {
            found.push(format!("{}: a name that says nothing", source.path));
        }
        if name != "tests" && !source.text.starts_with("//!") {
            let path = &source.path;
            found.push(format!("{path}:1: starts without `//!`: what it is and is not"));
        }
    }
    found
}

/// `use a::*`: a reader cannot tell where a name is from. Test modules may take their parent's.
fn wildcards(source: &Source) -> Vec<String> {
    let all = lexer::paths(&source.code).into_iter().filter(|used| used.path.ends_with("::*"));
    let product = lexer::paths(&source.product);
    let bad = all.filter(|used| {
        let in_product = product.contains(used) && !source.path.starts_with("tests/");
        let is_ours = used.path == "super::*" || used.path == "proptest::prelude::*";
        // The variants of an enum are listed in one place, as clippy sees it too.
        let parent = used.path.rsplit("::").nth(1).unwrap_or_default();
        if parent.starts_with(char::is_uppercase) {
            return false;
        }
        in_product || !is_ours
    });
    bad.map(|used| format!("{}:{}: `use {}`: name them", source.path, used.line, used.path))
        .collect()
}

/// A lint that is switched off must say why, and as `expect`, so that it goes when its cause does.
fn unreasoned(source: &Source) -> Vec<String> {
    let code = &source.code;
    let mut found = Vec::new();
    for open in ["#[", "#!["] {
        for (at, _) in code.match_indices(open) {
            let attribute = &code[at..lexer::attribute_end(code, at)];
            let off = ["allow(", "expect("].iter().find(|word| {
                attribute.find(*word).is_some_and(|n| !lexer::is_word(attribute.as_bytes()[n - 1]))
            });
            let Some(off) = off else { continue };
            let line = lexer::line_of(code, at);
            if !attribute.contains("reason =") {
                found.push(format!("{}:{line}: `{off}` without a reason", source.path));
            }
            let for_tests = attribute.starts_with("#![") && attribute.contains("cfg_attr");
            if *off == "allow(" && !for_tests && !source.path.starts_with("tests/") {
                found.push(format!("{}:{line}: `allow`: use `expect`", source.path));
            }
        }
    }
    found
}

fn text_problems(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let ours = |path: &str| path != "Cargo.lock" && !path.contains("/vendor/");
    for (path, text) in tree.files.iter().filter(|(path, _)| ours(path)) {
        for ([first, second], why) in BANNED_TEXT {
            let banned = format!("{first}{second}");
            let (opens, closes) = (banned.as_bytes()[0], banned.as_bytes()[banned.len() - 1]);
            for (at, _) in text.match_indices(&banned) {
                let bytes = text.as_bytes();
                let before = at.checked_sub(1).map_or(b' ', |n| bytes[n]);
                let after = bytes.get(at + banned.len()).copied().unwrap_or(b' ');
                let inside_a_word = lexer::is_word(opens) && lexer::is_word(before)
                    || lexer::is_word(closes) && lexer::is_word(after);
                if !inside_a_word {
                    let line = lexer::line_of(text, at);
                    found.push(format!("{path}:{line}: `{banned}`: {why}"));
                }
            }
        }
    }
    found
}

/// Constants of the bounds that lack a documentation of at least a sentence.
fn limit_problems(tree: &Tree) -> Vec<String> {
    const SENTENCE: usize = 40;
    let text = tree.text("src/limits.rs").unwrap_or_default();
    let mut found = Vec::new();
    let mut doc = 0;
    for (n, line) in text.lines().enumerate() {
        if let Some(words) = line.trim().strip_prefix("///") {
            doc += words.len();
            continue;
        }
        let declared = line.trim().strip_prefix("pub const ");
        if let Some(name) = declared.and_then(|rest| rest.split(':').next())
            && doc < SENTENCE
        {
            found.push(format!(
                "src/limits.rs:{}: {name}: say its unit, why this value, and what happens beyond",
                n + 1
            ));
        }
        doc = 0;
    }
    found
}

#[test]
fn banned_code_is_not_there() {
    assert_tidy(&code_problems(Tree::here()));
}

#[test]
fn no_file_tells_where_it_was_written() {
    assert_tidy(&text_problems(Tree::here()));
}

#[test]
fn every_bound_argues_its_value() {
    assert_tidy(&limit_problems(Tree::here()));
}

#[test]
fn what_is_banned_is_found() {
    let code = "//! Doc.\nuse a::*;\nfn f() { x.unwrap(); todo!() } // dbg!(x)\n\
        #[allow(dead_code)]\nfn g() { h.expect(b'x'); i.expect(\"j\"); }\n\
        #[expect(k, reason = \"l\")]\n#[expect(m)]\nfn n() {}\n\
        #[cfg(test)]\nmod tests {\n use super::*;\n use o::*;\n fn p() { q.unwrap() }\n}\n";
    let tree = Tree::sample(&[
        ("src/lib.rs", "//! Doc.\nmod code;\nmod util;\n"),
        ("src/code.rs", code),
        ("src/util.rs", ""),
    ]);
    assert_finds(
        &code_problems(&tree),
        &[
            "src/code.rs:3: `todo!`",
            "src/code.rs:3: `.unwrap()`",
            "src/code.rs:5: `.expect(\"`",
            "src/code.rs:2: `use a::*`",
            "src/code.rs:12: `use o::*`",
            "src/code.rs:4: `allow(` without a reason",
            "src/code.rs:4: `allow`: use `expect`",
            "src/code.rs:7: `expect(` without a reason",
            "src/util.rs: a name",
            "src/util.rs:1: starts without",
        ],
    );
}

#[test]
fn a_path_of_a_machine_and_a_bound_without_reason_are_found() {
    let limits = "/// Longest line in bytes; beyond it the stream ends.\npub const A: u8 = 1;\n\
        /// Short.\npub const B: u8 = 1;\npub const C: u8 = 1;\n";
    let path = format!("cd {}{}x\necho '\\u{}XX'\n", "/wo", "rk/", "XX");
    let tree = Tree::sample(&[("src/limits.rs", limits), ("deploy/run", &path)]);
    assert_finds(&limit_problems(&tree), &["limits.rs:4: B", "limits.rs:5: C"]);
    assert_finds(&text_problems(&tree), &["deploy/run:1: "]);
}
