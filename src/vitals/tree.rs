//! Files of the kernel below a root: the machine's own, or a recorded tree.
//!
//! # Invariants
//! - A file that is missing, unreadable or not a text is an absent reading, never an error.
//! - No file is read further than `limits::VITALS_FILE_BYTES_MAX`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::limits::{VITALS_ENTRIES_MAX, VITALS_FILE_BYTES_MAX};

/// A root of a file system.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The root itself.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether this is the machine itself.
    pub(super) fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The beginning of a file.
    pub(super) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.root.join(path)).ok()?;
        file.take(VITALS_FILE_BYTES_MAX as u64).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The beginning of a text; bytes that are none are replaced.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    /// A file's only line, if there is something in it.
    pub(super) fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let line = text.trim_end_matches('\0').trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// A file's only line as a number.
    pub(super) fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.line(path)?.parse().ok()
    }

    /// Whether there is such a file or directory.
    pub(super) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Names in a directory, sorted; empty if there is none.
    pub(super) fn names(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(directory)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .take(VITALS_ENTRIES_MAX)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }
}
