//! Section `system`: who the companion is, whom it serves, and its time of day (pure).

use std::time::Duration;

use jiff::civil;

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

/// Start of the waking day.
pub const DUTY_START: Key<civil::Time> = Key::time_of_day(
    "system.duty_start",
    "06:00",
    "When the day begins, by the clock of the time zone.",
);

/// Start of sleep.
pub const SLEEP_START: Key<civil::Time> = Key::time_of_day(
    "system.sleep_start",
    "02:00",
    "When sleep begins; it lasts until duty_start. The same time as duty_start: no sleep.",
);

/// Time between two beats.
pub const PULSE: Key<Duration> = Key::seconds(
    "system.pulse_interval_seconds",
    30.0,
    (1.0, 3600.0),
    "Time between two beats of the heart: the vital signs are read, the state is published, and \
     the service manager's watchdog is fed if all tasks get on.",
);

/// Quiet time before curiosity.
pub const IDLE: Key<u32> = Key::count(
    "system.idle_proactive_minutes",
    5,
    (1, 1440),
    "minutes",
    "After this long without a message nobody is taken to be there.",
);

/// Quiet time before the database is synced.
pub const IDLE_FLUSH: Key<Duration> = Key::seconds(
    "system.idle_journal_flush_seconds",
    30.0,
    (1.0, 3600.0),
    "After this long without a message the database is synced to the card. A power cut can \
     lose at most what was said since the last sync; a crash of the program loses nothing.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[
    &DESIGNATION,
    &ARCHITECT_NAME,
    &ARCHITECT_HONORIFIC,
    &TIMEZONE,
    &DUTY_START,
    &SLEEP_START,
    &PULSE,
    &IDLE,
    &IDLE_FLUSH,
];

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
    /// Start of the waking day.
    pub duty_start: civil::Time,
    /// Start of sleep; the same as `duty_start`: none.
    pub sleep_start: civil::Time,
    /// Time between two beats.
    pub pulse: Duration,
    /// Quiet time after which nobody is taken to be there.
    pub idle: Duration,
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
            duty_start: values.get(&DUTY_START),
            sleep_start: values.get(&SLEEP_START),
            pulse: values.get(&PULSE),
            idle: Duration::from_secs(60 * u64::from(values.get(&IDLE))),
            idle_flush: values.get(&IDLE_FLUSH),
        }
    }
}
