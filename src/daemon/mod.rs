//! Process life.
pub mod beat;
pub mod exit;
pub mod log;
pub mod paths;
pub mod signals;
pub mod supervisor;
pub mod systemd;
