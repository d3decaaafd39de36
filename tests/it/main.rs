//! Integration tests.

#[cfg(test)]
mod config;
