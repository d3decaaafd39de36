//! What is wrong with a configuration, where, and what to do about it (pure).

use std::fmt;

/// How much a problem matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program does not start with it.
    Error,
    /// It starts, but probably does not do what was meant.
    Warning,
    /// Worth knowing; told by `crayfish check` only.
    Note,
}

impl Severity {
    /// The word in front of a message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Dotted path of the key; empty if it concerns the whole file.
    pub path: String,
    /// Line in the file, from 1; 0 if it has none.
    pub line: usize,
    /// What is wrong, without a final full stop. Never contains a secret.
    pub says: String,
    /// What to write instead.
    pub fix: String,
    /// How much it matters.
    pub severity: Severity,
}

impl Problem {
    /// A problem that refuses the start.
    #[must_use]
    pub fn error(path: &str, line: usize, says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            says: says.into(),
            fix: fix.into(),
            severity: Severity::Error,
        }
    }

    /// The same problem as a warning.
    #[must_use]
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// The same problem as a note.
    #[must_use]
    pub fn as_note(mut self) -> Self {
        self.severity = Severity::Note;
        self
    }

    /// The problem in the file called `file`, as a compiler would print it. Errors carry no
    /// word in front, as they are what a reader looks for.
    #[must_use]
    pub fn in_file<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        InFile { problem: self, file }
    }
}

struct InFile<'a> {
    problem: &'a Problem,
    file: &'a str,
}

impl fmt::Display for InFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { path, line, says, fix, severity } = self.problem;
        f.write_str(self.file)?;
        if *line > 0 {
            write!(f, ":{line}")?;
        }
        if *severity != Severity::Error {
            write!(f, ": {}", severity.as_str())?;
        }
        if !path.is_empty() {
            write!(f, ": {path}")?;
        }
        write!(f, ": {says}")?;
        if !fix.is_empty() {
            write!(f, "; {fix}")?;
        }
        Ok(())
    }
}
