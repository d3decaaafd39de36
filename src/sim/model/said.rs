//! Requests as a model server reads them.

use serde_json::Value;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sim) struct Said {
    /// `system`, `user`, `assistant`.
    pub(in crate::sim) role: String,
    /// The text.
    pub(in crate::sim) content: String,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Who {
    /// A person, with a question's number.
    Owner(u32),
    /// The world's background work.
    Background,
    /// The daemon's probe or warm-up.
    Probe,
}

/// A request for an answer, or for a model to be loaded or released.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Chat {
    /// The prompt; empty for loads and unloads.
    pub(in crate::sim) messages: Vec<Said>,
    /// Tokens of the answer.
    pub(in crate::sim) num_predict: u32,
    /// Seconds; 0 unloads.
    pub(in crate::sim) keep_alive: i64,
    /// Who asks.
    pub(in crate::sim) who: Who,
    /// As it came.
    pub(in crate::sim) body: Value,
}

impl Said {
    /// The budget's estimate of its tokens, by the specification's formula.
    pub(in crate::sim) fn estimate(&self) -> u32 {
        u32::try_from(self.content.len().div_ceil(3) + 8).unwrap_or(u32::MAX)
    }

    /// Its real tokens in this world: fewer than the estimate, as it should be.
    pub(in crate::sim) fn tokens(&self) -> u32 {
        u32::try_from(self.content.len() / 4 + 5).unwrap_or(u32::MAX)
    }
}

impl Chat {
    /// Reads a body; nothing if it is not one.
    pub(in crate::sim) fn read(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let messages: Vec<Said> = body
            .get("messages")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|one| Said { role: text(one, "role"), content: text(one, "content") })
            .collect();
        let num_predict = body.pointer("/options/num_predict").or_else(|| body.get("max_tokens"));
        let num_predict = num_predict.and_then(Value::as_u64);
        let system = messages.first().map(|first| first.content.as_str()).unwrap_or_default();
        let newest = messages.last().map(|last| last.content.as_str()).unwrap_or_default();
        let who = match system {
            "Reply OK" => Who::Probe,
            super::super::BACKGROUND_SYSTEM => Who::Background,
            _ => super::super::book::Facts::question_in(newest).map_or(Who::Probe, Who::Owner),
        };
        Some(Self {
            num_predict: num_predict.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            keep_alive: body.get("keep_alive").and_then(Value::as_i64).unwrap_or(-1),
            messages,
            who,
            body,
        })
    }

    /// Real tokens of the prompt.
    pub(in crate::sim) fn tokens(&self) -> u32 {
        self.messages.iter().map(Said::tokens).sum()
    }
}
