//! One turn: a person's message and everything done to answer it.
//!
//! Doors (`http`, `connector`) hold an `Arc<dyn Converse>` and know nothing else of the house.

mod again;
pub mod audience;
mod door;
#[cfg(test)]
pub(crate) mod fake;
pub mod feelings;
pub mod frames;
pub mod service;
pub mod visit;
pub mod words;

mod turn;
mod volatile;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use self::audience::{Audience, TurnEvents};
use crate::session::log::Line;
use crate::session::wire::SessionInfo;

/// A message on its way in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Submission {
    /// The session; absent means the person's main conversation.
    pub session: Option<String>,
    /// What the person typed. Any UTF-8; checked and sanitised by the agent.
    pub text: String,
    /// A backend by name; absent means the configured order.
    pub backend: Option<String>,
    /// Tokens the answer may take; absent means the configured bound. Only ever lowers it.
    pub answer_tokens_max: Option<u32>,
    /// The client's own name for the message: one that came before under it is not asked again.
    pub id: Option<String>,
    /// The seat of whoever sends it, if it has one: it is not told its own words again.
    pub seat: Option<u64>,
}

/// A submission that was taken on: it will end in exactly one terminal `TurnEvent`.
#[derive(Debug)]
pub struct Turn {
    /// The session it belongs to.
    pub session: String,
    /// The turn's number within its session, from 1.
    pub turn: u64,
    /// What happens, ending with `Done`, `Failed` or `Cancelled`. Dropping it does not cancel the
    /// turn: its answer goes on into the log. Whoever follows the session need not read it.
    pub events: TurnEvents,
    /// True if the message had come before, under the same id.
    pub again: bool,
}

/// What happens in a turn, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// The person has to wait: for the slot, a model to load, or prefill.
    Waiting {
        /// About how long until the first word, in seconds.
        about_s: u32,
    },
    /// Words of the answer, as decoded.
    Delta(String),
    /// The answer is complete.
    Done(Answer),
    /// It failed; what was shown stands.
    Failed {
        /// A sentence for the person.
        words: String,
        /// A stable word for programs: `offline`, `overloaded`, `too_long`, `internal`, ...
        code: &'static str,
    },
    /// The person stopped it; what was shown stands.
    Cancelled,
}

impl TurnEvent {
    /// Whether this is the turn's last event.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed { .. } | Self::Cancelled)
    }
}

/// A finished answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// All that was shown.
    pub text: String,
    /// Which backend spoke; `offline` when none did and rules answered.
    pub backend: String,
    /// The model's name.
    pub model: String,
    /// True if the answer was cut at its token bound.
    pub cut: bool,
    /// True if the message was too long for the model and its middle was left out.
    pub clipped: bool,
    /// Tokens decoded, where known.
    pub tokens: Option<u32>,
    /// From acceptance to the first word, in milliseconds.
    pub first_word_ms: u64,
    /// From acceptance to the end, in milliseconds.
    pub elapsed_ms: u64,
}

/// Why a submission was not taken on. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nothing but white space.
    #[error("the message is empty")]
    Empty,
    /// Longer than `limits::MESSAGE_BYTES_MAX`.
    #[error("the message has {bytes} bytes; at most {max} are taken")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The session's name is not 1 to 64 of `[A-Za-z0-9_:-]`.
    #[error("not a session name: use 1 to 64 letters, digits, '_', ':' or '-'")]
    BadSession,
    /// No backend of that name is configured.
    #[error("there is no backend {0:?}")]
    NoSuchBackend(String),
    /// Too many turns wait already.
    #[error("too many messages are waiting; try again in a moment")]
    Overloaded,
    /// The daemon is going down.
    #[error("shutting down")]
    Stopping,
    /// The message could not be stored, so it was not taken on.
    #[error("the message could not be stored: {0}")]
    NotStored(String),
    /// There is no session of that name.
    #[error("there is no such session")]
    NoSuchSession,
    /// The session has a turn that runs or waits; cancel it first.
    #[error("an answer runs in this session; stop it first")]
    Running,
    /// Not a title.
    #[error("a title has 1 to {max} characters")]
    BadTitle {
        /// The bound.
        max: usize,
    },
}

/// What the doors may ask of the agent.
pub trait Converse: Send + Sync {
    /// Takes a message on. The message is stored when this resolves. One whose id came before is
    /// not asked again: the turn is the one it opened then.
    fn submit(&self, submission: Submission) -> BoxFuture<'_, Result<Turn, Refused>>;

    /// Stops the running turn of a session and those waiting behind it. True if there was one.
    fn cancel(&self, session: Option<&str>) -> bool;

    /// The last `limit` lines of a session, oldest first.
    fn history(
        &self,
        session: Option<&str>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Line>, Refused>>;

    /// At most `limit` lines of a session's turns before turn `before`, oldest first, but whole
    /// turns and one at least; empty at the beginning.
    fn earlier<'a>(
        &'a self,
        session: Option<&'a str>,
        before: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Line>, Refused>>;

    /// Where readers of sessions sit.
    fn audience(&self) -> &Arc<Audience>;

    /// The sessions, the most recently used first.
    fn sessions(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Refused>>;

    /// Gives a session another title, and tells its followers.
    fn rename<'a>(
        &'a self,
        session: &'a str,
        title: &'a str,
    ) -> BoxFuture<'a, Result<SessionInfo, Refused>>;

    /// Takes a session away, from memory and from the log, and tells its followers.
    fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), Refused>>;
}

#[cfg(test)]
mod tests;
