//! Strict decoding of request bodies: a known field of the wrong type is an error, an unknown one
//! is nothing, null is absent. What is wrong is only said in the log: the server does not tell.

use serde_json::{Map, Value};

use crate::{model::Release, sim::voice::Said};

/// A decoded chat, generate or v1 request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Request {
    pub(super) model: String,
    /// `None`: load or unload.
    pub(super) messages: Option<Vec<Said>>,
    pub(super) tools: bool,
    pub(super) stream: bool,
    pub(super) keep_alive: Option<i64>,
    /// As the server stores it: a negative number wraps round.
    pub(super) num_predict: Option<u32>,
    pub(super) top_k: Option<i64>,
    pub(super) frequency_penalty: Option<f64>,
    /// v1 only.
    pub(super) n: Option<i64>,
}

/// A field the decoder stumbled over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch(pub(super) &'static str);

type Decoded<T> = Result<T, Mismatch>;

/// `POST /api/chat`.
pub(super) fn chat(body: &[u8], release: Release) -> Decoded<Request> {
    let fields = object(body)?;
    Ok(Request { messages: messages(&fields)?, ..common(&fields, release)? })
}

/// `POST /api/generate`: the prompt becomes one user message, an empty one too.
pub(super) fn generate(body: &[u8], release: Release) -> Decoded<Request> {
    let fields = object(body)?;
    for ignored in ["system", "template", "suffix"] {
        text(&fields, ignored)?;
    }
    flag(&fields, "raw")?;
    let messages =
        text(&fields, "prompt")?.map(|prompt| vec![Said { role: "user".into(), content: prompt }]);
    Ok(Request { messages, ..common(&fields, release)? })
}

/// `POST /v1/chat/completions`.
pub(super) fn openai(body: &[u8]) -> Decoded<Request> {
    let fields = object(body)?;
    number(&fields, "temperature")?;
    number(&fields, "top_p")?;
    integer(&fields, "seed")?;
    let limit = integer(&fields, "max_completion_tokens")?.or(integer(&fields, "max_tokens")?);
    Ok(Request {
        model: text(&fields, "model")?.ok_or(Mismatch("model"))?,
        messages: Some(messages(&fields)?.ok_or(Mismatch("messages"))?),
        stream: flag(&fields, "stream")?.unwrap_or(false),
        num_predict: limit.map(wrapped),
        frequency_penalty: number(&fields, "frequency_penalty")?,
        n: integer(&fields, "n")?,
        ..Request::default()
    })
}

/// The `model` and `stream` of show, delete and pull.
pub(super) fn named(body: &[u8]) -> Decoded<(String, bool)> {
    let fields = object(body)?;
    let model = text(&fields, "model")?.ok_or(Mismatch("model"))?;
    Ok((model, flag(&fields, "stream")?.unwrap_or(true)))
}

fn common(fields: &Map<String, Value>, release: Release) -> Decoded<Request> {
    let tools = match (get(fields, "tools"), release) {
        (None, _) => false,
        // 5.1.1 declares the field as a string and does nothing with it.
        (Some(Value::String(_)), Release::V5_1_1) => false,
        (Some(Value::Array(list)), Release::V5_3 | Release::V5_4) => !list.is_empty(),
        (Some(_), _) => return Err(Mismatch("tools")),
    };
    text(fields, "format")?;
    let none = Map::new();
    let options = match get(fields, "options") {
        None => &none,
        Some(Value::Object(options)) => options,
        Some(_) => return Err(Mismatch("options")),
    };
    number(options, "temperature")?;
    number(options, "top_p")?;
    integer(options, "seed")?;
    flag(options, "use_mlock")?;
    Ok(Request {
        model: text(fields, "model")?.ok_or(Mismatch("model"))?,
        messages: None,
        tools,
        stream: flag(fields, "stream")?.unwrap_or(true),
        keep_alive: integer(fields, "keep_alive")?,
        num_predict: integer(options, "num_predict")?.map(wrapped),
        top_k: integer(options, "top_k")?,
        frequency_penalty: number(options, "frequency_penalty")?,
        n: None,
    })
}

fn object(body: &[u8]) -> Decoded<Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(Mismatch("body")),
    }
}

fn messages(fields: &Map<String, Value>) -> Decoded<Option<Vec<Said>>> {
    let list = match get(fields, "messages") {
        None => return Ok(None),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Mismatch("messages")),
    };
    let one = |message: &Value| {
        let fields = message.as_object().ok_or(Mismatch("messages"))?;
        let part = |name| text(fields, name).map(Option::unwrap_or_default);
        Ok(Said { role: part("role")?, content: part("content")? })
    };
    list.iter().map(one).collect::<Decoded<Vec<_>>>().map(Some)
}

/// An unsigned 32-bit field filled from a signed number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the server does")]
fn wrapped(number: i64) -> u32 {
    number as u32
}

fn get<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn field<T>(
    fields: &Map<String, Value>,
    name: &'static str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Decoded<Option<T>> {
    get(fields, name).map(|value| read(value).ok_or(Mismatch(name))).transpose()
}

fn text(fields: &Map<String, Value>, name: &'static str) -> Decoded<Option<String>> {
    field(fields, name, |value| value.as_str().map(str::to_owned))
}

fn integer(fields: &Map<String, Value>, name: &'static str) -> Decoded<Option<i64>> {
    field(fields, name, Value::as_i64)
}

fn number(fields: &Map<String, Value>, name: &'static str) -> Decoded<Option<f64>> {
    field(fields, name, Value::as_f64)
}

fn flag(fields: &Map<String, Value>, name: &'static str) -> Decoded<Option<bool>> {
    field(fields, name, Value::as_bool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Release::{V5_1_1, V5_4};

    #[test]
    fn types_are_strict_and_unknown_fields_are_nothing() {
        for (body, wrong) in [
            (r#"{"model":"m","tools":[]}"#, "tools"),
            (r#"{"model":"m","format":{}}"#, "format"),
            (r#"{"model":"m","keep_alive":"5m"}"#, "keep_alive"),
            (r#"{"model":"m","keep_alive":1.5}"#, "keep_alive"),
            (r#"{"name":"m"}"#, "model"),
            (r#"{"model":"m","messages":[{"role":"user","content":[]}]}"#, "content"),
            (r#"{"model":"m","options":{"num_predict":"9"}}"#, "num_predict"),
            (r#"{"model":"m","stream":"yes"}"#, "stream"),
            ("[]", "body"),
            ("", "body"),
        ] {
            assert_eq!(chat(body.as_bytes(), V5_1_1), Err(Mismatch(wrong)), "{body}");
        }
        let fine = br#"{"model":"m","format":"json","think":true,"x":{},"keep_alive":null}"#;
        assert!(chat(fine, V5_1_1).is_ok());
    }

    #[test]
    fn tools_are_a_list_in_newer_releases() {
        assert!(!chat(br#"{"model":"m","tools":[]}"#, V5_4).unwrap().tools);
        assert!(chat(br#"{"model":"m","tools":[{}]}"#, V5_4).unwrap().tools);
        assert!(chat(br#"{"model":"m","tools":"x"}"#, V5_4).is_err());
    }

    #[test]
    fn a_negative_limit_wraps_and_an_empty_prompt_is_a_prompt() {
        let request = chat(br#"{"model":"m","options":{"num_predict":-1}}"#, V5_4).unwrap();
        assert_eq!(request.num_predict, Some(u32::MAX));
        let request = generate(br#"{"model":"m","prompt":"","system":"s"}"#, V5_4).unwrap();
        assert_eq!(request.messages.unwrap()[0].content, "");
    }
}
