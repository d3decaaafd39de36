//! The events of a streamed chat completion (pure).
//!
//! Text and tool calls come as differences; calls are put together here, because half a call is
//! of no use to anybody. The end is `[DONE]`; servers that close after the finish reason instead
//! are taken at their word.

use serde_json::Value;

use super::super::backend::{ChatDelta, Done, DoneReason};
use super::super::fault::{Class, Fault, Phase};
use super::super::parse::{Dialect, detail, error_line, parse_json, stated_error};
use super::super::phases::Decode;
use crate::limits::ANSWER_BYTES_MAX;
use crate::net::split::{Events, SseItem};

/// Calls in one answer. A small model that makes more is looping.
const CALLS_MAX: usize = 64;

/// A tool call that is not complete yet.
#[derive(Debug, Default)]
struct Call {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

/// Decodes the events of one answer.
#[derive(Default)]
pub(super) struct Completion {
    events: Events,
    calls: Vec<Call>,
    reason: Option<DoneReason>,
    tokens: Option<u32>,
    prompt_tokens: Option<u32>,
    over: bool,
}

// === impl Completion ===

impl Completion {
    fn items(&mut self, items: Vec<SseItem>, out: &mut Vec<ChatDelta>) -> Result<(), Fault> {
        for item in items {
            match item {
                _ if self.over => break,
                SseItem::Done => self.finish(out),
                SseItem::Data(data) => self.event(&data, out)?,
            }
        }
        Ok(())
    }

    fn event(&mut self, data: &str, out: &mut Vec<ChatDelta>) -> Result<(), Fault> {
        let value = parse_json(data).map_err(|_| broken(&format!("no JSON: {data}")))?;
        if let Some(error) = stated_error(&value) {
            return Err(error_line(Dialect::OpenAi, &error, Phase::Stream));
        }
        if let Some(usage) = value.get("usage") {
            let count = |name: &str| {
                let count = usage.get(name).and_then(Value::as_u64);
                count.and_then(|count| u32::try_from(count).ok())
            };
            self.tokens = count("completion_tokens").or(self.tokens);
            self.prompt_tokens = count("prompt_tokens").or(self.prompt_tokens);
        }
        // The event with the usage has no choices.
        let Some(choice) = value.get("choices").and_then(|choices| choices.get(0)) else {
            return Ok(());
        };
        if let Some(delta) = choice.get("delta") {
            let text = |name: &str| {
                let text = delta.get(name).and_then(Value::as_str).unwrap_or_default();
                (!text.is_empty()).then(|| text.to_owned())
            };
            let thinking = text("reasoning_content").or_else(|| text("reasoning"));
            out.extend(thinking.map(ChatDelta::Thinking));
            out.extend(text("content").map(ChatDelta::Text));
            let calls = delta.get("tool_calls").and_then(Value::as_array);
            for call in calls.into_iter().flatten() {
                self.call(call)?;
            }
        }
        match choice.get("finish_reason").and_then(Value::as_str) {
            None => {}
            Some("length") => self.reason = Some(DoneReason::Length),
            Some("tool_calls" | "function_call") => self.reason = Some(DoneReason::ToolCalls),
            Some(_) => self.reason = Some(DoneReason::Stop),
        }
        Ok(())
    }

    fn call(&mut self, part: &Value) -> Result<(), Fault> {
        let index = part.get("index").and_then(Value::as_u64).unwrap_or(self.calls.len() as u64);
        let at = match self.calls.iter().position(|call| call.index == index) {
            Some(at) => at,
            None if self.calls.len() >= CALLS_MAX => {
                return Err(broken(&format!("more than {CALLS_MAX} tool calls")));
            }
            None => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let total: usize = self.calls.iter().map(|call| call.arguments.len()).sum();
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let function = part.get("function");
        if let Some(id) = text(part.get("id")).filter(|id| !id.is_empty()) {
            call.id = id;
        }
        if let Some(name) = text(function.and_then(|function| function.get("name"))) {
            call.name.push_str(&name);
        }
        if let Some(more) = text(function.and_then(|function| function.get("arguments"))) {
            if total + more.len() > ANSWER_BYTES_MAX {
                return Err(broken("tool calls without end"));
            }
            call.arguments.push_str(&more);
        }
        Ok(())
    }

    /// Hands the calls out and ends the answer.
    fn finish(&mut self, out: &mut Vec<ChatDelta>) {
        self.over = true;
        let mut calls = std::mem::take(&mut self.calls);
        calls.retain(|call| !call.name.is_empty());
        let reason = match self.reason {
            Some(DoneReason::Length) => DoneReason::Length,
            // Half of the servers say "stop" after calls.
            _ if !calls.is_empty() => DoneReason::ToolCalls,
            _ => DoneReason::Stop,
        };
        out.extend(calls.into_iter().enumerate().map(|(i, call)| ChatDelta::ToolCall {
            id: if call.id.is_empty() { format!("call_{}", i + 1) } else { call.id },
            name: call.name,
            arguments: if call.arguments.is_empty() { "{}".into() } else { call.arguments },
        }));
        let (tokens, prompt_tokens) = (self.tokens, self.prompt_tokens);
        out.push(ChatDelta::Done(Done { reason, tokens, prompt_tokens }));
    }
}

/// Decodes a whole body, in pieces of `step` bytes; for the fuzz targets.
#[cfg(any(test, feature = "sim"))]
pub(in crate::provider) fn decode(body: &[u8], step: usize) -> Result<Vec<ChatDelta>, Fault> {
    let mut completion = Completion::default();
    let mut out = Vec::new();
    for piece in body.chunks(step.max(1)) {
        completion.piece(piece, &mut out)?;
    }
    completion.end(&mut out)?;
    Ok(out)
}

impl Decode for Completion {
    /// Anything but events is an error page, whatever its status says.
    fn takes(&self, content_type: Option<&str>) -> bool {
        content_type.is_none_or(|kind| kind == "text/event-stream")
    }

    fn piece(&mut self, bytes: &[u8], out: &mut Vec<ChatDelta>) -> Result<bool, Fault> {
        let mut items = Vec::new();
        let split = self.events.push(bytes, &mut items);
        let alive = !items.is_empty();
        self.items(items, out)?;
        match split {
            Err(error) if !self.over => Err(broken(&error.to_string())),
            _ => Ok(alive),
        }
    }

    fn is_closing(&self) -> bool {
        self.reason.is_some()
    }

    fn end(&mut self, out: &mut Vec<ChatDelta>) -> Result<(), Fault> {
        let mut items = Vec::new();
        self.events.finish(&mut items);
        // Half an event at a cut is no error of its own.
        items.retain(|item| !matches!(item, SseItem::Data(data) if parse_json(data).is_err()));
        self.items(items, out)?;
        if self.reason.is_some() && !self.over {
            self.finish(out);
        }
        Ok(())
    }
}

fn broken(why: &str) -> Fault {
    Fault::new(Class::ServerError, Phase::Stream, detail(why))
}

#[cfg(test)]
mod tests;
