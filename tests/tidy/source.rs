//! The repository as the rules see it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::lexer;

/// Directories that are no part of the source: what builds and rigs leave, and git's own.
const SKIPPED: &[&str] = &["target", ".git", "tests/peers/.rig"];

/// Where Rust is entered; everything else must be reached from here by `mod`.
const ROOTS: &[&str] =
    &["build.rs", "src/main.rs", "src/lib.rs", "hailo/src/lib.rs", "tests/tidy.rs"];

/// A Rust file.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// From the repository's root, with `/`.
    pub(crate) path: String,
    /// As it is.
    pub(crate) text: String,
    /// Without comments and the insides of literals.
    pub(crate) code: String,
    /// `code` without test items; blank if the file is test code as a whole.
    pub(crate) product: String,
    /// Lines outside of test items.
    pub(crate) product_lines: usize,
}

/// The repository.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// All Rust files.
    pub(crate) sources: Vec<Source>,
    /// All text files, the Rust files too, by path.
    pub(crate) files: BTreeMap<String, String>,
    /// Rust files that no root reaches.
    pub(crate) unreached: Vec<String>,
}

impl Tree {
    /// This repository, read once. Cargo and nextest say where it is when they run a test, which
    /// need not be where it was built.
    pub(crate) fn here() -> &'static Self {
        static HERE: OnceLock<Tree> = OnceLock::new();
        HERE.get_or_init(|| {
            let built = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
            let root = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(built, PathBuf::from);
            let mut files = BTreeMap::new();
            collect(&root, &root, &mut files);
            assert!(files.len() > 20, "the repository was not found under {}", root.display());
            Self::of(files)
        })
    }

    /// A made-up repository, to show a rule what it must find.
    pub(crate) fn sample(files: &[(&str, &str)]) -> Self {
        Self::of(files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect())
    }

    fn of(files: BTreeMap<String, String>) -> Self {
        let (reached, tests) = reach(&files);
        let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
        let sources = rust
            .clone()
            .map(|(path, text)| {
                Source::new(path, text, tests.contains(path) || path.ends_with("/tests.rs"))
            })
            .collect();
        let unreached =
            rust.map(|(path, _)| path.clone()).filter(|path| !reached.contains(path)).collect();
        Self { sources, files, unreached }
    }

    /// A file's text.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// The files of the product crate.
    pub(crate) fn product(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.path.starts_with("src/"))
    }
}

impl Source {
    fn new(path: &str, text: &str, is_test: bool) -> Self {
        let code = lexer::code(text);
        let mut product = code.clone().into_bytes();
        let mut test_lines = BTreeSet::new();
        let spans = if is_test {
            std::iter::once(0..code.len()).collect()
        } else {
            lexer::test_items(&code)
        };
        for span in spans {
            let (first, last) =
                (lexer::line_of(&code, span.start), lexer::line_of(&code, span.end));
            test_lines.extend(first..=last);
            product[span].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
        }
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            product_lines: text.lines().count().saturating_sub(test_lines.len()),
            product: String::from_utf8_lossy(&product).into_owned(),
            code,
        }
    }

    /// Lines of `part` (`code` or `product`) that contain `needle`.
    pub(crate) fn lines_with(part: &str, needle: &str) -> Vec<usize> {
        let lines = part.lines().enumerate();
        lines.filter(|(_, line)| line.contains(needle)).map(|(n, _)| n + 1).collect()
    }

    /// The module's path inside its crate: `net::client` for `src/net/client.rs`.
    pub(crate) fn module(&self) -> Vec<String> {
        let inner = self.path.split_once("src/").map_or(self.path.as_str(), |(_, rest)| rest);
        let inner = inner.trim_end_matches(".rs").trim_end_matches("/mod");
        match inner {
            "lib" | "main" | "mod" => Vec::new(),
            inner => inner.split('/').map(str::to_owned).collect(),
        }
    }

    /// Paths of the product code with `crate`, `self` and `super` resolved to `crate::...`.
    pub(crate) fn paths(&self) -> Vec<(usize, String)> {
        let module = self.module();
        let resolve = |path: &str| {
            let mut segments: Vec<&str> = path.split("::").collect();
            let mut base: Vec<&str> = module.iter().map(String::as_str).collect();
            match segments[0] {
                "self" => drop(segments.remove(0)),
                "super" => {
                    while segments.first() == Some(&"super") {
                        segments.remove(0);
                        base.pop();
                    }
                }
                _ => return path.to_owned(),
            }
            base.insert(0, "crate");
            base.extend(segments);
            base.join("::")
        };
        lexer::paths(&self.product).iter().map(|p| (p.line, resolve(&p.path))).collect()
    }
}

/// Fails with all of `problems`.
pub(crate) fn assert_tidy(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n  {}", problems.len(), problems.join("\n  "));
}

/// Fails unless the rule found exactly one problem for each of `expected`, in order, containing it.
pub(crate) fn assert_finds(problems: &[String], expected: &[&str]) {
    let all = problems.join("\n");
    assert_eq!(problems.len(), expected.len(), "{all}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.contains(expected), "{expected:?} in {problem:?}");
    }
}

