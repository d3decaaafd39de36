//! What is particular to the Hailo-10H: whether one is there ([`device`]), which models its server
//! offers and how fast they are ([`model`]), and, behind the feature `sim`, simulators of the two
//! model servers ([`sim`]) for tests and for people without the hardware.
//!
//! Nothing here talks to the device itself, and nothing here is asynchronous.

pub mod device;
pub mod model;
#[cfg(feature = "sim")]
pub mod sim;
