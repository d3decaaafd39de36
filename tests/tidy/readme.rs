//! README's claims: what it names exists, and its tables are the ones of the source.

use std::collections::BTreeSet;

use crate::source::{Tree, assert_finds, assert_tidy};

const README: &str = "README.md";

/// Endings by which a dotted word is a file or a host, not a configuration key.
const NO_KEYS: &[&str] =
    &["rs", "md", "yaml", "toml", "service", "sock", "sh", "html", "db", "lock", "json", "local"];

/// The lines of the section `## title`.
fn section<'a>(readme: &'a str, title: &str) -> Option<Vec<&'a str>> {
    let mut lines = readme.lines().skip_while(|line| line.strip_prefix("## ") != Some(title));
    lines.next()?;
    Some(lines.take_while(|line| !line.starts_with("## ")).collect())
}

fn missing(title: &str) -> String {
    format!("{README}: there is no section `## {title}`")
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Cells of a table's rows, without the head.
fn rows<'a>(lines: &[&'a str]) -> Vec<Vec<&'a str>> {
    let table = lines.iter().filter_map(|line| line.trim().strip_prefix('|'));
    table.skip(2).map(|row| row.trim_end_matches('|').split('|').map(str::trim).collect()).collect()
}

/// "Where is…?": each row's last cell names places, `path` or `path::Symbol`.
fn where_problems(tree: &Tree) -> Vec<String> {
    let title = "Where is…?";
    let readme = tree.text(README).unwrap_or_default();
    let Some(lines) = section(readme, title) else { return vec![missing(title)] };
    let rows = rows(&lines);
    let mut found = Vec::new();
    if rows.is_empty() {
        found.push(format!("{README}: `## {title}` has no table"));
    }
    for row in rows {
        let places = row.last().copied().unwrap_or_default();
        if !places.contains('`') {
            found.push(format!("{README}: {title} {:?}: no place in backticks", row[0]));
        }
        for place in quoted(places) {
            let (path, symbol) = place.split_once("::").unwrap_or((place, ""));
            let directory = format!("{}/", path.trim_end_matches('/'));
            let text = tree.text(path);
            let is_directory = tree.files.keys().any(|file| file.starts_with(&directory));
            let name = symbol.rsplit("::").next().unwrap_or_default();
            if text.is_none() && !is_directory {
                found.push(format!("{README}: {title} `{path}` does not exist"));
            } else if !name.is_empty() && !text.is_some_and(|text| text.contains(name)) {
                found.push(format!("{README}: {title} `{path}` has no `{symbol}`"));
            }
        }
    }
    found
}

/// The task table is the one of `daemon`.
fn task_problems(tree: &Tree) -> Vec<String> {
    let title = "Tasks";
    let readme = tree.text(README).unwrap_or_default();
    let Some(lines) = section(readme, title) else { return vec![missing(title)] };
    let source = tree.text("src/daemon/mod.rs").unwrap_or_default();
    let documented: Vec<&str> =
        source.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let (claimed, documented) = (rows(&lines), rows(&documented));
    if claimed.is_empty() || claimed != documented {
        let differ = |row: &&Vec<&str>| !documented.contains(row) || !claimed.contains(row);
        let odd: Vec<_> = claimed.iter().chain(&documented).filter(differ).collect();
        return vec![format!(
            "{README}: the table under `## {title}` is not the one in src/daemon/mod.rs: {odd:?}"
        )];
    }
    Vec::new()
}

/// Every dependency has a line "- `name`: why", and every such line a dependency.
fn dependency_problems(tree: &Tree) -> Vec<String> {
    let title = "Dependencies and why";
    let readme = tree.text(README).unwrap_or_default();
    let Some(lines) = section(readme, title) else { return vec![missing(title)] };
    let argued = lines.iter().filter_map(|line| {
        let (name, why) = line.strip_prefix("- `")?.split_once('`')?;
        Some((name, why.trim_matches([':', ' ']).len() > 10))
    });
    let argued: Vec<(&str, bool)> = argued.collect();
    let used = dependencies(tree);
    let mut found = Vec::new();
    for name in &used {
        match argued.iter().find(|(argued, _)| argued == name) {
            None => found.push(format!("{README}: {title}: no line \"- `{name}`: ...\"")),
            Some((_, false)) => found.push(format!("{README}: {title}: `{name}`: why?")),
            Some(_) => {}
        }
    }
    for (name, _) in argued.iter().filter(|(name, _)| !used.contains(*name)) {
        found.push(format!("{README}: {title}: `{name}` is no dependency any more"));
    }
    found
}

fn dependencies(tree: &Tree) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for manifest in ["Cargo.toml", "hailo/Cargo.toml"] {
        let mut inside = false;
        for line in tree.text(manifest).unwrap_or_default().lines() {
            if line.starts_with('[') {
                inside = line.ends_with("dependencies]");
            } else if let Some((name, what)) = line.split_once(" = ")
                && inside
                && !name.starts_with('#')
                && !what.contains("path = ")
            {
                used.insert(name.to_owned());
            }
        }
    }
    used
}

