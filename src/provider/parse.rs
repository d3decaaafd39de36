//! What a server's answer says when it is not an answer (pure): errors found, causes collected,
//! faults classified by the table of the provider specification.
//!
//! # Invariants
//! - A JSON object with an `error` is an error whatever the status says: hailo-ollama 5.1 reports
//!   an unknown model with 200.
//! - No text is matched by its order or count, only by what it contains.
//! - A fault's detail is one bounded line without control characters.

use std::time::Duration;

use serde_json::Value;

use super::fault::{Class, Fault, Field, Phase};

/// Longest detail of a fault, in characters: a cause, not a page.
const DETAIL_CHARS_MAX: usize = 240;

/// Which server's habits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// hailo-ollama, every release.
    Hailo,
    /// Ollama.
    Ollama,
    /// Servers with OpenAI's chat completions.
    OpenAi,
}

/// The error a JSON value states: `{"error":"..."}`, `{"error":{"message":"..."}}`, or OpenAI's
/// `code` where the message is missing.
#[must_use]
pub fn stated_error(value: &Value) -> Option<String> {
    match value.as_object()?.get("error")? {
        Value::String(text) => Some(text.clone()),
        Value::Object(error) => {
            let field = |name: &str| error.get(name).and_then(Value::as_str);
            let code = field("code").or_else(|| field("type")).unwrap_or_default();
            match field("message") {
                Some(message) if code.is_empty() => Some(message.to_owned()),
                Some(message) => Some(format!("{message} ({code})")),
                None => Some(code.to_owned()),
            }
        }
        _ => None,
    }
}

/// What a body says went wrong: the stated error, the causes of the text form, or its beginning.
#[must_use]
pub fn complaint(body: &str) -> String {
    if let Ok(value) = parse_json(body)
        && let Some(error) = stated_error(&value)
    {
        return error;
    }
    let causes = text_causes(body);
    if causes.is_empty() { body.trim().to_owned() } else { causes.join("; ") }
}

/// The causes in the plain-text form of oatpp's error page: every list item, else the description.
#[must_use]
pub fn text_causes(body: &str) -> Vec<&str> {
    let items: Vec<&str> = body
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- "))
        .map(str::trim)
        .filter(|cause| !cause.is_empty())
        .collect();
    if items.is_empty() {
        body.lines().filter_map(|line| line.trim().strip_prefix("description=")).collect()
    } else {
        items
    }
}

/// The fault behind an answer whose status is not a success.
#[must_use]
pub fn refusal(dialect: Dialect, status: u16, wish: Option<Duration>, body: &str) -> Fault {
    let complaint = complaint(body);
    let class = match status {
        401 => Class::Unauthorised,
        403 if dialect == Dialect::OpenAi => Class::Unauthorised,
        _ => said(dialect, &complaint).unwrap_or_else(|| by_status(dialect, status)),
    };
    // What a server says about credentials may quote them.
    let told = if class == Class::Unauthorised { "credentials refused" } else { &complaint };
    let mut fault = Fault::new(class, Phase::Head, detail(&format!("HTTP {status}: {told}")));
    fault.retry_after = wish;
    fault
}

/// The fault behind an error that came inside a stream or under a success status.
#[must_use]
pub fn error_line(dialect: Dialect, error: &str, phase: Phase) -> Fault {
    Fault::new(said(dialect, error).unwrap_or(Class::ServerError), phase, detail(error))
}

/// Cuts a text to one line fit for a log and a status page.
#[must_use]
pub fn detail(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|letter| !letter.is_control()));
        if line.len() > 4 * DETAIL_CHARS_MAX {
            break;
        }
    }
    match line.char_indices().nth(DETAIL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Parses JSON, with lone surrogate escapes read as U+FFFD: a server that escapes a character it
/// has only half of must not end the answer.
///
/// # Errors
/// When the text is not JSON even so.
pub fn parse_json(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| match mend_surrogates(text) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    })
}

