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

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits;
use crate::snapshot::Snapshot;

/// Version of the frames, told in `ready`. It rises when a field changes its meaning.
pub const VERSION: u32 = 1;

/// Longest session name, from CashCode's `chat_id` pattern.
const CHAT_ID_MAX: usize = 64;

/// What a client may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFrame {
    /// Are you there?
    Ping,
    /// Starts a conversation of its own and makes it the connection's.
    NewChat,
    /// Makes a conversation the connection's.
    Attach {
        /// Which.
        chat_id: String,
    },
    /// Stops the running turn (`cancel`, and `stop` with the same meaning).
    Cancel {
        /// Which conversation; absent means the connection's.
        chat_id: Option<String>,
    },
    /// A person's message.
    Message {
        /// Which conversation; absent means the connection's.
        chat_id: Option<String>,
        /// What the person typed.
        content: String,
        /// A backend by name, from `metadata.backend`.
        backend: Option<String>,
    },
    /// Asks for the last lines.
    History {
        /// Which conversation; absent means the connection's.
        chat_id: Option<String>,
        /// How many lines, 1 to `limits::HISTORY_LINES_MAX`.
        limit: usize,
    },
    /// Asks for the daemon's state.
    Status,
}

/// Why a frame was not understood, as the `detail` of an `error` frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct BadFrame {
    /// What is wrong.
    pub detail: String,
    /// The conversation it was meant for, where that could be read.
    pub chat_id: Option<String>,
}

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
    },
    /// The connection's conversation is now this one.
    Attached {
        /// Its name.
        chat_id: String,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// `user` or `agent`.
    pub role: String,
    /// What was said or shown.
    pub content: String,
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// Number of its turn.
    pub turn: u64,
    /// How the turn ended, or `running`; on the agent's lines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
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
}

// === impl ClientFrame ===

impl ClientFrame {
    /// Reads one frame. Fields that are not known are left alone: a newer client may send them.
    ///
    /// # Errors
    /// What is wrong with it, in the words CashCode's clients know where it has them.
    pub fn parse(frame: &[u8]) -> Result<Self, BadFrame> {
        let value: Value = serde_json::from_slice(frame)
            .map_err(|error| BadFrame::plain(format!("not JSON: {error}")))?;
        let Some(fields) = value.as_object() else {
            return Err(BadFrame::plain("typed JSON envelope required"));
        };
        let Some(kind) = fields.get("type").and_then(Value::as_str) else {
            return Err(BadFrame::plain("typed JSON envelope required"));
        };
        let chat_id = chat_id(fields)?;
        match kind {
            "ping" => Ok(Self::Ping),
            "new_chat" => Ok(Self::NewChat),
            "attach" => chat_id
                .map(|chat_id| Self::Attach { chat_id })
                .ok_or_else(|| BadFrame::plain("invalid chat_id")),
            "cancel" | "stop" => Ok(Self::Cancel { chat_id }),
            "message" => message(fields, chat_id),
            "history" => history(fields, chat_id),
            "status" => Ok(Self::Status),
            other => {
                let other: String = other.chars().take(CHAT_ID_MAX).collect();
                Err(BadFrame::plain(format!("unknown type: '{other}'")))
            }
        }
    }

    /// The frame as its client sends it, without a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| {
            if !value.is_null() {
                fields.insert(name.to_owned(), value);
            }
        };
        match self {
            Self::Ping => put("type", "ping".into()),
            Self::NewChat => put("type", "new_chat".into()),
            Self::Status => put("type", "status".into()),
            Self::Attach { chat_id } => {
                put("type", "attach".into());
                put("chat_id", chat_id.as_str().into());
            }
            Self::Cancel { chat_id } => {
                put("type", "cancel".into());
                put("chat_id", chat_id.as_deref().into());
            }
            Self::History { chat_id, limit } => {
                put("type", "history".into());
                put("chat_id", chat_id.as_deref().into());
                put("limit", (*limit).into());
            }
            Self::Message { chat_id, content, backend } => {
                put("type", "message".into());
                put("chat_id", chat_id.as_deref().into());
                put("content", content.as_str().into());
                if let Some(backend) = backend {
                    put("metadata", serde_json::json!({ "backend": backend }));
                }
            }
        }
        Value::Object(fields).to_string()
    }
}

fn chat_id(fields: &Map<String, Value>) -> Result<Option<String>, BadFrame> {
    match fields.get("chat_id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) if is_chat_id(id) => Ok(Some(id.clone())),
        Some(_) => Err(BadFrame::plain("invalid chat_id")),
    }
}

fn message(fields: &Map<String, Value>, chat_id: Option<String>) -> Result<ClientFrame, BadFrame> {
    let bad = |detail: &str| BadFrame { detail: detail.to_owned(), chat_id: chat_id.clone() };
    let content = match fields.get("content") {
        Some(Value::String(content)) if !content.trim().is_empty() => content.clone(),
        _ => return Err(bad("missing content")),
    };
    let backend = match fields.get("metadata") {
        None | Some(Value::Null) => None,
        Some(Value::Object(metadata)) => match metadata.get("backend") {
            None | Some(Value::Null) => None,
            Some(Value::String(backend)) => Some(backend.clone()),
            Some(_) => return Err(bad("metadata.backend must be a string")),
        },
        Some(_) => return Err(bad("metadata must be an object")),
    };
    Ok(ClientFrame::Message { chat_id, content, backend })
}

fn history(fields: &Map<String, Value>, chat_id: Option<String>) -> Result<ClientFrame, BadFrame> {
    let limit = match fields.get("limit") {
        None | Some(Value::Null) => limits::HISTORY_LINES_DEFAULT,
        Some(limit) => match limit.as_u64() {
            Some(limit) => {
                usize::try_from(limit).unwrap_or(usize::MAX).clamp(1, limits::HISTORY_LINES_MAX)
            }
            None => {
                let detail = "limit must be a whole number".to_owned();
                return Err(BadFrame { detail, chat_id });
            }
        },
    };
    Ok(ClientFrame::History { chat_id, limit })
}

/// Whether a text may name a conversation: 1 to 64 of `[A-Za-z0-9_:-]`.
#[must_use]
pub fn is_chat_id(text: &str) -> bool {
    (1..=CHAT_ID_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'-'))
}

// === impl BadFrame ===

impl BadFrame {
    fn plain(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), chat_id: None }
    }
}

// === impl ServerFrame ===

impl ServerFrame {
    /// The frame as one line of JSON with its line end. Line ends inside texts are escaped.
    #[must_use]
    pub fn to_line(&self) -> String {
        // These types hold only strings, numbers and lists: writing them cannot fail, and a frame
        // that says so beats a panic if that ever changes.
        let mut line = serde_json::to_string(self).unwrap_or_else(|_| {
            r#"{"event":"error","detail":"a frame could not be written","code":"internal"}"#.into()
        });
        line.push('\n');
        line
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
        }
    }
}

#[cfg(test)]
mod tests;