fn collect(root: &Path, dir: &Path, files: &mut BTreeMap<String, String>) {
    let entries = std::fs::read_dir(dir).unwrap();
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        let skipped = SKIPPED.contains(&name.as_str()) || name.ends_with("/target");
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !skipped {
            collect(root, &path, files);
        } else if kind.is_file() && !skipped {
            // Not UTF-8 is not text, and no rule is about it.
            if let Ok(text) = std::fs::read_to_string(&path) {
                files.insert(name, text);
            }
        }
    }
}

/// Whether a file is in a package's `tests` directory.
pub(crate) fn is_test_path(path: &str) -> bool {
    path.starts_with("tests/") || path.starts_with("hailo/tests/")
}

/// Follows `mod` from the roots: the files reached, and those reached as test code only.
fn reach(files: &BTreeMap<String, String>) -> (BTreeSet<String>, BTreeSet<String>) {
    let root = |path: &str| {
        ROOTS.contains(&path)
            || path.ends_with("/main.rs") && is_test_path(path)
            || path.starts_with("tests/fuzz/")
            || path == "deploy/pages/src/main.rs"
            || path.contains("/src/bin/") && path.matches('/').count() == 3
            || path.starts_with("src/bin/") && path.matches('/').count() == 2
    };
    let mut to_do: Vec<(String, bool)> = files
        .keys()
        .filter(|path| root(path))
        .map(|path| (path.clone(), is_test_path(path)))
        .collect();
    let (mut reached, mut tests) = (BTreeSet::new(), BTreeSet::new());
    while let Some((path, is_test)) = to_do.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        if is_test {
            tests.insert(path.clone());
        }
        let Some(text) = files.get(&path) else { continue };
        for (child, child_is_test) in children(&path, text, files) {
            to_do.push((child, is_test || child_is_test));
        }
    }
    (reached, tests)
}

/// The files of `mod name;` in a file, with whether the declaration is for tests.
fn children(path: &str, text: &str, files: &BTreeMap<String, String>) -> Vec<(String, bool)> {
    let code = lexer::code(text);
    let spans = lexer::test_items(&code);
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    let is_dir_root = matches!(file, "mod.rs" | "lib.rs" | "main.rs")
        || ROOTS.contains(&path)
        || dir.ends_with("src/bin");
    let own = if is_dir_root {
        dir.to_owned()
    } else {
        format!("{dir}/{}", file.trim_end_matches(".rs"))
    };
    let mut found = Vec::new();
    let mut offset = 0;
    let mut named: Option<PathBuf> = None;
    for (line, original) in code.lines().zip(text.lines()) {
        let here = offset;
        offset += line.len() + 1;
        let trimmed = line.trim();
        if trimmed.starts_with("#[path") {
            named = original.split('"').nth(1).map(PathBuf::from);
        }
        let Some(declared) = trimmed.strip_suffix(';') else { continue };
        let mut words = declared.rsplit(' ');
        let (Some(name), Some("mod")) = (words.next(), words.next()) else { continue };
        let is_test = spans.iter().any(|span| span.contains(&(here + line.len() - 1)));
        let candidates = match named.take() {
            Some(at) => vec![format!("{dir}/{}", at.display())],
            None => vec![format!("{own}/{name}.rs"), format!("{own}/{name}/mod.rs")],
        };
        let exists = candidates.into_iter().find(|candidate| files.contains_key(candidate));
        found.extend(exists.map(|child| (child, is_test)));
    }
    found
}

#[test]
fn every_rust_file_is_reached_by_a_mod_line() {
    let problems: Vec<_> = Tree::here()
        .unreached
        .iter()
        .map(|path| format!("{path}: no `mod` leads here: dead text that no compiler reads"))
        .collect();
    assert_tidy(&problems);
}

#[test]
fn modules_are_followed_and_those_for_tests_are_known() {
    let tree = Tree::sample(&[
        ("src/lib.rs", "mod a;\n#[cfg(test)]\npub(crate) mod fake;\n"),
        ("src/a.rs", "mod b;\nfn f() { g::h() }"),
        ("src/a/b.rs", "use super::super::c::D;\nuse self::e::F;"),
        ("src/fake.rs", "fn x() { y::z() }"),
        ("src/dead.rs", ""),
        ("tests/it/main.rs", "mod one;"),
        ("tests/it/one.rs", "fn x() {}"),
    ]);
    assert_eq!(tree.unreached, ["src/dead.rs"]);
    let paths = |path: &str| {
        let source = tree.sources.iter().find(|source| source.path == path).unwrap();
        source.paths().into_iter().map(|(_, path)| path).collect::<Vec<_>>()
    };
    assert_eq!(paths("src/a.rs"), ["g::h"]);
    assert_eq!(paths("src/a/b.rs"), ["crate::c::D", "crate::a::b::e::F"]);
    assert_eq!(paths("src/fake.rs"), [""; 0], "test code has no product paths");
}
