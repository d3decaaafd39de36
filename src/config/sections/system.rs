//! Section `system`: who the companion is, whom it serves, and its time of day (pure).

use std::time::Duration;

use crate::config::key::{AnyKey, Key};
use crate::config::value::Zone;
use crate::config::values::Values;

/// Longest name, in bytes: names stand in the identity block of every prompt, and a token of the
/// NPU's context is worth more than a long title.
const NAME_BYTES_MAX: usize = 64;

/// The companion's name.
pub const DESIGNATION: Key<String> = Key::text(
    "system.individual_designation",
    "Pinch",
    (1, NAME_BYTES_MAX),
    "The companion's name.",
);

/// The person's name.
pub const ARCHITECT_NAME: Key<String> = Key::text(
    "system.architect_name",
    "Architect",
    (1, NAME_BYTES_MAX),
    "The name of the person it serves.",
);

/// The form of address.
pub const ARCHITECT_HONORIFIC: Key<String> = Key::text(
    "system.architect_honorific",
    "Boss",
    (0, NAME_BYTES_MAX),
    "How it addresses that person; may be empty.",
);

/// The time zone.
pub const TIMEZONE: Key<Zone> = Key::zone(
    "system.timezone",
    "system",
    "Time zone of everything it says about time. \"system\" is the machine's own zone.",
)
.live();

/// Quiet time before the database is synced.
pub const IDLE_FLUSH: Key<Duration> = Key::seconds(
    "system.idle_journal_flush_seconds",
    30.0,
    (1.0, 3600.0),
    "After this long without a message the database is synced to the card. A power cut can \
     lose at most what was said since the last sync; a crash of the program loses nothing.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] =
    &[&DESIGNATION, &ARCHITECT_NAME, &ARCHITECT_HONORIFIC, &TIMEZONE, &IDLE_FLUSH];

/// Settings of the section.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// The companion's name.
    pub individual_designation: String,
    /// The person's name.
    pub architect_name: String,
    /// The form of address; may be empty.
    pub architect_honorific: String,
    /// The zone for everything said about time.
    pub timezone: Zone,
    /// Quiet time before the database is synced.
    pub idle_flush: Duration,
}

impl System {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            individual_designation: values.get(&DESIGNATION),
            architect_name: values.get(&ARCHITECT_NAME),
            architect_honorific: values.get(&ARCHITECT_HONORIFIC),
            timezone: values.get(&TIMEZONE),
            idle_flush: values.get(&IDLE_FLUSH),
        }
    }
}
