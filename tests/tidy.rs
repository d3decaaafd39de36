//! The house rules as tests. Each failure names the place, the rule and its reason; each rule is
//! also shown a sample that breaks it, so that a rule that sees nothing does not pass for order.
//!
//! The files under `tidy/`: `source` reads the tree and takes Rust apart, the others hold rules.

#![allow(clippy::unwrap_used, reason = "a tree that cannot be read is a failed test")]

#[path = "tidy/cargo.rs"]
mod cargo;
#[path = "tidy/doors.rs"]
mod doors;
#[path = "tidy/lexer.rs"]
mod lexer;
#[path = "tidy/matrix.rs"]
mod matrix;
#[path = "tidy/readme.rs"]
mod readme;
#[path = "tidy/size.rs"]
mod size;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;
