//! The HTTP door: hyper's server with the bounds it does not have of its own.
//!
//! # Invariants
//! - The only importer of hyper's server.
//! - Every route passes `access` before anything of its body is read.
//! - Every answer of ours carries the headers of `reply`, every error is JSON.
//!
//! # Absences
//! - No TLS: it listens on loopback, and a LAN belongs behind a reverse proxy or a token.
//! - No CORS: no page but our own may read answers.

pub mod access;
mod api;
mod connection;
mod feed;
#[cfg(any(test, feature = "sim"))]
pub mod foreign;
mod metrics;
mod pages;
mod reply;
mod request;
mod router;
pub mod server;
mod sessions;
mod socket;
mod state;
