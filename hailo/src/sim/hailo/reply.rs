//! Bodies as the server writes them: fields in its order, nulls left out, everything beyond ASCII
//! as `\uXXXX` and every slash as `\/`.

use serde::Serialize;

use crate::sim::clock::stamp_now;

/// Which endpoint's shape an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Chat,
    Generate,
    OpenAi,
}

/// The last line's part of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) reason: &'static str,
    /// Simulated ns since the prompt was submitted; absent for load and unload.
    pub(super) total_ns: Option<u64>,
    pub(super) eval_count: Option<u32>,
}

#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a str>,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_duration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_count: Option<u32>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

/// One line, or the one body, of chat and generate.
pub(super) fn line(shape: Shape, model: &str, content: &str, done: Option<Done>) -> String {
    let message = (shape != Shape::Generate).then_some(Message { role: "assistant", content });
    json(&Line {
        model,
        created_at: stamp_now(),
        message,
        response: (shape == Shape::Generate).then_some(content),
        done: done.is_some(),
        done_reason: done.map(|done| done.reason),
        total_duration: done.and_then(|done| done.total_ns),
        eval_count: done.and_then(|done| done.eval_count),
    })
}

/// `{"error": text}`.
pub(super) fn error(text: &str) -> String {
    #[derive(Serialize)]
    struct Error<'a> {
        error: &'a str,
    }
    json(&Error { error: text })
}

/// The text form of an error: inner cause first.
pub(super) fn text_error(status: u16, reason: &str, causes: &[&str]) -> String {
    let mut text =
        format!("server=oatpp/1.4.0\ncode={status}\ndescription={reason}\nstacktrace:\n");
    for cause in causes {
        text.push_str(&format!("  - {cause}\n"));
    }
    text
}

/// Serialises and escapes.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    escape(&serde_json::to_string(value).unwrap_or_default())
}

/// In JSON a slash or a letter beyond ASCII can only stand inside a string.
fn escape(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 8);
    for c in json.chars() {
        match c {
            '/' => out.push_str("\\/"),
            c if c.is_ascii() => out.push(c),
            c => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_letters_beyond_ascii_are_escaped_and_still_the_same_json() {
        let text = error("a/b ü 🦞 \"q\"");
        assert_eq!(text, r#"{"error":"a\/b \u00FC \uD83E\uDD9E \"q\""}"#);
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["error"], "a/b ü 🦞 \"q\"");
    }

    #[test]
    fn lines_have_the_servers_order_and_leave_out_what_they_do_not_have() {
        let text = line(Shape::Chat, "m:1", "Hi", None);
        assert!(text.starts_with(r#"{"model":"m:1","created_at":"2"#), "{text}");
        assert!(
            text.ends_with(r#"Z","message":{"role":"assistant","content":"Hi"},"done":false}"#),
            "{text}"
        );
        let done = Done { reason: "stop", total_ns: Some(5), eval_count: Some(2) };
        let text = line(Shape::Generate, "m:1", "", Some(done));
        let end =
            r#""response":"","done":true,"done_reason":"stop","total_duration":5,"eval_count":2}"#;
        assert!(text.ends_with(end), "{text}");
    }
}
