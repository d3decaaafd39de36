//! How the companion feels: five channels that rest at their baselines, are nudged by what happens
//! and come back by half in every half-life (pure).
//!
//! The figures are the seed's, all of them configuration. One part of the house owns the mood and
//! nudges it; others read a copy. What a message sounds like is in [`sentiment`]; how an answer
//! should sound for it is in [`tone`].
//!
//! # Invariants
//! - A channel is within 0 and 1, whatever is added to it and however often.
//! - A nudge changes all its channels at once, so that nobody sees half of one.
//! - Coming back depends on the time that passed, not on how often somebody looked.
//!
//! # Absences
//! - A mood does not outlive the process: after some minutes nothing would be left of it anyway.
//! - The mood decides nothing; it colours words.

pub mod sentiment;
pub mod tone;

use std::time::Duration;

use self::sentiment::{Reading, Sentiment};
use crate::config::channels::{CHANNELS, Channels};
use crate::config::sections::mood::{Mood as Settings, Nudges};

/// A channel of the mood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Joy.
    Joy,
    /// Anger.
    Anger,
    /// Sorrow.
    Sorrow,
    /// Excitement.
    Excitement,
    /// Calm: where everything else comes back to.
    Calm,
}

/// The mood at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mood(Channels);

/// What is added to all channels at once.
pub type Nudge = Channels;

/// Where the mood rests and what moves it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// Where each channel rests.
    pub baselines: Channels,
    /// Time in which half of what is above or below the baseline goes away; more than 0.
    pub half_life: Duration,
    /// How far above its baseline a channel must be to be felt.
    pub felt_from: f64,
}

// === impl Channel ===

impl Channel {
    /// All, in the order in which they are told.
    pub const ALL: [Self; CHANNELS.len()] =
        [Self::Joy, Self::Anger, Self::Sorrow, Self::Excitement, Self::Calm];

    /// Its name in the configuration and outside.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        CHANNELS[self as usize]
    }
}

// === impl Tuning ===

impl Tuning {
    /// The configuration's figures, with beats that are `pulse` apart.
    #[must_use]
    pub fn new(settings: &Settings, pulse: Duration) -> Self {
        Self {
            baselines: settings.baselines,
            half_life: pulse.mul_f64(settings.half_life_pulses),
            felt_from: settings.felt_from,
        }
    }
}

/// What a message adds.
#[must_use]
pub fn nudge_of(reading: Reading, nudges: &Nudges) -> Nudge {
    let felt = match reading.sentiment {
        Sentiment::Positive => nudges.user_positive,
        Sentiment::Negative => nudges.user_negative,
        Sentiment::Neutral => nudges.user_neutral,
        Sentiment::Mixed => nudges.user_mixed,
    };
    if reading.urgent { sum(felt, nudges.user_urgent) } else { felt }
}

// === impl Mood ===

impl Mood {
    /// The mood at rest.
    #[must_use]
    pub fn at_rest(tuning: &Tuning) -> Self {
        Self(within(tuning.baselines))
    }

    /// The mood after a nudge.
    #[must_use]
    pub fn with(self, nudge: Nudge) -> Self {
        Self(within(sum(self.0, nudge)))
    }

    /// The mood after some time without nudges.
    #[must_use]
    pub fn after(self, passed: Duration, tuning: &Tuning) -> Self {
        let halvings = passed.as_secs_f64() / tuning.half_life.as_secs_f64().max(f64::MIN_POSITIVE);
        let left = 0.5_f64.powf(halvings);
        let mut levels = self.0;
        for (level, base) in levels.0.iter_mut().zip(tuning.baselines.0) {
            *level = base + (*level - base) * left;
        }
        Self(within(levels))
    }

    /// A channel, from 0 to 1.
    #[must_use]
    pub fn level(self, channel: Channel) -> f64 {
        self.0.0[channel as usize]
    }

    /// The highest channel; of equal ones the first.
    #[must_use]
    pub fn dominant(self) -> Channel {
        self.highest(&Channel::ALL, |channel| self.level(channel)).0
    }

    /// The channel that is felt: the one furthest above its baseline, if it is far enough, and how
    /// far. Calm is never felt; it is what is left when nothing else is.
    #[must_use]
    pub fn felt(self, tuning: &Tuning) -> Option<(Channel, f64)> {
        let moving = &Channel::ALL[..Channel::Calm as usize];
        let above = |channel: Channel| self.level(channel) - tuning.baselines.0[channel as usize];
        // What was just nudged by the threshold has lost a hair of it when it is looked at.
        const HAIR: f64 = 1e-3;
        Some(self.highest(moving, above)).filter(|(_, far)| *far >= tuning.felt_from - HAIR)
    }

    fn highest(self, of: &[Channel], how: impl Fn(Channel) -> f64) -> (Channel, f64) {
        let mut best = (Channel::Calm, f64::NEG_INFINITY);
        for channel in of {
            let height = how(*channel);
            if height > best.1 {
                best = (*channel, height);
            }
        }
        best
    }
}

fn sum(one: Channels, other: Channels) -> Channels {
    let mut total = one;
    for (level, more) in total.0.iter_mut().zip(other.0) {
        *level += more;
    }
    total
}

fn within(levels: Channels) -> Channels {
    Channels(levels.0.map(|level| level.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests;
