//! What clients send, and how it is read (pure).

use serde_json::{Map, Value};

use super::metadata::Metadata;
use crate::limits;

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
        /// Asks for the lines of later turns than this: what a client missed while it was away.
        after_turn: Option<u64>,
        /// Asks for so many of the last lines, 1 to `limits::HISTORY_LINES_MAX`.
        history: Option<usize>,
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
        /// Who is to answer, and with what.
        metadata: Metadata,
        /// The client's own name for the message, of the characters of a `chat_id`. It is answered
        /// by `taken`, and a message that is sent again under it is not asked again.
        id: Option<String>,
    },
    /// Asks for the last lines.
    History {
        /// Which conversation; absent means the connection's.
        chat_id: Option<String>,
        /// How many lines, 1 to `limits::HISTORY_LINES_MAX`.
        limit: usize,
        /// Asks for the whole turns before this one; absent means the newest lines.
        before: Option<u64>,
    },
    /// Asks for the conversations.
    Sessions,
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

// === impl ClientFrame ===

impl ClientFrame {
    /// Reads one frame. Fields that are not known are left alone: a newer client may send them.
    ///
    /// # Errors
    /// What is wrong with it, in the words CashCode's clients know where it has them.
    pub fn parse(frame: &[u8]) -> Result<Self, BadFrame> {
        let untyped = || BadFrame::plain("typed JSON envelope required");
        let value: Value = serde_json::from_slice(frame).map_err(|_| untyped())?;
        let fields = value.as_object().ok_or_else(untyped)?;
        let kind = fields.get("type").and_then(Value::as_str).ok_or_else(untyped)?;
        let chat_id = chat_id(fields)?;
        match kind {
            "ping" => Ok(Self::Ping),
            "new_chat" => Ok(Self::NewChat),
            "attach" => attach(fields, chat_id),
            "cancel" | "stop" => Ok(Self::Cancel { chat_id }),
            "message" => message(fields, chat_id),
            "history" => history(fields, chat_id),
            "sessions" => Ok(Self::Sessions),
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
            Self::Sessions => put("type", "sessions".into()),
            Self::Attach { chat_id, after_turn, history } => {
                put("type", "attach".into());
                put("chat_id", chat_id.as_str().into());
                put("after_turn", (*after_turn).into());
                put("history", (*history).into());
            }
            Self::Cancel { chat_id } => {
                put("type", "cancel".into());
                put("chat_id", chat_id.as_deref().into());
            }
            Self::History { chat_id, limit, before } => {
                put("type", "history".into());
                put("chat_id", chat_id.as_deref().into());
                put("limit", (*limit).into());
                put("before", (*before).into());
            }
            Self::Message { chat_id, content, metadata, id } => {
                put("type", "message".into());
                put("chat_id", chat_id.as_deref().into());
                put("content", content.as_str().into());
                put("metadata", metadata.to_json());
                put("id", id.as_deref().into());
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
    let metadata = Metadata::parse(fields.get("metadata")).map_err(|detail| bad(&detail))?;
    let id = match fields.get("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) if is_chat_id(id) => Some(id.clone()),
        Some(_) => return Err(bad("invalid id")),
    };
    Ok(ClientFrame::Message { chat_id, content, metadata, id })
}

fn attach(fields: &Map<String, Value>, chat_id: Option<String>) -> Result<ClientFrame, BadFrame> {
    let Some(chat_id) = chat_id else { return Err(BadFrame::plain("invalid chat_id")) };
    let after_turn = number(fields, "after_turn", Some(&chat_id))?;
    let history = number(fields, "history", Some(&chat_id))?.map(lines);
    Ok(ClientFrame::Attach { chat_id, after_turn, history })
}

/// A whole number that may be absent.
fn number(
    fields: &Map<String, Value>,
    name: &str,
    chat_id: Option<&String>,
) -> Result<Option<u64>, BadFrame> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| BadFrame {
            detail: format!("{name} must be a whole number"),
            chat_id: chat_id.cloned(),
        }),
    }
}

/// A number of lines; one beyond the bounds is moved to them, as the seed does.
fn lines(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX).clamp(1, limits::HISTORY_LINES_MAX)
}

fn history(fields: &Map<String, Value>, chat_id: Option<String>) -> Result<ClientFrame, BadFrame> {
    let limit = number(fields, "limit", chat_id.as_ref())?;
    let limit = limit.map_or(limits::HISTORY_LINES_DEFAULT, lines);
    let before = number(fields, "before", chat_id.as_ref())?;
    Ok(ClientFrame::History { chat_id, limit, before })
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
