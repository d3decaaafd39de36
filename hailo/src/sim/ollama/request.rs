//! Bodies of `/api/chat` and `/api/generate` (pure): decoded with the types and the error texts
//! of Ollama, and examined for what this project's client must never send.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::keep_alive::{self, KeepAlive};
use super::options::{RunnerOptions, Sampling};
use super::prompt::Message;

/// Which of the two endpoints; they differ in field names and in the answer's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// `/api/chat`: `messages` in, `message` out.
    Chat,
    /// `/api/generate`: `prompt` in, `response` out.
    Generate,
}

impl Endpoint {
    /// The Go type that the server's decoding errors name.
    fn go_type(self) -> &'static str {
        match self {
            Self::Chat => "ChatRequest",
            Self::Generate => "GenerateRequest",
        }
    }
}

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// HTTP status.
    pub(super) status: u16,
    /// Value of the `error` member.
    pub(super) error: String,
}

impl Refusal {
    /// A refusal of any status.
    pub(super) fn new(status: u16, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    fn bad_request(error: impl Into<String>) -> Self {
        Self::new(400, error)
    }
}

/// A decoded request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// Where it came in.
    pub(super) endpoint: Endpoint,
    /// Name as sent.
    pub(super) model: String,
    /// The conversation; a `prompt` is one user message after the `system` text.
    pub(super) messages: Vec<Message>,
    /// NDJSON or one object.
    pub(super) stream: bool,
    /// Schema the answer must follow; `{}` with type object for `"json"`.
    pub(super) format: Option<Value>,
    /// Absent means the server's default.
    pub(super) keep_alive: Option<KeepAlive>,
    /// Tools offered.
    pub(super) tools: Vec<Value>,
    /// Options that are the runner's identity.
    pub(super) runner: RunnerOptions,
    /// The rest of the options that matter here.
    pub(super) sampling: Sampling,
    /// What the client said about thinking, if anything.
    pub(super) think: Option<bool>,
    /// Overlong prompts may be cut.
    pub(super) truncate: bool,
    /// The context may slide while decoding.
    pub(super) shift: bool,
}

impl Request {
    /// Nothing to generate: load the model, or unload it where `keep_alive` is 0.
    pub(super) fn is_load(&self) -> bool {
        self.messages.is_empty()
    }
}

/// Decodes a body.
pub(super) fn decode(endpoint: Endpoint, body: &[u8]) -> Result<Request, Refusal> {
    let value = json_body(body)?;
    let Value::Object(fields) = &value else {
        return Err(mismatch(&value, &format!("Go value of type api.{}", endpoint.go_type())));
    };
    let reader = Reader { endpoint, fields };
    let messages = match endpoint {
        Endpoint::Chat => reader.messages()?,
        Endpoint::Generate => reader.prompt()?,
    };
    let stream = reader.boolean("stream")?.unwrap_or(true);
    let truncate = reader.boolean("truncate")?.unwrap_or(true);
    let shift = reader.boolean("shift")?.unwrap_or(true);
    let think = reader.think()?;
    let keep_alive = match fields.get("keep_alive") {
        None | Some(Value::Null) => None,
        Some(value) => Some(keep_alive::parse(value).map_err(Refusal::bad_request)?),
    };
    let tools = reader.list("tools", "api.Tools")?.cloned().unwrap_or_default();
    let model = reader.string("model")?.unwrap_or_default().to_owned();
    if model.is_empty() {
        return Err(Refusal::bad_request("model is required"));
    }
    let (runner, sampling) = reader.options()?;
    let format = format_schema(fields.get("format"))?;
    Ok(Request {
        endpoint,
        model,
        messages,
        stream,
        format,
        keep_alive,
        tools,
        runner,
        sampling,
        think,
        truncate,
        shift,
    })
}

