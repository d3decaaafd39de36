//! Section `events`: how long happenings are kept (pure).

use crate::config::key::{AnyKey, Key};
use crate::config::values::Values;

/// Shortest and longest keeping, in days.
const DAYS: (u32, u32) = (1, 3650);

/// Faults.
pub const FAULT_DAYS: Key<u32> = Key::count(
    "events.keep_faults_days",
    90,
    DAYS,
    "days",
    "How long faults of servers, disk, tasks and configuration are kept.",
);

/// The body.
pub const BODY_DAYS: Key<u32> = Key::count(
    "events.keep_body_days",
    30,
    DAYS,
    "days",
    "How long stress, steps of the governor, sleep and quiet are kept.",
);

/// Turns.
pub const TURN_DAYS: Key<u32> = Key::count(
    "events.keep_turns_days",
    30,
    DAYS,
    "days",
    "How long the ends of turns are kept. What was said is kept elsewhere, for ever.",
);

/// Beats.
pub const BEAT_DAYS: Key<u32> = Key::count(
    "events.keep_beats_days",
    14,
    DAYS,
    "days",
    "How long the summary of every hour's beats is kept.",
);

/// Of each kind.
pub const ROWS_MAX: Key<u32> = Key::count(
    "events.rows_max",
    5000,
    (100, 1_000_000),
    "events",
    "Most events kept of one group, however young they are. 5000 take about 1 MB.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[&FAULT_DAYS, &BODY_DAYS, &TURN_DAYS, &BEAT_DAYS, &ROWS_MAX];

/// Settings of the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventsKept {
    /// Days for faults.
    pub fault_days: u32,
    /// Days for the body.
    pub body_days: u32,
    /// Days for turns.
    pub turn_days: u32,
    /// Days for beats.
    pub beat_days: u32,
    /// Most events of one group.
    pub rows_max: u32,
}

impl EventsKept {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            fault_days: values.get(&FAULT_DAYS),
            body_days: values.get(&BODY_DAYS),
            turn_days: values.get(&TURN_DAYS),
            beat_days: values.get(&BEAT_DAYS),
            rows_max: values.get(&ROWS_MAX),
        }
    }
}
