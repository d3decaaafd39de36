//! Bodies of the answers (pure): the objects of Ollama's API in its field order, written as Go
//! writes JSON (`<`, `>` and `&` escaped, zero metrics left out, times without trailing zeros).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use super::{models::Model, request::Endpoint, runners::Resident};
use crate::sim::clock;

/// Longest keep-alive Go can add to a time: some 292 years.
const FOREVER: Duration = Duration::from_nanos(i64::MAX as u64);

/// When the simulated models were pulled.
const MODIFIED_AT: &str = "2026-08-21T09:30:00.123456789Z";

/// One object of a chat or generate answer.
#[derive(Debug, Default, Clone)]
pub(super) struct Part<'a> {
    /// Text.
    pub(super) content: &'a str,
    /// Thinking, kept apart from the text.
    pub(super) thinking: &'a str,
    /// Tool calls.
    pub(super) tool_calls: Vec<Value>,
    /// The end, if this is the last object.
    pub(super) end: Option<End>,
}

/// What the last object tells.
#[derive(Debug, Default, Clone)]
pub(super) struct End {
    /// `stop`, `length`, `load` or `unload`.
    pub(super) reason: &'static str,
    /// What was counted; all zero for a load.
    pub(super) metrics: Metrics,
}

/// What Ollama counts, durations in ns. Zero members are left out, as Go's `omitempty` does.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Metrics {
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) total_duration: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) load_duration: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) prompt_eval_count: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) prompt_eval_duration: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) eval_count: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) eval_duration: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[derive(Serialize)]
struct Object<'a> {
    model: &'a str,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: &'a str,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_reason: Option<&'a str>,
    #[serde(flatten)]
    metrics: Metrics,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: &'a str,
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    tool_calls: &'a [Value],
}

/// Writes one object, without a line end.
pub(super) fn part(endpoint: Endpoint, model: &str, part: &Part<'_>) -> String {
    let chat = endpoint == Endpoint::Chat;
    let message = chat.then_some(Message {
        role: "assistant",
        content: part.content,
        thinking: part.thinking,
        tool_calls: &part.tool_calls,
    });
    let end = part.end.as_ref().filter(|end| !end.reason.is_empty());
    go_json(&Object {
        model,
        created_at: go_time(now()),
        message,
        response: (!chat).then_some(part.content),
        thinking: if chat { "" } else { part.thinking },
        done: end.is_some(),
        done_reason: end.map(|end| end.reason),
        metrics: part.end.as_ref().map(|end| end.metrics.clone()).unwrap_or_default(),
    })
}

/// One call as it stands in `message.tool_calls`.
pub(super) fn tool_call(index: usize, name: &str, arguments: &Value) -> Value {
    json!({"id": format!("call_{index:08x}"),
        "function": {"index": index, "name": name, "arguments": arguments}})
}

/// `{"error":"…"}`.
pub(super) fn error(text: &str) -> String {
    go_json(&json!({ "error": text }))
}

fn details(model: &Model) -> Value {
    json!({"parent_model": "", "format": "gguf", "family": model.family,
        "families": [model.family], "parameter_size": model.parameter_size,
        "quantization_level": "Q4_K_M"})
}

/// `/api/tags`.
pub(super) fn tags(models: &[Model]) -> String {
    let item = |model: &Model| {
        json!({"name": model.name, "model": model.name, "modified_at": MODIFIED_AT,
            "size": model.size_bytes, "digest": model.digest(), "details": details(model)})
    };
    go_json(&json!({"models": models.iter().map(item).collect::<Vec<_>>()}))
}

/// `/api/ps`.
pub(super) fn ps(residents: &[Resident]) -> String {
    let item = |resident: &Resident| {
        let model = &resident.model;
        let expires = now() + resident.expires_in.unwrap_or(FOREVER).min(FOREVER);
        json!({"name": model.name, "model": model.name, "size": resident.memory_bytes,
            "digest": model.digest(), "details": details(model), "expires_at": go_time(expires),
            "size_vram": 0, "context_length": resident.options.num_ctx()})
    };
    go_json(&json!({"models": residents.iter().map(item).collect::<Vec<_>>()}))
}

/// `/api/show`.
pub(super) fn show(model: &Model) -> String {
    let mut capabilities = vec!["completion"];
    capabilities.extend(model.tools.then_some("tools"));
    capabilities.extend(model.thinking.then_some("thinking"));
    let family = &model.family;
    let mut info = serde_json::Map::new();
    info.insert("general.architecture".to_owned(), json!(family));
    info.insert("general.parameter_count".to_owned(), json!(1_543_714_304_u64));
    info.insert(format!("{family}.context_length"), json!(32_768));
    info.insert(format!("{family}.embedding_length"), json!(1536));
    info.insert("tokenizer.ggml.tokens".to_owned(), Value::Null);
    go_json(&json!({
        "license": "Apache License 2.0",
        "modelfile": format!("FROM {}\n", model.name),
        "parameters": "stop                           \"<|im_end|>\"",
        "template": "{{ range .Messages }}{{ .Role }}: {{ .Content }}\n{{ end }}",
        "details": details(model), "model_info": info, "capabilities": capabilities,
        "modified_at": MODIFIED_AT,
    }))
}

/// JSON as Go's encoder writes it.
pub(super) fn go_json(value: &impl Serialize) -> String {
    let plain = serde_json::to_string(value).unwrap_or_default();
    let mut text = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => text.push(c),
        }
    }
    text
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// RFC 3339 with nanoseconds as Go writes it: no trailing zeros.
fn go_time(since_epoch: Duration) -> String {
    let stamp = clock::stamp(since_epoch);
    let short = stamp.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
    format!("{short}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_go_does_and_stays_utf_8() {
        let line = part(Endpoint::Chat, "m", &Part { content: "a<b> & é🙂", ..Part::default() });
        assert!(line.contains("\"content\":\"a\\u003cb\\u003e \\u0026 é🙂\""), "{line}");
        assert!(line.ends_with("\"done\":false}"), "{line}");
    }

    #[test]
    fn zero_metrics_are_left_out_and_generate_has_another_shape() {
        let metrics = Metrics { total_duration: 5, eval_count: 2, ..Metrics::default() };
        let end = Some(End { reason: "stop", metrics });
        let line = part(Endpoint::Generate, "m", &Part { end, ..Part::default() });
        assert!(
            line.contains("\"response\":\"\",\"done\":true,\"done_reason\":\"stop\""),
            "{line}"
        );
        assert!(line.ends_with("\"total_duration\":5,\"eval_count\":2}"), "{line}");
        assert!(!line.contains("message"), "{line}");
    }

    #[test]
    fn times_have_no_trailing_zeros() {
        assert_eq!(go_time(Duration::from_millis(1_500)), "1970-01-01T00:00:01.5Z");
        assert_eq!(go_time(Duration::from_secs(2)), "1970-01-01T00:00:02Z");
    }
}
