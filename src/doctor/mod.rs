//! What is wrong with this machine, its services and this program, and the command that helps.
//!
//! [`facts`] gathers, [`servers`] asks the model servers, and [`checks`] judges what was gathered:
//! functions without any I/O, so that recorded machines test them. [`npu`] judges what a few short
//! answers showed of the NPU.
//!
//! # Invariants
//! - What could not be read is no finding: a container tells little, a laptop has no rails.
//! - Nothing is changed here but permissions, by [`Mend::apply`], which a person was asked about.
//!
//! # Absences
//! - No child is started: what systemd runs is seen by who listens where.
//! - No crash of the process itself: systemd's journal has those. What the program noticed of its
//!   own faults is asked of the daemon.

pub mod checks;
pub mod facts;
pub mod npu;
pub mod servers;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde::Serialize;

pub use self::facts::Facts;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; all works.
    Note,
    /// It works, but worse than it could, or not for long.
    Warning,
    /// Something does not work.
    Fault,
}

impl Severity {
    /// The word in front of a finding.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// What was found, without a full stop.
    pub what: String,
    /// Why it matters, in a sentence.
    pub why: &'static str,
    /// The command that helps, to be typed as it stands, or what to do where none does.
    pub fix: String,
    /// What `--fix` may do about it.
    #[serde(skip)]
    pub mend: Option<Mend>,
}

impl Finding {
    fn new(severity: Severity, what: impl Into<String>, why: &'static str) -> Self {
        Self { severity, what: what.into(), why, fix: String::new(), mend: None }
    }

    fn note(what: impl Into<String>, why: &'static str) -> Self {
        Self::new(Severity::Note, what, why)
    }

    fn warning(what: impl Into<String>, why: &'static str) -> Self {
        Self::new(Severity::Warning, what, why)
    }

    fn fault(what: impl Into<String>, why: &'static str) -> Self {
        Self::new(Severity::Fault, what, why)
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }
}

/// What may be done without harm: it can be undone, and loses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mend {
    /// Takes a file or directory away from other users.
    Close {
        /// Which.
        path: PathBuf,
        /// Its permission bits from then on.
        mode: u32,
    },
}

impl Mend {
    /// Does it.
    ///
    /// # Errors
    /// The system's words.
    pub fn apply(&self) -> io::Result<()> {
        let Self::Close { path, mode } = self;
        fs::set_permissions(path, fs::Permissions::from_mode(*mode))
    }
}

/// What one check said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The check's name.
    pub check: &'static str,
    /// Nothing if all is well, as far as it can be seen.
    pub findings: Vec<Finding>,
}

/// Judges the facts, check by check.
#[must_use]
pub fn examine(facts: &Facts) -> Vec<Checked> {
    let run =
        |(check, judge): &(&'static str, checks::Check)| Checked { check, findings: judge(facts) };
    checks::ALL.iter().map(run).collect()
}

/// The worst of all findings; none if there is none.
#[must_use]
pub fn worst(checked: &[Checked]) -> Option<Severity> {
    checked.iter().flat_map(|checked| &checked.findings).map(|finding| finding.severity).max()
}
