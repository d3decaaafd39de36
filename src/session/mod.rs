//! Conversations.

pub mod wire;
