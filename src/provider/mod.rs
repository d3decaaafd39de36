//! The centre: inference that survives its servers.

pub mod backend;
pub mod budget;
pub mod fault;
