//! The centre: inference that survives its servers.

pub mod backend;
pub mod breaker;
pub mod fault;
pub mod gate;
pub mod lease;
