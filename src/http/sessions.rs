//! The routes of the conversations: listed, read, renamed, taken away. The fields are CashCode's.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::api::Service;
use super::reply::{self, Reply};
use super::request;
use crate::agent::Refused;
use crate::session::wire::{HistoryLine, SessionInfo};

impl Service {
    pub(super) async fn sessions(&self) -> Reply {
        match self.converse.sessions().await {
            Err(refused) => refused.into(),
            Ok(sessions) => {
                let sessions: Vec<_> = sessions.iter().map(told).collect();
                reply::json(StatusCode::OK, &json!({ "sessions": sessions }))
            }
        }
    }

    pub(super) async fn messages(&self, id: &str, query: Option<&str>) -> Reply {
        let query = match request::lines(query) {
            Ok(query) => query,
            Err(bad) => return bad.into(),
        };
        match self.lines(Some(id), query).await {
            Err(refused) => refused.into(),
            // A conversation begins with a line; before its first one there is none.
            Ok(lines) if lines.is_empty() && query.before.is_none() => {
                Refused::NoSuchSession.into()
            }
            Ok(lines) => {
                let messages: Vec<_> = lines.into_iter().map(message).collect();
                reply::json(StatusCode::OK, &json!({ "chat_id": id, "messages": messages }))
            }
        }
    }

    pub(super) async fn rename(&self, id: &str, body: &[u8]) -> Reply {
        let title = match request::title(body) {
            Ok(title) => title,
            Err(bad) => return bad.into(),
        };
        match self.converse.rename(id, &title).await {
            Err(refused) => refused.into(),
            Ok(session) => reply::json(StatusCode::OK, &told(&session)),
        }
    }

    pub(super) async fn delete(&self, id: &str) -> Reply {
        match self.converse.delete(id).await {
            Err(refused) => refused.into(),
            Ok(()) => reply::nothing(),
        }
    }
}

/// With its name under both words: ours, and that of the frames and of CashCode.
fn told(session: &SessionInfo) -> Value {
    json!({
        "id": session.chat_id,
        "chat_id": session.chat_id,
        "title": session.title,
        "updated_at": session.updated_at,
    })
}

/// CashCode's clients know the agent as `assistant`.
fn message(line: HistoryLine) -> Value {
    let role = if line.role == "user" { "user" } else { "assistant" };
    let mut message =
        json!({ "role": role, "content": line.content, "at": line.at, "turn": line.turn });
    if let (Some(outcome), Some(fields)) = (line.outcome, message.as_object_mut()) {
        fields.insert("outcome".to_owned(), outcome.into());
    }
    message
}