/// Replaces escapes of lone surrogates; `None` if there are none.
fn mend_surrogates(text: &str) -> Option<String> {
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    let mut changed = false;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let taken = match surrogate(escape) {
            Some(0xd800..=0xdbff) if low_follows(escape) => 12,
            Some(_) => {
                changed = true;
                mended.push_str("\\ufffd");
                rest = &escape[6..];
                continue;
            }
            // Any other escape: the backslash and the character it belongs to.
            None => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        mended.push_str(&escape[..taken]);
        rest = &escape[taken..];
    }
    mended.push_str(rest);
    changed.then_some(mended)
}

fn low_follows(escape: &str) -> bool {
    matches!(escape.get(6..).and_then(surrogate), Some(0xdc00..=0xdfff))
}

/// The surrogate that a `\uXXXX` escape at the start of `text` stands for.
fn surrogate(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    (0xd800..=0xdfff).contains(&unit).then_some(unit)
}

/// The class a server's words alone decide.
fn said(dialect: Dialect, text: &str) -> Option<Class> {
    let text = text.to_ascii_lowercase();
    let has = |part: &str| text.contains(part);
    if dialect == Dialect::Hailo
        && let Some(class) = said_by_the_device(&text)
    {
        return Some(class);
    }
    let absent = has("not found") || has("not_found") || has("does not exist");
    if has("model") && absent {
        return Some(Class::ModelMissing);
    }
    if has("exceed") && has("context") {
        return Some(Class::PrefillTimeout);
    }
    let mistaken = ["no suitable mapper", "deserialize", "unmarshal", "model is required"];
    if mistaken.into_iter().any(has) {
        return Some(Class::OurBug);
    }
    if let Some(field) = unsupported(&text) {
        return Some(Class::Unsupported(field));
    }
    let busy = ["server busy", "maximum pending requests", "loading model"];
    busy.into_iter().any(has).then_some(Class::Busy)
}

/// The field that a model does not take. Refusals of Ollama, llama.cpp, vLLM and OpenRouter, and
/// what Ollama's own parsers say of calls that they cannot read: those fail the same way each time,
/// a bare `EOF` included.
fn unsupported(text: &str) -> Option<Field> {
    const TOOLS: [&str; 8] = [
        "does not support tools",
        "tools param requires",
        "unsupported param: tools",
        "tool choice requires",
        "support tool use",
        "error parsing tool call",
        "xml syntax error",
        "expected element type <function>",
    ];
    if text.contains("does not support thinking") {
        return Some(Field::Think);
    }
    let tools = text.trim() == "eof" || TOOLS.into_iter().any(|part| text.contains(part));
    tools.then_some(Field::Tools)
}

/// hailo-ollama's own causes. The outer ones repeat for several inner ones, so the telling ones
/// are looked for first.
fn said_by_the_device(text: &str) -> Option<Class> {
    const TELLING: [(&str, Class); 9] = [
        ("failed to create vdevice", Class::DeviceBusy),
        ("llm not loaded", Class::Poisoned),
        // We never send tools, so a server that complains of them knows no model.
        ("does not support tools", Class::Poisoned),
        ("read failed", Class::PrefillTimeout),
        ("failed to create llm", Class::DeviceFault),
        ("failed to create generator", Class::DeviceFault),
        ("failed to write prompt", Class::DeviceFault),
        ("failed to generate", Class::DeviceFault),
        ("failed to clear context", Class::DeviceFault),
    ];
    TELLING.into_iter().find(|(part, _)| text.contains(part)).map(|(_, class)| class)
}

