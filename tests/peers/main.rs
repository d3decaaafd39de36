//! Conversations of the real program with a real model behind real servers that nobody here
//! wrote. `bash tests/peers/run` installs and starts them and then these tests; without it they
//! fail and say so, and `test = false` in Cargo.toml keeps them out of every other run.
//!
//! The model is small and talks nonsense fluently, so nothing here judges what it says: words
//! are compared with what its server says it was asked and has generated.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests start programs, use blocking sockets and end by panicking"
)]

mod rig;
mod wire;

mod cashcode;
mod schema;
mod talk;
mod trouble;
mod voice;
