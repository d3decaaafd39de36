//! Sections `storage` and `log` (pure).

use crate::config::key::{AnyKey, Key};
use crate::config::values::Values;

/// When the database waits for the card.
pub const JOURNAL_FSYNC: Key<&'static str> = Key::choice(
    "storage.journal_fsync",
    "idle",
    &["idle", "always"],
    "When the database is synced to the card. idle: after a while without messages and at \
     shutdown. always: after every turn, which wears the card more.",
);

/// How much is logged.
pub const LEVEL: Key<&'static str> = Key::choice(
    "log.level",
    "info",
    &["error", "warn", "info", "debug", "trace"],
    "error: a person must act. warn: degraded, heals itself. info: starts, stops, changes. \
     debug: every turn. trace: every token.",
)
.live();

/// The section `storage`.
pub const KEYS: &[&dyn AnyKey] = &[&JOURNAL_FSYNC];

/// The section `log`.
pub const LOG_KEYS: &[&dyn AnyKey] = &[&LEVEL];

/// When the database waits for the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalFsync {
    /// After a quiet while and at shutdown.
    Idle,
    /// After every turn.
    Always,
}

/// Settings of the section `storage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storage {
    /// When the database waits for the card.
    pub journal_fsync: JournalFsync,
}

impl Storage {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        let journal_fsync = match values.get(&JOURNAL_FSYNC) {
            "always" => JournalFsync::Always,
            _ => JournalFsync::Idle,
        };
        Self { journal_fsync }
    }
}

/// Settings of the section `log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The least important level that is logged.
    pub level: tracing::Level,
}

impl Log {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        let level = match values.get(&LEVEL) {
            "error" => tracing::Level::ERROR,
            "warn" => tracing::Level::WARN,
            "debug" => tracing::Level::DEBUG,
            "trace" => tracing::Level::TRACE,
            _ => tracing::Level::INFO,
        };
        Self { level }
    }
}