/// The class of a status whose body says nothing known.
fn by_status(dialect: Dialect, status: u16) -> Class {
    match status {
        429 | 503 => Class::Busy,
        // An unknown exception before the head: the model may be half loaded, and unloading is
        // the cure for all of these.
        500.. if dialect == Dialect::Hailo => Class::DeviceFault,
        // No such route: another server than the one configured.
        404 | 405 => Class::ServerError,
        400..=499 => Class::OurBug,
        _ => Class::ServerError,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Class::{
        Busy, DeviceBusy, DeviceFault, ModelMissing, OurBug, Poisoned, PrefillTimeout, ServerError,
        Unauthorised,
    };
    use super::Dialect::{Hailo, Ollama, OpenAi};
    use super::*;

    const NO_TOOLS: Class = Class::Unsupported(Field::Tools);
    const NO_THINK: Class = Class::Unsupported(Field::Think);

    fn page(causes: &[&str]) -> String {
        let mut page =
            "server=oatpp/1.4.0\ncode=500\ndescription=Internal Server Error\nstacktrace:\n"
                .to_owned();
        for cause in causes {
            page.push_str(&format!("  - {cause}\n"));
        }
        page
    }

    #[test]
    fn refusals_are_classified_by_the_fault_table() {
        let outer = "Error processing request";
        let table = [
            (Hailo, 500, page(&["Failed to create VDevice", outer]), DeviceBusy),
            (Hailo, 500, page(&[outer, "Failed to create VDevice"]), DeviceBusy),
            (Hailo, 500, page(&["Failed to create LLM", outer]), DeviceFault),
            (Hailo, 500, page(&["Failed to create generator params"]), DeviceFault),
            (Hailo, 500, page(&["Failed to create generator"]), DeviceFault),
            (Hailo, 500, page(&["Failed to write prompt"]), DeviceFault),
            (Hailo, 500, page(&["Failed to generate"]), DeviceFault),
            (Hailo, 500, page(&["Failed to clear context"]), DeviceFault),
            (Hailo, 500, page(&["something new"]), DeviceFault),
            (Hailo, 500, String::new(), DeviceFault),
            (Hailo, 500, page(&["LLM not loaded", outer]), Poisoned),
            (Hailo, 400, r#"{"error":"\"m\" does not support tools"}"#.into(), Poisoned),
            (Hailo, 500, page(&["Failed to generate", "read failed!"]), PrefillTimeout),
            (Hailo, 500, page(&["No suitable mapper found to deserialize"]), OurBug),
            (Hailo, 404, r#"{"error":"model 'x' not found"}"#.into(), ModelMissing),
            (Hailo, 404, r#"{"code":"not_found","error":"model not found"}"#.into(), ModelMissing),
            (Hailo, 404, "server=oatpp/1.4.0\ncode=404\ndescription=No route".into(), ServerError),
            (
                Ollama,
                404,
                r#"{"error":"model \"x\" not found, try pulling it"}"#.into(),
                ModelMissing,
            ),
            (Ollama, 400, r#"{"error":"\"m\" does not support tools"}"#.into(), NO_TOOLS),
            (Ollama, 400, r#"{"error":"\"m\" does not support thinking"}"#.into(), NO_THINK),
            (Ollama, 500, r#"{"error":"EOF"}"#.into(), NO_TOOLS),
            (
                Ollama,
                500,
                r#"{"error":"XML syntax error on line 8: element <function> closed"}"#.into(),
                NO_TOOLS,
            ),
            (Ollama, 500, r#"{"error":"error parsing tool call: raw='{'"}"#.into(), NO_TOOLS),
            (Ollama, 500, r#"{"error":"unexpected EOF"}"#.into(), ServerError),
            (
                OpenAi,
                500,
                r#"{"error":{"message":"tools param requires --jinja flag"}}"#.into(),
                NO_TOOLS,
            ),
            (
                OpenAi,
                400,
                r#"{"message":"\"auto\" tool choice requires --enable-auto-tool-choice"}"#.into(),
                NO_TOOLS,
            ),
            (Ollama, 400, r#"{"error":"input exceeds the context"}"#.into(), PrefillTimeout),
            (Ollama, 500, r#"{"error":"llama runner process has terminated"}"#.into(), ServerError),
            (Ollama, 503, r#"{"error":"server busy, please try again."}"#.into(), Busy),
            (Ollama, 403, String::new(), OurBug),
            (Ollama, 307, String::new(), ServerError),
            (OpenAi, 401, r#"{"error":{"message":"Incorrect API key"}}"#.into(), Unauthorised),
            (OpenAi, 403, "<html>".into(), Unauthorised),
            (
                OpenAi,
                404,
                r#"{"error":{"message":"no","code":"model_not_found"}}"#.into(),
                ModelMissing,
            ),
            (OpenAi, 404, "<html>nginx</html>".into(), ServerError),
            (OpenAi, 429, "{}".into(), Busy),
            (OpenAi, 503, r#"{"error":{"message":"Loading model"}}"#.into(), Busy),
            (OpenAi, 502, String::new(), ServerError),
            (OpenAi, 422, String::new(), OurBug),
        ];
        for (dialect, status, body, want) in table {
            let fault = refusal(dialect, status, None, &body);
            assert_eq!(fault.class, want, "{dialect:?} {status} {body}");
            assert_eq!(fault.phase, Phase::Head);
        }
    }

    #[test]
    fn a_refusal_carries_the_servers_wish_and_no_credentials() {
        let wish = Some(Duration::from_secs(3));
        assert_eq!(refusal(OpenAi, 429, wish, "").retry_after, wish);
        let fault = refusal(OpenAi, 401, None, r#"{"error":"bad key sk-123"}"#);
        assert!(!fault.to_string().contains("sk-123"), "{fault}");
    }

    #[test]
    fn an_error_is_found_in_every_form() {
        let table = [
            (r#"{"error":"a"}"#, "a"),
            (r#"{"error":{"message":"a","code":"b"}}"#, "a (b)"),
            (r#"{"error":{"message":"a","code":42}}"#, "a"),
            (r#"{"error":{"type":"t"}}"#, "t"),
            ("x\n  - one\n  -  two \n", "one; two"),
            ("code=404\ndescription=No such route\nstacktrace:\n", "No such route"),
            ("  plain words \n", "plain words"),
            (r#"{"error":7}"#, r#"{"error":7}"#),
            ("", ""),
        ];
        for (body, want) in table {
            assert_eq!(complaint(body), want);
        }
        assert_eq!(error_line(Ollama, "boom", Phase::Stream).class, ServerError);
        assert_eq!(error_line(Hailo, "model 'x' not found", Phase::FirstToken).class, ModelMissing);
    }

    #[test]
    fn a_detail_is_one_bounded_line() {
        assert_eq!(detail("a\r\n\tb\u{1b}[31m"), "a b[31m");
        let long = detail(&"é".repeat(5000));
        assert_eq!(long.chars().count(), DETAIL_CHARS_MAX + 1);
    }

    #[test]
    fn lone_surrogates_become_the_replacement_character() {
        let table = [
            (r#""a\ud83e""#, "a\u{fffd}"),
            (r#""\udd9e b""#, "\u{fffd} b"),
            (r#""\ud83e\udd9e""#, "\u{1f99e}"),
            (r#""\ud83e\ud83e\udd9e\ud83e""#, "\u{fffd}\u{1f99e}\u{fffd}"),
            (r#""\\ud83e \ud83e""#, "\\ud83e \u{fffd}"),
        ];
        for (text, want) in table {
            assert_eq!(parse_json(text).unwrap(), Value::from(want), "{text}");
        }
        assert!(parse_json(r#""\ud83é""#).is_err());
    }

    proptest! {
        #[test]
        fn nothing_a_server_says_panics(body in "\\PC{0,80}|(\\\\u?[dD8-9a-f]{0,5}|é|\"){0,20}") {
            let _ = parse_json(&body);
            for dialect in [Hailo, Ollama, OpenAi] {
                let _ = refusal(dialect, 500, None, &body);
            }
        }
    }
}
