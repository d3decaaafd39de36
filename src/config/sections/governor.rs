//! Sections `vitals` and `governor`: where the readings come from, and what follows from them
//! before the processor is too hot (pure).

use std::path::PathBuf;
use std::time::Duration;

use crate::config::key::{AnyKey, Key};
use crate::config::values::Values;
use crate::limits::GOVERNOR_WINDOW_S;

/// Distances from the limit, in degrees.
const DEGREES: (f64, f64) = (0.0, 60.0);

/// Where the readings come from.
pub const ROOT: Key<PathBuf> = Key::file(
    "vitals.root",
    "/",
    "Directory below which /proc, /sys and /dev are read. Another one plays back a recorded \
     machine; tests/golden/vitals has some.",
);

/// Whether the governor may do anything.
pub const ENABLED: Key<bool> = Key::flag(
    "governor.enabled",
    true,
    "Give work up before the processor is too hot: short answers first, then no work of its own, \
     then answers without the model.",
);

/// How far it looks.
pub const WINDOW: Key<Duration> = Key::seconds(
    "governor.window_seconds",
    60.0,
    GOVERNOR_WINDOW_S,
    "How far back it looks at the temperature; it expects as much of a rise again.",
);

/// Short answers.
pub const SHORT_BELOW: Key<f64> = Key::number(
    "governor.short_below_limit",
    8.0,
    DEGREES,
    "degrees Celsius",
    "So far below hardware.thermal_limit_celsius an expected temperature asks for short answers.",
);

/// Cheap work.
pub const CHEAP_BELOW: Key<f64> = Key::number(
    "governor.cheap_below_limit",
    5.0,
    DEGREES,
    "degrees Celsius",
    "So far below the limit it also ends background work.",
);

/// No model.
pub const NO_MODEL_BELOW: Key<f64> = Key::number(
    "governor.no_model_below_limit",
    2.0,
    DEGREES,
    "degrees Celsius",
    "So far below the limit the model rests until the processor is cooler.",
);

/// The way back.
pub const RELEASE: Key<f64> = Key::number(
    "governor.release_celsius",
    8.0,
    (0.5, 60.0),
    "degrees Celsius",
    "A step is undone so far below the temperature that asked for it. Four times the jitter of \
     the sensor or more keeps it from going back and forth.",
);

/// How long switches are remembered.
pub const HOLD: Key<Duration> = Key::seconds(
    "governor.hold_seconds",
    120.0,
    (1.0, 3600.0),
    "How long a throttled processor, a low voltage or a slow model is remembered after it was \
     last seen.",
);

/// Pressure on the processors.
pub const CPU_PRESSURE: Key<f64> = Key::number(
    "governor.cpu_pressure_pct",
    80.0,
    (1.0, 100.0),
    "percent",
    "Share of time in which work waits for a processor that asks for short answers. The kernel \
     tells it only with psi=1 on its command line.",
);

/// Waiting for memory.
pub const MEMORY_STALL: Key<f64> = Key::number(
    "governor.memory_stall_pct",
    10.0,
    (1.0, 100.0),
    "percent",
    "Share of time in which everything waits for memory that ends background work.",
);

/// Length of a short answer.
pub const SHORT_ANSWER: Key<u32> = Key::count(
    "governor.short_answer_tokens",
    96,
    (16, 1024),
    "tokens",
    "Longest answer while answers are short: some 13 s on the NPU.",
);

/// The section `vitals`.
pub const VITALS_KEYS: &[&dyn AnyKey] = &[&ROOT];

/// The section `governor`.
pub const KEYS: &[&dyn AnyKey] = &[
    &ENABLED,
    &WINDOW,
    &SHORT_BELOW,
    &CHEAP_BELOW,
    &NO_MODEL_BELOW,
    &RELEASE,
    &HOLD,
    &CPU_PRESSURE,
    &MEMORY_STALL,
    &SHORT_ANSWER,
];

/// Settings of the section `vitals`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vitals {
    /// Where the readings come from.
    pub root: PathBuf,
}

impl Vitals {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self { root: values.get(&ROOT) }
    }
}

/// Settings of the section `governor`. Temperatures are in degrees Celsius.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Governor {
    /// Whether it may do anything.
    pub enabled: bool,
    /// How far it looks back and ahead.
    pub window: Duration,
    /// Distance from the limit for short answers.
    pub short_below_c: f32,
    /// Distance from the limit for cheap work.
    pub cheap_below_c: f32,
    /// Distance from the limit for no model.
    pub no_model_below_c: f32,
    /// Distance between asking and undoing.
    pub release_c: f32,
    /// How long switches are remembered.
    pub hold: Duration,
    /// Pressure on the processors for short answers, in percent.
    pub cpu_pressure_percent: f32,
    /// Waiting for memory for cheap work, in percent.
    pub memory_stall_percent: f32,
    /// Most tokens of a short answer.
    pub short_answer_tokens: u32,
}

impl Governor {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        let number = |key: &Key<f64>| values.get(key) as f32;
        Self {
            enabled: values.get(&ENABLED),
            window: values.get(&WINDOW),
            short_below_c: number(&SHORT_BELOW),
            cheap_below_c: number(&CHEAP_BELOW),
            no_model_below_c: number(&NO_MODEL_BELOW),
            release_c: number(&RELEASE),
            hold: values.get(&HOLD),
            cpu_pressure_percent: number(&CPU_PRESSURE),
            memory_stall_percent: number(&MEMORY_STALL),
            short_answer_tokens: values.get(&SHORT_ANSWER),
        }
    }
}
