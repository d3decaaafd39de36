//! The frames a conversation travels in, between a client and a door (pure).
//!
//! One JSON object a frame: a line on the terminal socket and in a streamed HTTP answer. The names
//! are a superset of CashCode's WebSocket protocol, so that its client understands what it knows.
//!
//! # Invariants
//! - A turn ends in exactly one of `done`, `error` (with its `turn`) and `cancelled`.
//! - A field is absent rather than null or invented, except where the seed always sends it.
//! - Fields are only ever added; `tests/golden/frames.txt` holds their names.
//!
//! # Absences
//! - No I/O, and no turn: `agent::frames` turns what happens in one into these frames.

mod client;
mod felt;
mod metadata;

use serde::{Deserialize, Serialize};

pub use self::client::{BadFrame, ClientFrame, is_chat_id};
pub use self::felt::{MoodStatus, RoomStatus};
pub use self::metadata::{Llm, Metadata};
use crate::snapshot::Snapshot;

/// Version of the frames, told in `ready`. It rises when a field changes its meaning.
pub const VERSION: u32 = 1;

/// What a door may send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ServerFrame {
    /// First frame of a connection.
    Ready {
        /// `VERSION`.
        v: u32,
        /// Names the connection in the log.
        client_id: String,
        /// The agent's name.
        designation: String,
        /// A conversation of the connection's own, where a door gives one: nothing of it exists
        /// until something is said in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat_id: Option<String>,
        /// Names the files of the page that the daemon serves: a page made of others is old.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        assets: Option<String>,
    },
    /// A message that came with an id was taken on. Sent before anything else of its turn.
    Taken {
        /// The conversation.
        chat_id: String,
        /// The turn that the message opened.
        turn: u64,
        /// The message's id.
        id: String,
        /// True if it was taken on before, when it was sent for the first time. What is told of
        /// the turn from here on is what a client that just came would be told.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// The connection's conversation is now this one.
    Attached {
        /// Its name.
        chat_id: String,
    },
    /// A turn that is not finished, as it is now. Sent after `attached`, one for each; what is
    /// told of the turn from then on continues `text`.
    Snapshot {
        /// The conversation.
        chat_id: String,
        /// The turn.
        turn: u64,
        /// What the person said.
        content: String,
        /// The id that its client gave the message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// What was shown so far.
        text: String,
        /// Seconds until the first word, while there is none and a guess is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        about_s: Option<u32>,
    },
    /// Somebody else said something in a conversation that this connection follows.
    User {
        /// The conversation.
        chat_id: String,
        /// The turn it opened.
        turn: u64,
        /// What was said.
        content: String,
        /// The id that its client gave the message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// A conversation has a title: after its first message, and when somebody gave it another.
    SessionUpdated(SessionInfo),
    /// Somebody took a conversation away.
    SessionDeleted {
        /// The conversation.
        chat_id: String,
    },
    /// Answers `sessions`.
    Sessions {
        /// The most recently used first.
        sessions: Vec<SessionInfo>,
    },
    /// The person has to wait.
    Waiting {
        /// The conversation.
        chat_id: String,
        /// The turn.
        turn: u64,
        /// Until the first word, in seconds.
        about_s: u32,
    },
    /// Words of the answer.
    Delta {
        /// The conversation.
        chat_id: String,
        /// The words.
        text: String,
        /// One number for the whole turn: the turn's.
        stream_id: u64,
    },
    /// No more words come. Sent before `done`.
    StreamEnd {
        /// The conversation.
        chat_id: String,
        /// The turn's number.
        stream_id: u64,
    },
    /// The answer is complete.
    Done(Done),
    /// Something failed: a turn if `turn` is there, otherwise the frame that was sent.
    Error {
        /// A sentence for the person.
        detail: String,
        /// A stable word for programs.
        code: String,
        /// The conversation, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat_id: Option<String>,
        /// The turn that failed, where one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    },
    /// The person stopped the turn.
    Cancelled {
        /// The conversation.
        chat_id: String,
        /// The turn.
        turn: u64,
    },
    /// Answers `cancel` and `stop`.
    StopAck {
        /// The conversation; absent is the main one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat_id: Option<String>,
        /// Whether there was something to stop.
        stopped: bool,
    },
    /// Answers `ping`.
    Pong,
    /// Answers `history`.
    History {
        /// The conversation; absent is the main one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat_id: Option<String>,
        /// Oldest first.
        turns: Vec<HistoryLine>,
    },
    /// Answers `status`.
    Status {
        /// The state.
        status: Box<Status>,
    },
}

/// A conversation in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its name.
    pub chat_id: String,
    /// Its title: the beginning of its first message, or what a person gave it.
    pub title: String,
    /// When something was last said in it, RFC 3339 in UTC.
    pub updated_at: String,
}

/// The end of a turn that went well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The conversation.
    pub chat_id: String,
    /// The turn.
    pub turn: u64,
    /// From acceptance to the end, in seconds.
    pub duration_sec: f64,
    /// The same in milliseconds.
    pub elapsed_ms: u64,
    /// From acceptance to the first word, in milliseconds.
    pub first_word_ms: u64,
    /// Which backend spoke; `offline` when none did.
    pub backend: String,
    /// The model's name.
    pub model: String,
    /// The answer was cut at its token bound.
    pub cut: bool,
    /// The middle of the message was left out.
    pub clipped: bool,
    /// Tokens decoded, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u32>,
}

