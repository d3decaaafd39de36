//! Happenings as they are read back from the database.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A stored happening.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its place: higher is later. Numbers may be missing, and none is given twice.
    pub id: u64,
    /// When, in milliseconds since 1970, by the machine's clock then.
    pub at_ms: i64,
    /// `fault`, `body`, `turn` or `beat`.
    pub group: String,
    /// `error`, `warn` or `info`.
    pub severity: String,
    /// What, see `Event::name`.
    pub kind: String,
    /// The event's fields.
    pub body: Value,
}

/// Which happenings are wanted, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those after this place.
    After(u64),
    /// Those after this place that are not older than this moment.
    Since {
        /// In milliseconds since 1970.
        at_ms: i64,
        /// The place.
        after: u64,
    },
    /// The newest.
    Last,
}
