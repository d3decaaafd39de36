//! What each server writes, byte for byte (pure).

use serde_json::{Value, json};

use super::Kind;

/// The content type of a stream.
pub(super) fn stream_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Hailo | Kind::Ollama => "application/x-ndjson",
        Kind::OpenAi => "text/event-stream",
    }
}

/// The body of a refusal.
pub(super) fn refusal(kind: Kind, status: u16, cause: &str) -> String {
    match kind {
        Kind::Hailo if status == 500 => format!(
            "server=oatpp/1.4.0\ncode=500\ndescription=Internal Server Error\nstacktrace:\n  \
             - {cause}\n  - Error processing request\n"
        ),
        Kind::Hailo | Kind::Ollama => json!({ "error": cause }).to_string(),
        Kind::OpenAi => {
            json!({ "error": { "code": status, "message": cause, "type": "server_error" } })
                .to_string()
        }
    }
}

/// A piece of an answer; nothing where the server keeps it to itself. `seen` is false for
/// thinking, which llama.cpp takes out of the text.
pub(super) fn piece(kind: Kind, text: &str, seen: bool) -> Option<String> {
    let content = escaped(text);
    match kind {
        Kind::Hailo => Some(format!("{}\r\n", message(&content))),
        Kind::Ollama => Some(format!("{}\n", message(&content))),
        Kind::OpenAi if seen => Some(event(&format!(r#"{{"content":{content}}}"#), "null")),
        Kind::OpenAi if is_mark(text) => None,
        Kind::OpenAi => Some(event(&format!(r#"{{"reasoning_content":{content}}}"#), "null")),
    }
}

/// What of a piece stands in the answer's text.
pub(super) fn text(kind: Kind, text: &str, seen: bool) -> &str {
    if kind == Kind::OpenAi && !seen { "" } else { text }
}

/// A line that breaks off.
pub(super) fn torn(kind: Kind) -> &'static str {
    match kind {
        Kind::Hailo => "{\"message\":\r\n",
        Kind::Ollama => "{\"message\":\n",
        Kind::OpenAi => "data: {\"choices\":\n\n",
    }
}

/// The end of an answer of so many tokens, with the server's count of the prompt.
pub(super) fn end(kind: Kind, cut: bool, tokens: u64, prompt: u32) -> String {
    let reason = if cut { "length" } else { "stop" };
    let last = format!(
        r#"{{"message":{{"role":"assistant","content":""}},"done":true,"done_reason":"{reason}","eval_count":{tokens},"prompt_eval_count":{prompt}}}"#
    );
    match kind {
        Kind::Hailo => format!("{last}\r\n"),
        Kind::Ollama => format!("{last}\n"),
        Kind::OpenAi => {
            let finish = event("{}", &format!("\"{reason}\""));
            let usage = format!(
                r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{tokens}}}}}"#
            );
            format!("{finish}data: {usage}\n\ndata: [DONE]\n\n")
        }
    }
}

fn message(content: &str) -> String {
    format!(r#"{{"message":{{"role":"assistant","content":{content}}},"done":false}}"#)
}

fn event(delta: &str, reason: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{reason}}}]}}\n\n"
    )
}

/// Whether a piece only marks where thinking begins or ends.
fn is_mark(text: &str) -> bool {
    matches!(text, "<think>" | "</think>" | "\n\n")
}

/// A JSON string as hailo-ollama writes it: everything beyond ASCII as `\uXXXX`.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in Value::from(text).to_string().chars() {
        if letter.is_ascii() {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}
