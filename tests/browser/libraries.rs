//! The kept libraries are the published files that their lists name.

use std::path::Path;
use std::process::Command;

/// Lists of kept files; each lies beside what it lists.
const LISTS: [&str; 2] =
    ["src/http/assets/vendor/LIBRARIES.md", "tests/browser/vendor/LIBRARIES.md"];

fn files_below(directory: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()).iter().map(|inner| format!("{name}/{inner}")));
        } else if !name.ends_with(".md") {
            files.push(name);
        }
    }
    files
}

#[test]
fn kept_libraries_are_what_their_lists_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for list in LISTS {
        let list = root.join(list);
        let directory = list.parent().unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        let mut listed = Vec::new();
        for row in rows {
            let cells: Vec<_> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let (file, hash) = (cells[0], cells[5]);
            let sum = Command::new("sha256sum").arg(directory.join(file)).output().unwrap();
            let sum = String::from_utf8(sum.stdout).unwrap();
            assert_eq!(sum.split_whitespace().next(), Some(hash), "{file}");
            listed.push(file.to_owned());
        }
        let mut there = files_below(directory);
        there.sort();
        listed.sort();
        assert_eq!(listed, there, "{}", list.display());
    }
}