/// Parses a body as JSON with the server's words for what is wrong.
pub(super) fn json_body(body: &[u8]) -> Result<Value, Refusal> {
    if body.is_empty() {
        return Err(Refusal::bad_request("missing request body"));
    }
    serde_json::from_slice(body).map_err(|error| {
        if error.is_eof() {
            return Refusal::bad_request("unexpected EOF");
        }
        let at = body.get(error.column().saturating_sub(1)).copied().unwrap_or(b'?');
        Refusal::bad_request(format!(
            "invalid character {:?} looking for beginning of value",
            char::from(at)
        ))
    })
}

/// Names of what a body holds that this project's client must not send to Ollama.
pub(super) fn forbidden(body: &[u8]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
        found.insert("body");
        return found;
    };
    if !matches!(fields.get("think"), None | Some(Value::Null | Value::Bool(false))) {
        found.insert("think");
    }
    let messages = fields.get("messages").and_then(Value::as_array);
    let generates = messages.is_some_and(|list| !list.is_empty())
        || fields.get("prompt").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if generates {
        let num_predict = fields.get("options").and_then(|options| options.get("num_predict"));
        if num_predict.and_then(Value::as_i64).is_none_or(|count| count < 1) {
            found.insert("num_predict");
        }
        if fields.get("truncate") != Some(&Value::Bool(false)) {
            found.insert("truncate");
        }
    }
    for message in messages.into_iter().flatten() {
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
        if !matches!(text("role"), "system" | "user" | "assistant" | "tool") {
            found.insert("role");
        }
        if has_control(text("content")) {
            found.insert("control");
        }
    }
    if has_control(fields.get("prompt").and_then(Value::as_str).unwrap_or_default()) {
        found.insert("control");
    }
    found
}

fn has_control(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
}

fn format_schema(value: Option<&Value>) -> Result<Option<Value>, Refusal> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => {
            Ok(Some(serde_json::json!({"type": "object", "required": ["answer"],
                "properties": {"answer": {"type": "string"}}})))
        }
        Some(schema @ Value::Object(_)) => Ok(Some(schema.clone())),
        Some(other) => Err(Refusal::new(
            500,
            format!("invalid format: {other}; expected \"json\" or a valid JSON Schema object"),
        )),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn mismatch(value: &Value, into: &str) -> Refusal {
    Refusal::bad_request(format!("json: cannot unmarshal {} into {into}", kind(value)))
}

/// Reads typed fields; `null` counts as absent, as in Go.
struct Reader<'a> {
    endpoint: Endpoint,
    fields: &'a Map<String, Value>,
}

impl<'a> Reader<'a> {
    fn wrong(&self, value: &Value, field: &str, wanted: &str) -> Refusal {
        let owner = self.endpoint.go_type();
        mismatch(value, &format!("Go struct field {owner}.{field} of type {wanted}"))
    }

