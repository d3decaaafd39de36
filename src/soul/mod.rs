//! Who the agent is: `soul.md`, read at start and at reload, and the identity block made of it.
//!
//! A missing or damaged file never keeps the agent from starting: the built-in soul stands in and
//! the person is told. Nothing here writes the file.

pub mod regions;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use regions::{Identity, Soul, identity_block};

/// Largest soul file that is read, in bytes. A prompt takes 600 of them; what is larger is not a
/// soul.
const SOUL_BYTES_MAX: u64 = 256 * 1024;

/// A soul, and what the person should know about how it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The file's soul, or the built-in one.
    pub soul: Soul,
    /// A sentence, if the built-in one had to stand in.
    pub notice: Option<String>,
}

/// Reads the soul. Blocks for the disk.
#[must_use]
pub fn load(path: &Path) -> Loaded {
    let shown = path.display();
    let problem = match read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => match Soul::parse(&text) {
                Ok(soul) => return Loaded { soul, notice: None },
                Err(damage) => format!("{shown} is damaged ({damage})"),
            },
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                format!("{shown} is damaged (not UTF-8 at byte {at})")
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!("{shown} is missing"),
        Err(error) => format!("{shown} cannot be read ({error})"),
    };
    let notice = format!("{problem}; the built-in soul stands in until it is repaired.");
    Loaded { soul: Soul::built_in(), notice: Some(notice) }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SOUL_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > SOUL_BYTES_MAX {
        return Err(io::Error::other(format!("more than {SOUL_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_in_the_files_place_a_soul_is_found_and_the_person_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("soul.md");
        let cases: [(&str, Option<Vec<u8>>); 5] = [
            ("is missing", None),
            ("not UTF-8 at byte 2", Some(b"ab\xff".to_vec())),
            ("IMMUTABLE_CORE_START", Some(b"# [IDENTITY]\n- me\n".to_vec())),
            ("is damaged", Some(Vec::new())),
            ("more than", Some(vec![b'x'; 300 * 1024])),
        ];
        for (says, bytes) in cases {
            if let Some(bytes) = bytes {
                std::fs::write(&path, bytes).unwrap();
            }
            let loaded = load(&path);
            assert_eq!(loaded.soul, Soul::built_in());
            let notice = loaded.notice.unwrap();
            assert!(notice.contains(says) && notice.contains("soul.md"), "{notice}");
        }
        assert!(load(dir.path()).notice.unwrap().contains("cannot be read"));
    }

    #[test]
    fn the_shipped_file_is_read_without_a_notice() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("soul.md");
        assert_eq!(load(&path), Loaded { soul: Soul::built_in(), notice: None });
    }
}
