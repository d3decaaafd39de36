//! What a request says, read strictly (pure).
//!
//! A field that is not known, given twice or of another type is refused by name: a client that
//! misspells `session` must not end up in the main conversation without knowing.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use crate::limits;
use crate::session::wire::is_chat_id;

/// More members than any body of ours has: those beyond it are only checked to be JSON, so that
/// looking for doubles stays cheap.
const MEMBERS_MAX: usize = 64;

/// Longest name that is repeated to a client that used it.
const NAME_TOLD_MAX: usize = 64;

/// Body of `POST /chat`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ChatBody {
    /// What the person says.
    pub(super) message: String,
    /// The conversation.
    pub(super) session: Option<String>,
    /// A backend by name.
    pub(super) backend: Option<String>,
    /// Words as they come.
    pub(super) stream: bool,
    /// The client's own name for the message.
    pub(super) id: Option<String>,
}

/// Query of `GET /history`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HistoryQuery {
    pub(super) lines: LinesQuery,
    pub(super) session: Option<String>,
}

/// Which lines of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinesQuery {
    /// How many at most.
    pub(super) limit: usize,
    /// Of the turns before this one; absent means the newest.
    pub(super) before: Option<u64>,
}

/// Why a request was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadRequest {
    #[error("Content-Type must be application/json")]
    NotJsonType,
    #[error("the body has more than {} bytes", limits::BODY_BYTES_MAX)]
    TooLong,
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("the body did not arrive whole")]
    Broken,
    #[error("the body is not UTF-8 at byte {0}")]
    NotUtf8(usize),
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("the body must be a JSON object")]
    NotObject,
    #[error("the field {0:?} is missing")]
    Missing(&'static str),
    #[error("the field {0:?} is given twice")]
    Twice(String),
    #[error("there is no field {0:?}")]
    UnknownField(String),
    #[error("the field {0:?} must be {1}")]
    WrongType(&'static str, &'static str),
    #[error("there is no parameter {0:?}")]
    UnknownParameter(String),
    #[error("the parameter {0:?} must be {1}")]
    WrongParameter(&'static str, &'static str),
}

impl BadRequest {
    /// What to do about it.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::UnknownParameter(_) | Self::WrongParameter(..) => {
                "GET /history takes limit, before and session"
            }
            Self::TooLong => "shorten the message",
            Self::TooSlow | Self::Broken => "send the whole body at once",
            _ => r#"send {"message": "…"} as application/json in UTF-8"#,
        }
    }
}

/// Members of a JSON object in their order, doubles included.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                    if members.len() > MEMBERS_MAX {
                        // One of these is unknown or doubled, and that is what will be said.
                        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

fn members(body: &[u8]) -> Result<Vec<(String, Value)>, BadRequest> {
    let text = std::str::from_utf8(body).map_err(|e| BadRequest::NotUtf8(e.valid_up_to()))?;
    let Members(members) = serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => BadRequest::NotObject,
        _ => BadRequest::NotJson(error.to_string()),
    })?;
    for (index, (name, _)) in members.iter().enumerate() {
        if members.iter().take(index).any(|(earlier, _)| earlier == name) {
            return Err(BadRequest::Twice(told(name)));
        }
    }
    Ok(members)
}

fn told(name: &str) -> String {
    name.chars().take(NAME_TOLD_MAX).collect()
}

fn string(name: &'static str, value: Value) -> Result<Option<String>, BadRequest> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(BadRequest::WrongType(name, "a string")),
    }
}

fn message_id(value: Value) -> Result<Option<String>, BadRequest> {
    let id = string("id", value)?;
    let wrong = BadRequest::WrongType("id", "1 to 64 letters, digits, '_', ':' or '-'");
    if id.as_deref().is_none_or(is_chat_id) { Ok(id) } else { Err(wrong) }
}

fn boolean(name: &'static str, value: &Value) -> Result<bool, BadRequest> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(set) => Ok(*set),
        _ => Err(BadRequest::WrongType(name, "true or false")),
    }
}

