//! Verbs.
mod clean;
mod markdown;
