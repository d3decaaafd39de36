//! Integration tests.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests start the program, write files and end by panicking"
)]

#[cfg(test)]
mod client;
#[cfg(test)]
mod config;
#[cfg(test)]
mod daemon;
#[cfg(test)]
mod deploy;
#[cfg(all(test, feature = "sim"))]
mod fuzz_corpus;
#[cfg(test)]
mod process;
#[cfg(all(test, feature = "sim"))]
mod sim;
#[cfg(test)]
mod systemd;
#[cfg(test)]
mod wire;
