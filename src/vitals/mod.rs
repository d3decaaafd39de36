//! The body and what it stands in: here the pins and sensors of a Raspberry Pi.

#[cfg(any(test, all(feature = "gpio", target_arch = "aarch64")))]
pub mod gpio;
