//! What can go wrong with a model server, and what the provider does about it (pure).
//!
//! The classes and actions are the fault table of the provider specification, section 5A.7.

use std::time::Duration;

/// Where in a request something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Opening the connection.
    Connect,
    /// After sending, before the response head.
    Head,
    /// After the head, before the first token.
    FirstToken,
    /// Between tokens, or before the end of the stream.
    Stream,
}

/// A fault's class. Each has one row in the tests below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing listens, or the connection is reset while it opens.
    Down,
    /// The connection ended before the head: the server probably died.
    Crashed,
    /// No head in time: the server hangs, or somebody else holds it.
    Wedged,
    /// The NPU is held by another process.
    DeviceBusy,
    /// The NPU or its runtime failed.
    DeviceFault,
    /// The server believes in a model that never loaded.
    Poisoned,
    /// The prompt was too long for the server's own ten-second limit.
    PrefillTimeout,
    /// The stream ended early.
    Truncated,
    /// The server does not have the model.
    ModelMissing,
    /// The server refused what we sent: a mistake on our side.
    OurBug,
    /// The server's queue is full.
    Busy,
    /// The server reported an error of its own.
    ServerError,
    /// The answer was complete and empty.
    EmptyAnswer,
    /// The answer loops or is garbage.
    BadOutput,
    /// The model thought for so long that no answer was left.
    ThinkOverrun,
    /// Credentials were refused (openai).
    Unauthorised,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{class:?} at {phase:?}: {detail}")]
pub struct Fault {
    /// What kind.
    pub class: Class,
    /// When.
    pub phase: Phase,
    /// For the log and the status page; never a secret.
    pub detail: String,
    /// The server's own wish, from `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Fault {
    /// A fault without a retry hint.
    #[must_use]
    pub fn new(class: Class, phase: Phase, detail: impl Into<String>) -> Self {
        Self { class, phase, detail: detail.into(), retry_after: None }
    }
}
