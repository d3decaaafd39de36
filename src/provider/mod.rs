//! The centre: inference that survives its servers.

mod aliases;
pub mod backend;
mod door;
pub mod fault;
pub mod guard;
pub mod hailo;
pub mod learned;
mod ndjson;
pub mod ollama;
pub mod openai;
pub mod parse;
mod phases;
#[cfg(test)]
mod rig;
pub mod sanitise;
pub mod think;
