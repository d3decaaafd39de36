//! Simulators of the two model servers, for tests and for people without the hardware.
//!
//! Both speak raw TCP on plain threads: where a chunk ends, whether a socket ends in FIN or RST, a
//! missing last chunk and the moment the headers leave are what is under test, and a web framework
//! would decide these itself. This module holds what both share:
//!
//! - [`server`]: the listener, its connections, its crash and its restart
//! - [`wire`]: one connection, read and written to the byte
//! - [`clock`]: pace; one simulated second may be a real one, a shorter one or none
//! - [`log`], [`presence`]: what happened, and who was inside at the same time
//! - [`scenario`], [`tokens`], [`voice`]: what is said, and what goes wrong when
//! - [`forbidden`]: the fields no client of ours may ever send
//! - [`hailo`]: hailo-ollama itself
//! - [`control`]: the second listener through which a test asks and breaks things

pub mod clock;
pub mod control;
pub mod forbidden;
pub mod hailo;
pub mod log;
pub mod ollama;
pub mod presence;
pub mod scenario;
pub mod server;
pub mod tokens;
pub mod voice;
pub mod wire;
