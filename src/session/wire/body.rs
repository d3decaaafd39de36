//! The body, as told to programs (pure). Readings keep the names they have in `snapshot::body`.

use serde::{Deserialize, Serialize};

use crate::snapshot::body::{Body, Counters, Level, Sample, VitalSigns};
use crate::snapshot::{Mood, Room, Snapshot};

/// The body's state. What is absent is `null`, never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BodyStatus {
    /// When it was read, in milliseconds since 1970; older than three pulses is stale.
    pub at_ms: i64,
    /// Time between two beats, in seconds.
    pub pulse_s: f64,
    /// The body in a sentence.
    pub describe: String,
    /// The readings.
    pub vitals: VitalSigns,
    /// Whether it is under stress.
    pub stressed: bool,
    /// Since when, in seconds, or how long the last episode lasted.
    pub stress_lasted_s: Option<u64>,
    /// Highest temperature of that episode, in degrees Celsius.
    pub stress_peak_temperature_c: Option<f32>,
    /// Highest memory use of that episode, in percent.
    pub stress_peak_ram_percent: Option<f32>,
    /// What the governor allows.
    pub level: Level,
    /// Why it allows less than everything.
    pub level_reason: Option<String>,
    /// Most tokens of an answer, where the governor bounds them.
    pub answer_tokens_max: Option<u32>,
    /// Whether it is the time of sleep.
    pub sleeping: bool,
    /// Since somebody said something, in seconds.
    pub quiet_s: u64,
    /// Counted since the start.
    pub counters: Counters,
    /// The mood, where there is one.
    pub mood: Option<Mood>,
    /// The room, where there are sensors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<Room>,
    /// The last beats, oldest first; in the feed those that were not told yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Sample>,
}

impl BodyStatus {
    /// The present, without the last beats.
    #[must_use]
    pub fn now(snapshot: &Snapshot) -> Self {
        let Body { at_ms, vitals, describe, stress, order, sleeping, counters, pulse, .. } =
            &snapshot.body;
        Self {
            at_ms: *at_ms,
            pulse_s: pulse.as_secs_f64(),
            describe: describe.clone(),
            vitals: vitals.clone(),
            stressed: stress.active,
            stress_lasted_s: stress.lasts.map(|lasts| lasts.as_secs()),
            stress_peak_temperature_c: stress.peak_temperature_c,
            stress_peak_ram_percent: stress.peak_ram_percent,
            level: order.level,
            level_reason: order.reason.as_deref().map(str::to_owned),
            answer_tokens_max: order.answer_tokens_max,
            sleeping: *sleeping,
            quiet_s: snapshot.quiet.as_secs(),
            counters: *counters,
            mood: snapshot.mood.clone(),
            room: snapshot.room,
            history: Vec::new(),
        }
    }

    /// The present and the last beats.
    #[must_use]
    pub fn with_history(snapshot: &Snapshot) -> Self {
        Self::with_beats_after(snapshot, 0)
    }

    /// The present and the beats after the first `pulses` since the start.
    #[must_use]
    pub fn with_beats_after(snapshot: &Snapshot, pulses: u64) -> Self {
        let body = &snapshot.body;
        let newer = body.counters.pulses.saturating_sub(pulses);
        let old = body.history.len().saturating_sub(usize::try_from(newer).unwrap_or(usize::MAX));
        let history = body.history.get(old..).unwrap_or_default().to_vec();
        Self { history, ..Self::now(snapshot) }
    }
}
