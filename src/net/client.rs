//! Outgoing connections.