/// One line of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HistoryLine {
    /// `user` or `agent`.
    pub role: String,
    /// What was said or shown.
    pub content: String,
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// Number of its turn.
    pub turn: u64,
    /// The id that its client gave the message; on the person's lines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How the turn ended, or `running`; on the agent's lines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Which backend answered, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// From acceptance to the end, in milliseconds, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
    /// The answer was cut at its token bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The middle of the message was left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clipped: bool,
    /// Why the turn failed, as a stable word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it failed, as the sentence that ends `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

/// The daemon's state, as told to programs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The agent's name.
    pub designation: String,
    /// The program's version.
    pub version: String,
    /// The daemon's process id.
    pub pid: u32,
    /// Since it is up, in seconds.
    pub uptime_s: u64,
    /// Whether a model can answer now.
    pub online: bool,
    /// Which backend would answer now; `offline` if none.
    pub active_backend: String,
    /// The last fault of the backend that should have answered.
    pub last_error: Option<String>,
    /// Backends in their order.
    pub backends: Vec<BackendStatus>,
    /// Turns running and waiting.
    pub turns: usize,
    /// False while the database cannot be written.
    pub store_ok: bool,
    /// What is degraded, in sentences.
    pub notices: Vec<String>,
    /// The mood, if somebody keeps one.
    #[serde(default)]
    pub mood: Option<MoodStatus>,
    /// The room, if there are sensors.
    #[serde(default)]
    pub room: Option<RoomStatus>,
}

/// One backend's state, as told to programs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// `primary`, `fallback` or `reserve`.
    pub slot: String,
    /// The configured model.
    pub model: String,
    /// `closed`, `open`, `half-open`.
    pub breaker: String,
    /// Until the next probe, in seconds, while it is open.
    pub retry_in_s: Option<f32>,
    /// The last fault.
    pub last_error: Option<String>,
    /// Measured decode rate, tokens a second.
    pub tokens_per_s: Option<f32>,
    /// Whether it decodes much slower than it used to.
    #[serde(default)]
    pub degraded: bool,
    /// From sending to the response head in the newest answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_ms: Option<f32>,
    /// From sending to the first token in the newest answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<f32>,
    /// Median of the newest gaps between tokens, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_p50_ms: Option<f32>,
    /// 99th percentile of the newest gaps between tokens, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_p99_ms: Option<f32>,
}

// === impl ServerFrame ===

impl ServerFrame {
    /// The frame as one line of JSON with its line end. Line ends inside texts are escaped.
    #[must_use]
    pub fn to_line(&self) -> String {
        let mut line = self.to_json();
        line.push('\n');
        line
    }

    /// The frame as JSON on one line, without a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // These types hold only strings, numbers and lists: writing them cannot fail, and a frame
        // that says so beats a panic if that ever changes.
        serde_json::to_string(self).unwrap_or_else(|_| {
            r#"{"event":"error","detail":"a frame could not be written","code":"internal"}"#.into()
        })
    }

    /// Whether this frame ends a turn.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Cancelled { .. } | Self::Error { turn: Some(_), .. })
    }
}

// === impl Status ===

impl From<&Snapshot> for Status {
    fn from(snapshot: &Snapshot) -> Self {
        let backends = snapshot.backends.iter().map(|backend| BackendStatus {
            name: backend.name.clone(),
            slot: backend.slot.to_owned(),
            model: backend.model.clone(),
            breaker: backend.breaker.to_owned(),
            retry_in_s: backend.retry_in_s,
            last_error: backend.last_error.clone(),
            tokens_per_s: backend.tokens_per_s,
            degraded: backend.degraded,
            head_ms: backend.head_ms,
            first_token_ms: backend.first_token_ms,
            gap_p50_ms: backend.gap_p50_ms,
            gap_p99_ms: backend.gap_p99_ms,
        });
        Self {
            designation: snapshot.designation.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: snapshot.pid,
            uptime_s: snapshot.uptime_s,
            online: snapshot.online,
            active_backend: snapshot.active_backend.clone(),
            last_error: snapshot.last_error.clone(),
            backends: backends.collect(),
            turns: snapshot.turns,
            store_ok: snapshot.store_ok,
            notices: snapshot.notices.clone(),
            mood: snapshot.mood.as_ref().map(MoodStatus::from),
            room: snapshot.room.as_ref().map(RoomStatus::from),
        }
    }
}

#[cfg(test)]
mod tests;
