//! The mood, as told to programs (pure).

use serde::{Deserialize, Serialize};

use crate::snapshot::Mood;

/// The mood, as told to programs. Each channel is 0 to 1.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MoodStatus {
    /// Joy.
    pub joy: f32,
    /// Anger.
    pub anger: f32,
    /// Sorrow.
    pub sorrow: f32,
    /// Excitement.
    pub excitement: f32,
    /// Calm.
    pub calm: f32,
    /// The highest channel.
    pub dominant: String,
    /// The channel that stands out from its baseline; `none` if none does.
    pub active_channel: String,
    /// How far it stands out.
    pub active_intensity: f32,
}

impl From<&Mood> for MoodStatus {
    fn from(mood: &Mood) -> Self {
        Self {
            joy: mood.joy,
            anger: mood.anger,
            sorrow: mood.sorrow,
            excitement: mood.excitement,
            calm: mood.calm,
            dominant: mood.dominant.clone(),
            active_channel: mood.active_channel.clone(),
            active_intensity: mood.active_intensity,
        }
    }
}
