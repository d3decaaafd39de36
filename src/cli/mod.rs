//! Verbs.

pub mod check;