/// Every room of the source is somewhere in README.
fn room_problems(tree: &Tree) -> Vec<String> {
    let readme = tree.text(README).unwrap_or_default();
    let library = tree.text("src/lib.rs").unwrap_or_default();
    let rooms = library.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let absent = rooms.filter(|room| {
        !quoted(readme).any(|place| {
            let inside = place.strip_prefix("src/").unwrap_or_default();
            inside.split(['/', '.']).next() == Some(*room)
        })
    });
    absent.map(|room| format!("{README}: nothing says what `src/{room}` is")).collect()
}

/// Every word like `section.key` is a key of the shipped configuration.
fn key_problems(tree: &Tree) -> Vec<String> {
    let readme = tree.text(README).unwrap_or_default();
    let keys = keys(tree.text("config.yaml").unwrap_or_default());
    let mut found = Vec::new();
    for word in quoted(readme) {
        let word = word.split(':').next().unwrap_or_default();
        let parts: Vec<&str> = word.split('.').collect();
        let is_name = |part: &&str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b"_0123".contains(&b))
        };
        let is_key = parts.len() > 1
            && parts.iter().all(is_name)
            && !parts[0].bytes().all(|b| b.is_ascii_digit())
            && !NO_KEYS.contains(&parts[parts.len() - 1]);
        if is_key && !keys.contains(word) {
            found.push(format!("{README}: `{word}` is no key of config.yaml"));
        }
    }
    found
}

/// Dotted keys of a YAML document by indentation; those commented out count.
fn keys(yaml: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut above: Vec<(usize, &str)> = Vec::new();
    for line in yaml.lines() {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        let (indent, body) = match body.strip_prefix('#') {
            // `  # key: value` and `#   key: value` are both in use.
            Some(rest) if indent == 0 => (rest.len() - rest.trim_start().len(), rest.trim_start()),
            Some(rest) => (indent, rest.trim_start()),
            None => (indent, body),
        };
        let Some((key, _)) = body.split_once(':') else { continue };
        if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            continue;
        }
        above.retain(|(outer, _)| *outer < indent);
        above.push((indent, key));
        keys.insert(above.iter().map(|(_, key)| *key).collect::<Vec<_>>().join("."));
    }
    keys
}

#[test]
fn the_index_leads_to_places_that_exist() {
    assert_tidy(&where_problems(Tree::here()));
}

#[test]
fn the_task_table_is_the_one_of_the_source() {
    assert_tidy(&task_problems(Tree::here()));
}

#[test]
fn every_dependency_has_its_reason() {
    assert_tidy(&dependency_problems(Tree::here()));
}

#[test]
fn every_room_is_on_the_map() {
    assert_tidy(&room_problems(Tree::here()));
}

#[test]
fn every_key_that_is_mentioned_exists() {
    assert_tidy(&key_problems(Tree::here()));
}

#[test]
fn a_readme_that_lacks_everything_is_told_so() {
    let tree = Tree::sample(&[
        (README, "# x\n"),
        ("src/lib.rs", "pub mod a;\n"),
        ("Cargo.toml", "[dependencies]\nb = \"1\"\n"),
    ]);
    assert_finds(&where_problems(&tree), &["no section `## Where is…?`"]);
    assert_finds(&task_problems(&tree), &["no section `## Tasks`"]);
    assert_finds(&dependency_problems(&tree), &["no section `## Dependencies and why`"]);
    assert_finds(&room_problems(&tree), &["`src/a`"]);
}

#[test]
fn wrong_claims_are_found() {
    let readme = "# x\nSet `system.pulse` or `system.puls` in `config.yaml`, see `127.0.0.1`.\n\
        ## Where is…?\n|q|place|\n|---|---|\n| A | `src/lib.rs::Here` `src/lib.rs::Gone` |\n\
        | B | `src/none.rs` |\n| C | there |\n| D | `src` |\n\
        ## Tasks\n|task|owns|\n|---|---|\n| http | listener |\n\
        ## Dependencies and why\n- `b`: because it is good\n- `c`:\n- `old`: was good once\n";
    let tree = Tree::sample(&[
        (README, readme),
        ("config.yaml", "system:\n  # pulse: 5\n  name: x\n"),
        ("src/lib.rs", "pub mod a;\nstruct Here;\n"),
        ("src/daemon/mod.rs", "//! | task | owns |\n//! |---|---|\n//! | https | listener |\n"),
        ("Cargo.toml", "[dependencies]\nb = \"1\"\nh = { path = \"h\" }\n# d = \"1\"\nc = \"1\"\n"),
        ("hailo/Cargo.toml", "[dev-dependencies]\ne = \"1\"\n[features]\nf = []\n"),
    ]);
    assert_finds(
        &where_problems(&tree),
        &["has no `Gone`", "`src/none.rs` does not exist", "no place in backticks"],
    );
    assert_finds(&task_problems(&tree), &["https"]);
    assert_finds(
        &dependency_problems(&tree),
        &["`c`: why?", "no line \"- `e`", "`old` is no dependency"],
    );
    assert_finds(&key_problems(&tree), &["`system.puls`"]);
}
