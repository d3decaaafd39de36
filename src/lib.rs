//! crayfish: a resident companion for a Raspberry Pi 5 with a Hailo-10H NPU.
//!
//! The modules below stand in reading order. Calls go downwards only (`tests/tidy.rs` holds the
//! matrix): edges (`http`, `connector`) talk to `agent`, the agent to `session`, `soul` and
//! `provider`, and everything rests on a few doors to the outside: `net`, `store`, `clock`.
//!
//! # Invariants
//! - Only `daemon` constructs and connects; only its supervisor spawns tasks.
//! - `net` alone opens outgoing connections, `store` alone opens the database.
//! - `provider` knows messages, never persons: it imports no agent, session or soul.
//! - What a person was shown is in the database first, or the turn says that it is not.
//! - Every bound is in `limits`.
//!
//! # Absences
//! - No file but `cli` prints to stdout; only `process` starts children.
//! - No global state: what a part needs is handed to it when it is built.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests spawn, sleep and write where they like; tidy bans what they must not do"
    )
)]

#[cfg(panic = "abort")]
compile_error!("the supervisor turns a panic into an outcome; build with panic = \"unwind\"");

pub mod agent;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connector;
pub mod daemon;
pub mod event;
pub mod http;
pub mod limits;
pub mod model;
pub mod mood;
pub mod net;
pub mod process;
pub mod provider;
pub mod session;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod snapshot;
pub mod soul;
pub mod store;
pub mod vitals;
