//! Exit codes: `sysexits.h` where it has a word for it, so that units and scripts can tell them
//! apart. `deploy` and `systemd` repeat 64 and 78 as `RestartPreventExitStatus`.

use super::supervisor::Outcome;

/// An orderly stop.
pub const STOPPED: u8 = 0;
/// `EX_USAGE`: the command line is wrong.
pub const USAGE: u8 = 64;
/// `EX_SOFTWARE`: a critical task ended.
pub const INTERNAL: u8 = 70;
/// `EX_CANTCREAT`: a directory or file cannot be created.
pub const CANNOT_CREATE: u8 = 73;
/// `EX_TEMPFAIL`: somebody still ran when the drain's time was over.
pub const OVERRUN: u8 = 75;
/// `EX_NOPERM`: a directory or file may not be used.
pub const PERMISSION: u8 = 77;
/// `EX_CONFIG`: the configuration is invalid.
pub const CONFIG: u8 = 78;
/// 128 + SIGINT, as shells say it: a second signal cut the drain short.
pub const KILLED: u8 = 130;

/// Why the process leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Asked to, and everybody ended in time.
    Stopped,
    /// A critical task ended.
    CriticalEnded {
        /// Its name.
        task: &'static str,
        /// How.
        outcome: Outcome,
    },
    /// Asked to, but these did not end in their time.
    Overrun(Vec<&'static str>),
    /// A second signal came during the drain.
    Killed,
}

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Stopped => STOPPED,
            Self::CriticalEnded { .. } => INTERNAL,
            Self::Overrun(_) => OVERRUN,
            Self::Killed => KILLED,
        }
    }
}
