//! The mood and the room, as told to programs (pure).

use serde::{Deserialize, Serialize};

use crate::snapshot::{Mood, Room};

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

/// The room, as told to programs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RoomStatus {
    /// Temperature of the air, in degrees Celsius.
    pub temperature_c: Option<f32>,
    /// Relative humidity, in percent.
    pub humidity_percent: Option<f32>,
    /// Pressure of the air, in hectopascal.
    pub pressure_hpa: Option<f32>,
    /// Resistance of the gas sensor, in ohm.
    pub gas_ohm: Option<u32>,
    /// Light, in lux.
    pub lux: Option<f32>,
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

impl From<&Room> for RoomStatus {
    fn from(room: &Room) -> Self {
        Self {
            temperature_c: room.temperature_c,
            humidity_percent: room.humidity_percent,
            pressure_hpa: room.pressure_hpa,
            gas_ohm: room.gas_ohm,
            lux: room.lux,
        }
    }
}
