//! Where typed lines come from.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

/// Lines of the history kept: months of typing, read in a moment.
const TYPED_MAX: usize = 2000;
/// What a person typed is for them only.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// What came of asking for a line.
#[derive(Debug)]
pub(in crate::cli) enum Typed {
    /// A line; pasted text has several, with their ends.
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the end of a pipe.
    End,
    /// The terminal is gone.
    Failed(io::Error),
}

/// A source of lines.
pub(in crate::cli) trait Typing {
    /// Asks for a line that begins with `initial`, which the person may change.
    fn read(&mut self, prompt: &str, initial: &str) -> Typed;
}

/// A terminal with editing, or a pipe.
pub(in crate::cli) struct Editing {
    editor: Editor<(), FileHistory>,
    typed: Option<PathBuf>,
}

impl Editing {
    /// With a history in `typed`, as far as that can be written.
    ///
    /// # Errors
    /// If the terminal cannot be set up.
    pub(in crate::cli) fn new(typed: Option<PathBuf>) -> io::Result<Self> {
        let config = Config::builder()
            .max_history_size(TYPED_MAX)
            .map_err(io::Error::other)?
            // A pasted text is one message, not one for each of its lines.
            .bracketed_paste(true)
            .auto_add_history(false)
            .build();
        let mut editor = Editor::with_history(config.clone(), FileHistory::with_config(&config))
            .map_err(io::Error::other)?;
        // A history that cannot be kept is no reason not to talk.
        let typed = typed.filter(|path| prepare(path).is_ok());
        if let Some(typed) = &typed {
            let _unreadable = editor.load_history(typed);
        }
        Ok(Self { editor, typed })
    }
}

/// Makes the file for its owner only, before the editor would make it for more.
fn prepare(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    }
    OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)?;
    Ok(())
}

impl Typing for Editing {
    fn read(&mut self, prompt: &str, initial: &str) -> Typed {
        match self.editor.readline_with_initial(prompt, (initial, "")) {
            Ok(line) => {
                if !line.trim().is_empty() {
                    let _full = self.editor.add_history_entry(line.as_str());
                    if let Some(typed) = &self.typed {
                        let _full = self.editor.append_history(typed);
                    }
                }
                Typed::Line(line)
            }
            Err(ReadlineError::Interrupted) => Typed::Interrupt,
            Err(ReadlineError::Eof) => Typed::End,
            Err(ReadlineError::Io(error)) => Typed::Failed(error),
            Err(other) => Typed::Failed(io::Error::other(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_history_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/crayfish/chat_history");
        prepare(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (FILE_MODE, DIRECTORY_MODE));
    }
}
