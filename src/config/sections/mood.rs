//! Section `mood`: where the mood rests and what moves it (pure). The figures are the seed's.

use crate::config::channels::Channels;
use crate::config::key::{AnyKey, Key};
use crate::config::values::Values;

/// Where the channels rest.
pub const BASELINES: Key<Channels> = Key::channels(
    "mood.baselines",
    "joy 0.2, excitement 0.2, calm 0.6",
    "Where each channel of the mood rests, from 0 to 1; those not named rest at 0.",
);

/// How fast they come back.
pub const HALF_LIFE: Key<f64> = Key::number(
    "mood.half_life_pulses",
    6.0,
    (0.1, 100_000.0),
    "pulses",
    "Heartbeats in which half of what was added to the mood is gone.",
);

/// What is felt.
pub const FELT_FROM: Key<f64> = Key::number(
    "mood.felt_from",
    0.15,
    (0.01, 1.0),
    "",
    "How far a channel must be above its baseline to be named as the mood.",
);

/// A glad message.
pub const USER_POSITIVE: Key<Channels> = Key::channels(
    "mood.user_positive",
    "joy 0.15, excitement 0.08",
    "What a glad message adds to the mood.",
)
.live();

/// An upset message.
pub const USER_NEGATIVE: Key<Channels> =
    Key::channels("mood.user_negative", "sorrow 0.15, calm -0.08", "What an upset message adds.")
        .live();

/// A message without feeling.
pub const USER_NEUTRAL: Key<Channels> =
    Key::channels("mood.user_neutral", "calm 0.02", "What a message without feeling adds.").live();

/// A message with both.
pub const USER_MIXED: Key<Channels> = Key::channels(
    "mood.user_mixed",
    "joy 0.07, sorrow 0.07",
    "What a message adds that is glad and upset.",
)
.live();

/// A message in a hurry.
pub const USER_URGENT: Key<Channels> = Key::channels(
    "mood.user_urgent",
    "excitement 0.12, calm -0.05",
    "What a message in a hurry adds, beside what else it is.",
)
.live();

/// An answer that came to its end.
pub const TURN_DONE: Key<Channels> =
    Key::channels("mood.turn_done", "joy 0.02", "What an answer adds that came to its end.").live();

/// An answer that failed.
pub const TURN_FAILED: Key<Channels> = Key::channels(
    "mood.turn_failed",
    "anger 0.04, sorrow 0.06, calm -0.04",
    "What an answer adds that failed.",
)
.live();

/// Stress of the body.
pub const VITALS_STRESS: Key<Channels> = Key::channels(
    "mood.vitals_stress",
    "anger 0.12, sorrow 0.06, excitement -0.1",
    "What each heartbeat under stress adds.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[
    &BASELINES,
    &HALF_LIFE,
    &FELT_FROM,
    &USER_POSITIVE,
    &USER_NEGATIVE,
    &USER_NEUTRAL,
    &USER_MIXED,
    &USER_URGENT,
    &TURN_DONE,
    &TURN_FAILED,
    &VITALS_STRESS,
];

/// Settings of the section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mood {
    /// Where each channel rests.
    pub baselines: Channels,
    /// Heartbeats in which half of what was added is gone; at least 0.1.
    pub half_life_pulses: f64,
    /// How far above its baseline a channel must be to be felt.
    pub felt_from: f64,
    /// What each happening adds.
    pub nudges: Nudges,
}

/// What each happening adds to all channels at once.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Nudges {
    /// A glad message.
    pub user_positive: Channels,
    /// An upset message.
    pub user_negative: Channels,
    /// A message without feeling.
    pub user_neutral: Channels,
    /// A message with both.
    pub user_mixed: Channels,
    /// A message in a hurry, in addition.
    pub user_urgent: Channels,
    /// An answer that came to its end.
    pub turn_done: Channels,
    /// An answer that failed.
    pub turn_failed: Channels,
    /// A beat under stress.
    pub vitals_stress: Channels,
}

impl Mood {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            baselines: values.get(&BASELINES),
            half_life_pulses: values.get(&HALF_LIFE),
            felt_from: values.get(&FELT_FROM),
            nudges: Nudges {
                user_positive: values.get(&USER_POSITIVE),
                user_negative: values.get(&USER_NEGATIVE),
                user_neutral: values.get(&USER_NEUTRAL),
                user_mixed: values.get(&USER_MIXED),
                user_urgent: values.get(&USER_URGENT),
                turn_done: values.get(&TURN_DONE),
                turn_failed: values.get(&TURN_FAILED),
                vitals_stress: values.get(&VITALS_STRESS),
            },
        }
    }
}
