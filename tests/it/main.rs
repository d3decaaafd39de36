//! Integration tests.
#![allow(
    clippy::disallowed_methods,
    reason = "tests spawn, sleep, start the program and write files where they like"
)]

#[cfg(test)]
mod config;
