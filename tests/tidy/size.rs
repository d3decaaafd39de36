//! Sizes, with a ratchet: what is too big is listed with its size, and may only shrink.

use crate::lexer;
use crate::source::{Source, Tree, assert_finds, assert_tidy, is_test_path};

/// Lines of a file without its tests: what one sitting reads.
const FILE_LINES_MAX: usize = 400;

/// Lines of a function: what one screen shows.
const FUNCTION_LINES_MAX: usize = 70;

/// Parameters of a function; more of them are a type that nobody has named yet.
const PARAMETERS_MAX: usize = 5;

/// Width of a line, in characters.
const COLUMNS_MAX: usize = 100;

/// Too big, for now: `path` or `path::function`, and the lines it has. Numbers only go down; an
/// entry that became small enough is removed. New entries are not accepted.
const RATCHET: &[(&str, usize)] = &[];

/// Says a size that is over its limit, unless the ratchet knows it.
fn judge(what: &str, size: usize, limit: usize, ratchet: &[(&str, usize)]) -> Option<String> {
    let known = ratchet.iter().find(|(name, _)| *name == what).map(|(_, lines)| *lines);
    match known {
        Some(lines) if size > lines => Some(format!("{what}: grew from {lines} to {size} lines")),
        Some(lines) if size < lines && size > limit => {
            Some(format!("{what}: shrank from {lines} to {size} lines; say so in RATCHET"))
        }
        Some(_) if size <= limit => {
            Some(format!("{what}: {size} lines are few enough; remove it from RATCHET"))
        }
        Some(_) => None,
        None => (size > limit).then(|| format!("{what}: {size} lines, at most {limit}: split it")),
    }
}

/// Name, first line, lines and parameters of each function of the product code.
fn functions(source: &Source) -> Vec<(String, usize, usize, usize)> {
    let code = &source.product;
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && lexer::is_word(code.as_bytes()[at - 1]) {
            continue;
        }
        let name: String =
            code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if name.is_empty() {
            continue;
        }
        let (first, end) = (lexer::line_of(code, at), lexer::item_end(code, at));
        let lines = lexer::line_of(code, end) - first + 1;
        let open = code[at..end].find('(').map_or(end, |n| at + n);
        let inside = &code[open..lexer::group_end(code, open)];
        found.push((name, first, lines, parameters(inside)));
    }
    found
}

/// Parameters between the parentheses, without `self`.
fn parameters(list: &str) -> usize {
    let (mut depth, mut angle, mut count, mut any) = (0_i32, 0_i32, 0, false);
    let mut before = ' ';
    for c in list.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '<' => angle += 1,
            // Not the arrow of a function type.
            '>' if before != '-' => angle -= 1,
            ',' if depth == 1 && angle == 0 => (count, any) = (count + usize::from(any), false),
            c if !c.is_whitespace() => any = true,
            _ => {}
        }
        before = c;
    }
    let total = count + usize::from(any);
    let first = list.trim_start_matches('(').split(',').next().unwrap_or_default();
    let takes_self = first.split(|c: char| !c.is_alphanumeric()).any(|word| word == "self");
    total - usize::from(takes_self && total > 0)
}

fn size_problems(tree: &Tree, ratchet: &[(&str, usize)]) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !is_test_path(&source.path)) {
        found.extend(judge(&source.path, source.product_lines, FILE_LINES_MAX, ratchet));
        for (name, line, lines, parameters) in functions(source) {
            let what = format!("{}::{name}", source.path);
            found.extend(judge(&what, lines, FUNCTION_LINES_MAX, ratchet));
            if parameters > PARAMETERS_MAX {
                found.push(format!(
                    "{}:{line}: {name} has {parameters} parameters, at most {PARAMETERS_MAX}: \
                     name what belongs together",
                    source.path
                ));
            }
        }
    }
    for (what, _) in ratchet {
        let path = what.split("::").next().unwrap_or_default();
        if !tree.files.contains_key(path) {
            found.push(format!("{what}: is gone; remove it from RATCHET"));
        }
    }
    found
}

fn width_problems(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let mut look = |path: &str, n: usize, line: &str| {
        let width = line.chars().count();
        // An address cannot be broken.
        if width > COLUMNS_MAX && !line.contains("https://") {
            found.push(format!("{path}:{n}: {width} columns, at most {COLUMNS_MAX}"));
        }
    };
    for path in ["tests/run", ".ci/run"] {
        let lines = tree.text(path).unwrap_or_default().lines().enumerate();
        lines.for_each(|(n, line)| look(path, n + 1, line));
    }
    for source in &tree.sources {
        let lines = source.text.lines().zip(source.code.lines()).zip(source.product.lines());
        for (n, ((line, code), product)) in lines.enumerate() {
            // Tests quote what servers say, line by line as they say it.
            let quotes = code.contains('"') && product.trim().is_empty();
            let bare = code.split_whitespace().collect::<Vec<_>>().join(" ");
            look(&source.path, n + 1, if quotes { &bare } else { line });
        }
    }
    found
}

#[test]
fn files_and_functions_stay_readable() {
    assert_tidy(&size_problems(Tree::here(), RATCHET));
}

#[test]
fn lines_fit_beside_each_other() {
    assert_tidy(&width_problems(Tree::here()));
}

#[test]
fn what_is_too_big_or_too_wide_is_found_and_the_ratchet_only_turns_one_way() {
    let body = "    x();\n".repeat(80);
    let wide = format!("// {}\n", "w".repeat(100));
    let quoting = format!("#[cfg(test)]\nconst A: &str = \"{wide}\";\n").replace("// ", "");
    let long = "//\n".repeat(401);
    let root = "mod long;\nmod wide;\n";
    let main =
        format!("fn big() {{\n{body}}}\n#[cfg(test)]\nmod tests {{ fn t() {{\n{body}}} }}\n");
    let many = "fn many(&self, a: B<C, D>, e: (F, G), h: I, j: fn(K) -> L, m: N, o: P) {}\n";
    let tree = Tree::sample(&[
        ("src/lib.rs", root),
        ("src/long.rs", &long),
        ("src/main.rs", &main),
        ("src/wide.rs", &(wide + many + &quoting)),
    ]);
    assert_finds(&width_problems(&tree), &["src/wide.rs:1: 103 columns"]);
    let found = |ratchet: &[(&str, usize)]| size_problems(&tree, ratchet);
    let many = "src/wide.rs:2: many has 6 parameters";
    assert_finds(&found(&[]), &["src/long.rs: 401 lines", "src/main.rs::big: 82 lines", many]);
    let known = ("src/main.rs::big", 82);
    assert_finds(&found(&[known, ("src/long.rs", 401)]), &[many]);
    assert_finds(
        &found(&[known, ("src/long.rs", 400), ("src/gone.rs", 500), ("src/lib.rs", 500)]),
        &["lib.rs: 2 lines are few enough", "grew from 400 to 401", many, "gone.rs: is gone"],
    );
    assert_finds(&found(&[known, ("src/long.rs", 402)]), &["shrank from 402 to 401", many]);
}