impl ChatBody {
    /// Reads the body of `POST /chat`.
    pub(super) fn parse(body: &[u8]) -> Result<Self, BadRequest> {
        let mut chat = Self::default();
        let mut message = None;
        for (name, value) in members(body)? {
            match name.as_str() {
                "message" => {
                    let Value::String(text) = value else {
                        return Err(BadRequest::WrongType("message", "a string"));
                    };
                    message = Some(text);
                }
                // The seed's clients send it to be answered at night. A person is answered at any
                // hour here, so whatever it says, nothing more is done.
                "emergency" => drop(boolean("emergency", &value)?),
                "session" => chat.session = string("session", value)?,
                "backend" => chat.backend = string("backend", value)?,
                "stream" => chat.stream = boolean("stream", &value)?,
                "id" => chat.id = message_id(value)?,
                _ => return Err(BadRequest::UnknownField(told(&name))),
            }
        }
        chat.message = message.ok_or(BadRequest::Missing("message"))?;
        Ok(chat)
    }
}

/// Reads the body of `POST /cancel`: the session, if one is named. No body means none.
pub(super) fn cancel_session(body: &[u8]) -> Result<Option<String>, BadRequest> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let mut session = None;
    for (name, value) in members(body)? {
        match name.as_str() {
            "session" => session = string("session", value)?,
            _ => return Err(BadRequest::UnknownField(told(&name))),
        }
    }
    Ok(session)
}

/// Reads the body of `PATCH /sessions/ID`: the new title.
pub(super) fn title(body: &[u8]) -> Result<String, BadRequest> {
    let mut title = None;
    for (name, value) in members(body)? {
        match name.as_str() {
            "title" => title = string("title", value)?,
            _ => return Err(BadRequest::UnknownField(told(&name))),
        }
    }
    title.ok_or(BadRequest::Missing("title"))
}

/// Reads the query of `GET /sessions/ID/messages`: which lines.
pub(super) fn lines(query: Option<&str>) -> Result<LinesQuery, BadRequest> {
    let mut lines = LinesQuery { limit: limits::HISTORY_LINES_MAX, before: None };
    for (name, value) in pairs(query) {
        if !lines.set(name, value)? {
            return Err(BadRequest::UnknownParameter(told(name)));
        }
    }
    Ok(lines)
}

/// The parameters of a query, as they are written.
fn pairs(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

impl LinesQuery {
    /// Takes one parameter; false if it is none of these.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, BadRequest> {
        match name {
            "limit" => self.limit = limit(value)?,
            "before" => {
                let wrong = BadRequest::WrongParameter("before", "the number of a turn");
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                // Digits that do not fit are a turn beyond every turn.
                let turn = digits.then(|| value.parse().unwrap_or(u64::MAX));
                self.before = Some(turn.ok_or(wrong)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl HistoryQuery {
    /// Reads the query of `GET /history`.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, BadRequest> {
        let lines = LinesQuery { limit: limits::HISTORY_LINES_DEFAULT, before: None };
        let mut parsed = Self { lines, session: None };
        for (name, value) in pairs(query) {
            if name == "session" {
                let wrong = BadRequest::WrongParameter("session", "text in UTF-8");
                parsed.session = Some(unescape(value).ok_or(wrong)?);
            } else if !parsed.lines.set(name, value)? {
                return Err(BadRequest::UnknownParameter(told(name)));
            }
        }
        Ok(parsed)
    }
}

/// A number of lines; one beyond the bounds is moved to them, as the seed does.
fn limit(value: &str) -> Result<usize, BadRequest> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadRequest::WrongParameter("limit", "a whole number"));
    }
    if value.starts_with('-') {
        return Ok(1);
    }
    // Digits that do not fit are a number beyond every bound.
    Ok(value.parse().unwrap_or(usize::MAX).clamp(1, limits::HISTORY_LINES_MAX))
}

/// Undoes `%XX`; `None` if that is malformed or not UTF-8.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Whether a `Content-Type` is JSON. Browsers cannot send it across origins without asking first.
pub(super) fn is_json(content_type: Option<&[u8]>) -> bool {
    let kind = content_type.unwrap_or_default().split(|&byte| byte == b';').next();
    kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/json"))
}

/// Whether an `Accept` asks for lines as they come.
pub(super) fn wants_lines(accept: &str) -> bool {
    accept.split(',').any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/x-ndjson")
    })
}

#[cfg(test)]
mod tests;
