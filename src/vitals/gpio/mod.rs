//! Pins and sensors of a Raspberry Pi: a status light, a button, and what the room is like.
//!
//! `button` and `lamp` decide, `room` reads the sensors over any I2C bus, `panel` is the task
//! between them and the house, and `raspberry` is the only file that knows real pins. All of it is
//! compiled for aarch64 with the feature `gpio`, and for the tests, which bring their own bus.
//!
//! # Absences
//! - No judgement of what a reading means for the mood: that is configuration, applied by whoever
//!   is told.

pub mod button;
#[cfg(test)]
mod fake_bus;
pub mod lamp;
pub mod panel;
#[cfg(all(feature = "gpio", target_arch = "aarch64"))]
pub mod raspberry;
pub mod room;
pub mod tsl2591;
