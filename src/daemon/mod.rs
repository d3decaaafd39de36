//! Process life.
pub mod exit;
pub mod signals;
pub mod supervisor;
