//! What can go wrong with a model server, and what the provider does about it (pure).
//!
//! The classes and actions are the fault table of the provider specification, section 5A.7.

use std::time::Duration;

use super::breaker::Outcome;

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
    /// The prompt was too long for the server: for its ten-second limit or for its context.
    PrefillTimeout,
    /// The stream ended early.
    Truncated,
    /// The server does not have the model.
    ModelMissing,
    /// The server refused what we sent: a mistake on our side.
    OurBug,
    /// The server's queue is full.
    Busy,
    /// The machine has neither memory nor coolness to spare for the model (reserve).
    Strained,
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
    /// The model does not take a field that the request had.
    Unsupported(Field),
}

/// A field of a request that some models do not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `tools`: the model has no template for them, or its server cannot read its calls.
    Tools,
    /// `think`.
    Think,
}

impl Field {
    /// What the model does not do, for a person.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Think => "thinking",
        }
    }
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

    /// Whether the server may still be working on the request: it was left while it worked, or
    /// its connection ended and its device may not have. One that refused is free at once, and
    /// one that died is gone: whoever comes next must not wait for a load that never began.
    #[must_use]
    pub fn leaves_server_busy(&self) -> bool {
        match self.class {
            Class::Wedged
            | Class::PrefillTimeout
            | Class::Truncated
            | Class::BadOutput
            | Class::ThinkOverrun => true,
            Class::DeviceFault => self.phase != Phase::Head,
            Class::Down
            | Class::Crashed
            | Class::DeviceBusy
            | Class::Poisoned
            | Class::ModelMissing
            | Class::OurBug
            | Class::Busy
            | Class::Strained
            | Class::ServerError
            | Class::EmptyAnswer
            | Class::Unauthorised
            | Class::Unsupported(_) => false,
        }
    }
}

/// What the breaker learns from a fault, and what the job does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// For the breaker.
    pub breaker: Outcome,
    /// Whether the server must be told to release the model before anything else is sent: that
    /// heals one that recorded a model it failed to load.
    pub unload: bool,
    /// What the job does if nothing was shown yet.
    pub next: Next,
}

/// What a job does after a fault, if nothing was shown yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Once more on the same backend, fitted anew: its bounds may have shrunk.
    Again,
    /// Once more on the same backend with another seed.
    Reseeded,
    /// Once more on the same backend, after this pause or the one the server asked for.
    After(Duration),
    /// On to the next backend.
    NextBackend,
}

/// First pause when a server's queue is full; the specification allows 0.5 to 2 s.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Longest pause a server may ask for before the job goes to the next backend instead.
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The table of the specification, 5A.7. `retried` tells whether this job has had its one retry
/// on this backend.
///
/// `Wedged` trips the breaker at once although the table counts it once: a hung server must not
/// cost three people its timeout, and nothing may be sent while it still works on the last one.
#[must_use]
pub fn judge(fault: &Fault, retried: bool) -> Verdict {
    let (breaker, unload, next) = match fault.class {
        Class::Down | Class::Crashed | Class::Wedged => (Outcome::Trip, false, Next::NextBackend),
        Class::DeviceBusy => (Outcome::Trip, true, Next::NextBackend),
        Class::DeviceFault | Class::Poisoned => (Outcome::Failure, true, Next::Again),
        // The backend leaves the field out from now on.
        Class::PrefillTimeout | Class::Unsupported(_) => (Outcome::Abandoned, false, Next::Again),
        Class::Truncated | Class::ServerError => (Outcome::Failure, false, Next::NextBackend),
        Class::ModelMissing | Class::OurBug | Class::Unauthorised | Class::Strained => {
            (Outcome::Abandoned, false, Next::NextBackend)
        }
        Class::Busy => (Outcome::Abandoned, false, busy(fault.retry_after)),
        Class::EmptyAnswer | Class::BadOutput | Class::ThinkOverrun => {
            (Outcome::Abandoned, false, Next::Reseeded)
        }
    };
    let next = if retried { Next::NextBackend } else { next };
    Verdict { breaker, unload, next }
}

fn busy(retry_after: Option<Duration>) -> Next {
    match retry_after {
        Some(wish) if wish > BUSY_PAUSE_MAX => Next::NextBackend,
        Some(wish) => Next::After(wish.max(BUSY_PAUSE)),
        None => Next::After(BUSY_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(class: Class, retried: bool) -> Verdict {
        judge(&Fault::new(class, Phase::Head, "x"), retried)
    }

    #[test]
    fn every_class_has_its_row() {
        let again = Next::After(BUSY_PAUSE);
        let rows = [
            (Class::Down, Outcome::Trip, false, Next::NextBackend),
            (Class::Crashed, Outcome::Trip, false, Next::NextBackend),
            (Class::Wedged, Outcome::Trip, false, Next::NextBackend),
            (Class::DeviceBusy, Outcome::Trip, true, Next::NextBackend),
            (Class::DeviceFault, Outcome::Failure, true, Next::Again),
            (Class::Poisoned, Outcome::Failure, true, Next::Again),
            (Class::PrefillTimeout, Outcome::Abandoned, false, Next::Again),
            (Class::Truncated, Outcome::Failure, false, Next::NextBackend),
            (Class::ServerError, Outcome::Failure, false, Next::NextBackend),
            (Class::ModelMissing, Outcome::Abandoned, false, Next::NextBackend),
            (Class::OurBug, Outcome::Abandoned, false, Next::NextBackend),
            (Class::Unauthorised, Outcome::Abandoned, false, Next::NextBackend),
            (Class::Unsupported(Field::Tools), Outcome::Abandoned, false, Next::Again),
            (Class::Unsupported(Field::Think), Outcome::Abandoned, false, Next::Again),
            (Class::Strained, Outcome::Abandoned, false, Next::NextBackend),
            (Class::Busy, Outcome::Abandoned, false, again),
            (Class::EmptyAnswer, Outcome::Abandoned, false, Next::Reseeded),
            (Class::BadOutput, Outcome::Abandoned, false, Next::Reseeded),
            (Class::ThinkOverrun, Outcome::Abandoned, false, Next::Reseeded),
        ];
        for (class, breaker, unload, next) in rows {
            assert_eq!(verdict(class, false), Verdict { breaker, unload, next }, "{class:?}");
            assert_eq!(verdict(class, true).next, Next::NextBackend, "one retry: {class:?}");
        }
    }

    #[test]
    fn a_server_that_asks_for_too_long_a_pause_is_left_alone() {
        for (wish, next) in [
            (0, Next::After(BUSY_PAUSE)),
            (1, Next::After(Duration::from_secs(1))),
            (2, Next::After(Duration::from_secs(2))),
            (3, Next::NextBackend),
        ] {
            let mut fault = Fault::new(Class::Busy, Phase::Head, "503");
            fault.retry_after = Some(Duration::from_secs(wish));
            assert_eq!(judge(&fault, false).next, next, "{wish} s");
        }
    }
}
