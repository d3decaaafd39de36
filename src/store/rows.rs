//! What goes into the database and comes out of it.

use std::sync::Arc;

#[cfg(doc)]
use super::KIND_END;

/// An event to be appended. Its `seq` is given at the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// What kind, see `session::log`.
    pub kind: &'static str,
    /// CBOR.
    pub body: Vec<u8>,
}

/// A stored event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its place in its session, from 1, without gaps.
    pub seq: u64,
    /// Its turn.
    pub turn: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// What kind, see `session::log`.
    pub kind: String,
    /// CBOR.
    pub body: Vec<u8>,
}

/// A stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its name.
    pub id: String,
    /// Beginning of its first message.
    pub title: String,
    /// Its profile.
    pub profile: String,
    /// When it began, in milliseconds since 1970.
    pub created_ms: i64,
    /// When something was last said, in milliseconds since 1970.
    pub updated_ms: i64,
}

/// A turn that has begun and not ended, with what it has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    /// Its session.
    pub session: String,
    /// Its number.
    pub turn: u64,
    /// All that was shown.
    pub shown: String,
}

/// One change. A job is one of these; it is committed whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Opens a turn with its first events; creates the session if it is not there.
    Begin {
        /// The session.
        session: Arc<str>,
        /// Title, if the session is new.
        title: String,
        /// Profile, if the session is new.
        profile: &'static str,
        /// The new turn.
        turn: u64,
        /// Its events.
        events: Vec<NewEvent>,
    },
    /// Text of an open turn that is about to be shown.
    Partial {
        /// The session.
        session: Arc<str>,
        /// The turn.
        turn: u64,
        /// The text.
        text: String,
    },
    /// Ends a turn: appends its last events (among them one of [`KIND_END`]) and drops its partial
    /// rows. Does nothing if the turn has ended already.
    Finish {
        /// The session.
        session: Arc<str>,
        /// The turn.
        turn: u64,
        /// Its events.
        events: Vec<NewEvent>,
    },
    /// Gives a session another title. Does nothing if there is no such session.
    Rename {
        /// The session.
        session: Arc<str>,
        /// The new title.
        title: String,
    },
    /// Puts a note in the place of the one of the same name.
    Note {
        /// The name, given by the part that wrote it.
        name: String,
        /// What it says, in that part's own form.
        body: Vec<u8>,
    },
    /// Takes a session away with all its events and whatever its turns had shown. The log is
    /// append-only otherwise: nothing else ever takes a row from it.
    Delete {
        /// The session.
        session: Arc<str>,
    },
}
