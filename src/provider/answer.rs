//! One answer while it arrives: what the model said, and what of it the person may see.

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backend::{Done, DoneReason};
use super::engine::Engine;
use super::fault::{Class, Fault, Phase};
use super::think::ThinkMode;
use super::visible::Visible;
use super::{Completed, Progress, ToolCall};
use crate::limits;

/// One answer as it arrives.
pub(super) struct Answer {
    visible: Visible,
    raw: String,
    shown: String,
    first_token: Option<Instant>,
    tool_calls: Vec<ToolCall>,
}

impl Answer {
    /// An answer of at most `num_predict` tokens.
    pub(super) fn new(mode: ThinkMode, num_predict: u32) -> Self {
        Self {
            visible: Visible::new(mode, num_predict),
            raw: String::new(),
            shown: String::new(),
            first_token: None,
            tool_calls: Vec::new(),
        }
    }

    /// Whether the person has seen part of it.
    pub(super) fn was_shown(&self) -> bool {
        !self.shown.is_empty()
    }

    /// Takes text as decoded and gives out what is visible of it.
    ///
    /// # Errors
    /// `BadOutput` and `ThinkOverrun`.
    pub(super) fn take(&mut self, text: &str) -> Result<String, Fault> {
        self.first_token.get_or_insert_with(Instant::now);
        self.raw.push_str(text);
        if self.raw.len() > limits::ANSWER_BYTES_MAX {
            let detail = format!("the answer exceeds {} bytes", limits::ANSWER_BYTES_MAX);
            return Err(Fault::new(Class::BadOutput, Phase::Stream, detail));
        }
        self.visible.push(text)
    }

    /// A token of thinking that the server kept apart.
    ///
    /// # Errors
    /// `ThinkOverrun`.
    pub(super) fn thought(&mut self) -> Result<(), Fault> {
        self.visible.thought()
    }

    /// A complete tool call.
    pub(super) fn call(&mut self, call: ToolCall) {
        self.tool_calls.push(call);
    }

    /// What the model said so far, byte for byte.
    pub(super) fn raw(&self) -> &str {
        &self.raw
    }

    /// Whether it has words for the person or a call for a tool.
    pub(super) fn says_something(&self) -> bool {
        self.was_shown() || !self.tool_calls.is_empty()
    }

    /// Ends the answer and gives out what the filters held back.
    pub(super) fn finish(&mut self) -> String {
        self.visible.finish()
    }

    /// Shows text, if there is any. White space alone is held back until words follow: an answer
    /// does not begin with an empty line.
    pub(super) async fn show(&mut self, text: String, out: &mpsc::Sender<Progress>) {
        let text = if self.shown.is_empty() { text.trim_start().to_owned() } else { text };
        if text.is_empty() {
            return;
        }
        self.shown.push_str(&text);
        // A receiver that is gone means that the caller drops this future next.
        let _ = out.send(Progress::Text(text)).await;
    }

    /// The answer as the job's result.
    pub(super) fn complete(
        self,
        engine: &Engine,
        done: Done,
        clipped: Option<String>,
        sent_at: Instant,
    ) -> Completed {
        Completed {
            shown: self.shown,
            raw: self.raw,
            tool_calls: self.tool_calls,
            backend: engine.backend.name().to_owned(),
            model: engine.backend.model(),
            cut: done.reason == DoneReason::Length,
            clipped,
            tokens: done.tokens,
            prompt_tokens: done.prompt_tokens,
            first_token: self.first_token.map(|at| at.saturating_duration_since(sent_at)),
        }
    }
}
