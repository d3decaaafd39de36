//! Integration tests.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests start the program, write files and end by panicking"
)]

#[cfg(test)]
mod config;
#[cfg(all(test, feature = "sim"))]
mod fuzz_corpus;
#[cfg(all(test, feature = "sim"))]
mod sim;
