//! Model files of the reserve: which are here, which is used, and how one comes here.
//!
//! They lie in `models/` in the state directory. Which of them is used stands in a small file
//! beside them, not in config.yaml, which belongs to people. Where it names none that is here,
//! the first one by name is used.

pub mod fetch;
mod package;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::store::file;

/// The directory in the state directory.
const DIRECTORY: &str = "models";

/// Names the file that is used.
const IN_USE: &str = "in_use";

/// How the name of a model's file ends.
const ENDING: &str = ".gguf";

/// Names are short; a longer line in `in_use` is no name.
const NAME_BYTES_MAX: usize = 200;

/// The directory of the models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shelf {
    directory: PathBuf,
}

/// A model that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The file's name without its ending.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Whether the reserve uses it.
    pub in_use: bool,
}

impl Shelf {
    /// The shelf in a state directory, which need not exist.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self { directory: state.join(DIRECTORY) }
    }

    /// Where a model of this name is or would be; none for a text that is no name.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let name = name.strip_suffix(ENDING).unwrap_or(name);
        let is_name = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c));
        is_name.then(|| self.directory.join(format!("{name}{ENDING}")))
    }

    /// The models that are here, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Entry> {
        let used = self.in_use();
        let Ok(entries) = fs::read_dir(&self.directory) else { return Vec::new() };
        let mut found: Vec<Entry> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name().into_string().ok()?;
                let name = name.strip_suffix(ENDING)?.to_owned();
                let path = self.path(&name)?;
                let bytes = entry.metadata().ok().filter(fs::Metadata::is_file)?.len();
                Some(Entry { name, bytes, in_use: used.as_deref() == Some(&path) })
            })
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The file that the reserve uses.
    #[must_use]
    pub fn in_use(&self) -> Option<PathBuf> {
        let chosen = file::read_whole(&self.directory.join(IN_USE), NAME_BYTES_MAX + 1).ok();
        let chosen = chosen.and_then(|bytes| self.path(String::from_utf8(bytes).ok()?.trim()));
        if let Some(path) = chosen.filter(|path| path.is_file()) {
            return Some(path);
        }
        let entries = fs::read_dir(&self.directory).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names = names.filter(|name| name.ends_with(ENDING));
        names.filter_map(|name| self.path(&name)).filter(|path| path.is_file()).min()
    }

    /// Makes the reserve use a model from its next answer on.
    ///
    /// # Errors
    /// `NotFound` if it is not here; else as the file system says.
    pub fn choose(&self, name: &str) -> io::Result<()> {
        let path = self.path(name).filter(|path| path.is_file());
        let path = path.ok_or(io::ErrorKind::NotFound)?;
        let name = path.file_stem().unwrap_or_default();
        file::replace_atomically(&self.directory.join(IN_USE), name.as_encoded_bytes())
    }

    /// Removes a model.
    ///
    /// # Errors
    /// `NotFound` if it is not here; else as the file system says.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name).ok_or(io::ErrorKind::NotFound)?;
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(shelf: &Shelf, name: &str) {
        fs::create_dir_all(&shelf.directory).unwrap();
        fs::write(shelf.directory.join(name), b"model").unwrap();
    }

    #[test]
    fn the_first_model_is_used_until_another_is_chosen() {
        let state = tempfile::tempdir().unwrap();
        let shelf = Shelf::of(state.path());
        assert_eq!((shelf.in_use(), shelf.list()), (None, vec![]));
        for name in ["b.gguf", "a.gguf", "c.part", ".d.gguf"] {
            put(&shelf, name);
        }
        assert_eq!(shelf.in_use(), shelf.path("a"));
        shelf.choose("b").unwrap();
        assert_eq!(shelf.in_use(), shelf.path("b.gguf"));
        let list: Vec<_> = shelf.list().into_iter().map(|e| (e.name, e.bytes, e.in_use)).collect();
        assert_eq!(list, [("a".to_owned(), 5, false), ("b".to_owned(), 5, true)]);
        shelf.remove("b").unwrap();
        assert_eq!(shelf.in_use(), shelf.path("a"), "what was chosen is gone");
        assert_eq!(shelf.choose("b").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(shelf.remove("b").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_name_never_leaves_the_directory() {
        let shelf = Shelf::of(Path::new("state"));
        for name in ["", "..", "../a", "a/b", ".hidden", "a b", "ä", &"x".repeat(201)] {
            assert_eq!(shelf.path(name), None, "{name:?}");
        }
        assert_eq!(shelf.path("a.gguf"), shelf.path("a"));
    }
}