    fn boolean(&self, field: &str) -> Result<Option<bool>, Refusal> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong(other, field, "bool")),
        }
    }

    fn string(&self, field: &str) -> Result<Option<&'a str>, Refusal> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(other, field, "string")),
        }
    }

    fn list(&self, field: &str, wanted: &str) -> Result<Option<&'a Vec<Value>>, Refusal> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(other, field, wanted)),
        }
    }

    fn messages(&self) -> Result<Vec<Message>, Refusal> {
        let list = self.list("messages", "[]api.Message")?;
        list.into_iter().flatten().map(|item| self.message(item)).collect()
    }

    fn message(&self, item: &Value) -> Result<Message, Refusal> {
        let Value::Object(fields) = item else {
            return Err(self.wrong(item, "messages", "api.Message"));
        };
        let text = |key: &str| match fields.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(self.wrong(other, &format!("messages.{key}"), "string")),
        };
        let mut content = text("content")?;
        // The templates write the calls of an assistant's message as text.
        if let Some(Value::Array(calls)) = fields.get("tool_calls") {
            for call in calls {
                content.push_str(&format!(" {call}"));
            }
        }
        Ok(Message { role: text("role")?.to_lowercase(), content })
    }

    fn prompt(&self) -> Result<Vec<Message>, Refusal> {
        let prompt = self.string("prompt")?.unwrap_or_default();
        if prompt.is_empty() {
            return Ok(Vec::new());
        }
        let system = self.string("system")?.unwrap_or_default();
        let mut messages = Vec::new();
        if !system.is_empty() {
            messages.push(Message { role: "system".to_owned(), content: system.to_owned() });
        }
        messages.push(Message { role: "user".to_owned(), content: prompt.to_owned() });
        Ok(messages)
    }

    fn think(&self) -> Result<Option<bool>, Refusal> {
        match self.fields.get("think") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(Value::String(level))
                if ["low", "medium", "high", "max"].contains(&level.as_str()) =>
            {
                Ok(Some(true))
            }
            Some(other) => Err(Refusal::bad_request(format!(
                "invalid think value: {other} (must be \"high\", \"medium\", \"low\", true, or \
                 false)"
            ))),
        }
    }

    fn options(&self) -> Result<(RunnerOptions, Sampling), Refusal> {
        match self.fields.get("options") {
            None | Some(Value::Null) => Ok(Default::default()),
            Some(Value::Object(options)) => {
                let wrong = |error| Refusal::new(500, error);
                let runner = RunnerOptions::read(options).map_err(wrong)?;
                Ok((runner, Sampling::read(options).map_err(wrong)?))
            }
            Some(other) => Err(self.wrong(other, "options", "map[string]interface {}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(endpoint: Endpoint, body: &str) -> (u16, String) {
        let refusal = decode(endpoint, body.as_bytes()).expect_err(body);
        (refusal.status, refusal.error)
    }

    #[test]
    fn wrong_bodies_get_the_words_of_go() {
        let chat = Endpoint::Chat;
        let table = [
            ("", 400, "missing request body"),
            ("{", 400, "unexpected EOF"),
            ("x", 400, "invalid character 'x' looking for beginning of value"),
            ("{}", 400, "model is required"),
            (
                r#"{"model":"m","stream":"yes"}"#,
                400,
                "json: cannot unmarshal string into Go struct field ChatRequest.stream of type \
                 bool",
            ),
            (
                r#"{"model":"m","messages":[{"role":"user","content":[]}]}"#,
                400,
                "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of \
                 type string",
            ),
            (
                r#"{"model":"m","options":{"num_ctx":"big"}}"#,
                500,
                "option \"num_ctx\" must be of type integer",
            ),
            (r#"{"model":"m","keep_alive":"5"}"#, 400, "time: missing unit in duration \"5\""),
            (
                r#"{"model":"m","format":"xml"}"#,
                500,
                "invalid format: \"xml\"; expected \"json\" or a valid JSON Schema object",
            ),
        ];
        for (body, status, text) in table {
            assert_eq!(error(chat, body), (status, text.to_owned()), "{body}");
        }
    }

    #[test]
    fn what_our_client_must_not_send_is_found() {
        let good = r#"{"model":"m","think":false,"truncate":false,"options":{"num_predict":1},
            "messages":[{"role":"user","content":"a\n\tb"}]}"#;
        assert!(forbidden(good.as_bytes()).is_empty());
        assert!(forbidden(br#"{"model":"m","messages":[],"keep_alive":-1}"#).is_empty());
        let bad = r#"{"model":"m","think":true,"options":{"num_predict":0},
            "messages":[{"role":"critic","content":"a\u0007"}]}"#;
        let expected = ["control", "num_predict", "role", "think", "truncate"];
        assert_eq!(forbidden(bad.as_bytes()), expected.into());
        assert_eq!(forbidden(b"{").into_iter().collect::<Vec<_>>(), ["body"]);
    }

    #[test]
    fn a_prompt_becomes_messages_and_an_empty_one_is_a_load() {
        let body = br#"{"model":"m","system":"S","prompt":"P"}"#;
        let request = decode(Endpoint::Generate, body).unwrap();
        assert_eq!(request.messages.len(), 2);
        assert!(request.stream && request.truncate && request.shift);
        assert!(decode(Endpoint::Generate, br#"{"model":"m","prompt":""}"#).unwrap().is_load());
        assert!(decode(Endpoint::Chat, br#"{"model":"m","messages":[]}"#).unwrap().is_load());
    }
}
