//! The streamed answers of hailo-ollama and Ollama: one JSON object a line (pure).
//!
//! hailo-ollama ends lines with CR LF, escapes everything beyond ASCII and sends few figures;
//! Ollama leaves out figures that are zero. Unknown fields are ignored, missing ones are normal.

use serde_json::Value;

use super::backend::{ChatDelta, Done, DoneReason};
use super::fault::{Class, Fault, Phase};
use super::parse::{Dialect, detail, error_line, parse_json, stated_error};
use super::phases::Decode;
use crate::net::split::Lines;

/// Decodes the lines of one answer.
pub(crate) struct Ndjson {
    dialect: Dialect,
    lines: Lines,
    calls: u32,
    over: bool,
}

// === impl Ndjson ===

impl Ndjson {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, lines: Lines::default(), calls: 0, over: false }
    }

    fn lines(&mut self, lines: Vec<String>, out: &mut Vec<ChatDelta>) -> Result<(), Fault> {
        for line in lines {
            if self.over {
                break;
            }
            self.line(&line, out)?;
        }
        Ok(())
    }

    /// What is said in the last line comes before its `Done`.
    fn line(&mut self, line: &str, out: &mut Vec<ChatDelta>) -> Result<(), Fault> {
        let broken = |why: &str| {
            let text = format!("{why} in the stream: {line}");
            Fault::new(Class::ServerError, Phase::Stream, detail(&text))
        };
        let value = parse_json(line).map_err(|_| broken("no JSON"))?;
        if let Some(error) = stated_error(&value) {
            return Err(error_line(self.dialect, &error, Phase::Stream));
        }
        let Value::Object(object) = &value else { return Err(broken("no object")) };
        if let Some(message) = object.get("message") {
            let text = |name: &str| {
                let text = message.get(name).and_then(Value::as_str).unwrap_or_default();
                (!text.is_empty()).then(|| text.to_owned())
            };
            out.extend(text("thinking").map(ChatDelta::Thinking));
            out.extend(text("content").map(ChatDelta::Text));
            let calls = message.get("tool_calls").and_then(Value::as_array);
            out.extend(calls.into_iter().flatten().filter_map(|call| self.call(call)));
        }
        if object.get("done") == Some(&Value::Bool(true)) {
            self.over = true;
            let count = |name: &str| {
                let count = object.get(name).and_then(Value::as_u64);
                count.and_then(|count| u32::try_from(count).ok())
            };
            let reason = match object.get("done_reason").and_then(Value::as_str) {
                Some("length") => DoneReason::Length,
                _ if self.calls > 0 => DoneReason::ToolCalls,
                _ => DoneReason::Stop,
            };
            let (tokens, prompt_tokens) = (count("eval_count"), count("prompt_eval_count"));
            out.push(ChatDelta::Done(Done { reason, tokens, prompt_tokens }));
        }
        Ok(())
    }

    fn call(&mut self, call: &Value) -> Option<ChatDelta> {
        let function = call.get("function")?;
        let name = function.get("name")?.as_str()?.to_owned();
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => "{}".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        self.calls += 1;
        let id = call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = id.map_or_else(|| format!("call_{}", self.calls), str::to_owned);
        Some(ChatDelta::ToolCall { id, name, arguments })
    }
}

/// Decodes a whole body, in pieces of `step` bytes; for the fuzz targets.
#[cfg(any(test, feature = "sim"))]
pub(super) fn decode(dialect: Dialect, body: &[u8], step: usize) -> Result<Vec<ChatDelta>, Fault> {
    let mut ndjson = Ndjson::new(dialect);
    let mut out = Vec::new();
    for piece in body.chunks(step.max(1)) {
        ndjson.piece(piece, &mut out)?;
    }
    ndjson.end(&mut out)?;
    Ok(out)
}

impl Decode for Ndjson {
    /// A 200 with any content type may hold an error line, so all are read.
    fn takes(&self, _content_type: Option<&str>) -> bool {
        true
    }

    fn piece(&mut self, bytes: &[u8], out: &mut Vec<ChatDelta>) -> Result<bool, Fault> {
        let mut lines = Vec::new();
        let split = self.lines.push(bytes, &mut lines);
        let alive = !lines.is_empty();
        self.lines(lines, out)?;
        match split {
            Err(error) if !self.over => {
                Err(Fault::new(Class::ServerError, Phase::Stream, error.to_string()))
            }
            _ => Ok(alive),
        }
    }

    fn end(&mut self, out: &mut Vec<ChatDelta>) -> Result<(), Fault> {
        let mut lines = Vec::new();
        self.lines.finish(&mut lines);
        // Half a line at a cut is no error of its own.
        lines.retain(|line| parse_json(line).is_ok());
        self.lines(lines, out)
    }
}

#[cfg(test)]
mod tests;
