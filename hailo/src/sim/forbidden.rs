//! The fields which no client of ours may ever send, found in the raw body.
//!
//! Some of them are ignored by the real server, some answered with an error and some harmful. The
//! simulator answers each as the real one does; here they are only named, so that they can be
//! counted and a test can demand that there were none.

use serde_json::Value;

/// Which server's rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// hailo-ollama: nothing it cannot do, and nothing that hurts it.
    Hailo,
    /// Ollama: schemas and the thinking switch are allowed there, keep-alive may be a duration.
    Ollama,
}

/// Names of the forbidden things in the body of a chat or generate request, each once, in the
/// order in which they are looked for.
#[must_use]
pub fn found(body: &Value, rules: Rules) -> Vec<&'static str> {
    let mut names = Vec::new();
    let present = |field: &str| body.get(field).is_some_and(|value| !value.is_null());
    let only_hailo: &[&'static str] = &["format", "think", "images", "truncate", "shift"];
    names.extend(["tools"].into_iter().filter(|field| present(field)));
    if rules == Rules::Hailo {
        names.extend(only_hailo.iter().filter(|field| present(field)));
    }
    if !keep_alive_allowed(body.get("keep_alive"), rules) {
        names.push("keep_alive");
    }
    let messages = body.get("messages").and_then(Value::as_array);
    let generates = messages.is_some() || present("prompt");
    options(body.get("options"), generates, &mut names);
    if let Some(messages) = messages {
        match messages.first() {
            None => names.push("messages_empty"),
            Some(first) if first.get("role").and_then(Value::as_str) != Some("system") => {
                names.push("first_message_not_system");
            }
            Some(_) => {}
        }
        let contents = messages.iter().filter_map(|message| message.get("content"));
        if contents.filter_map(Value::as_str).any(has_control) {
            names.push("control_characters");
        }
    }
    if body.get("prompt").and_then(Value::as_str).is_some_and(has_control) {
        names.push("control_characters");
    }
    names
}

fn options(options: Option<&Value>, generates: bool, names: &mut Vec<&'static str>) {
    let get = |field: &str| options.and_then(|all| all.get(field));
    if get("frequency_penalty").is_some_and(|value| !value.is_null()) {
        names.push("frequency_penalty");
    }
    if get("top_k").and_then(Value::as_f64).is_some_and(|k| k < 1.0) {
        names.push("top_k");
    }
    // Without a limit the server decodes until the model stops by itself, or for ever.
    let limit = get("num_predict").and_then(Value::as_f64);
    if generates && limit.is_none_or(|limit| limit < 1.0) {
        names.push("num_predict");
    }
}

fn keep_alive_allowed(value: Option<&Value>, rules: Rules) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Number(number)) => rules == Rules::Ollama || number.is_i64(),
        Some(Value::String(_)) => rules == Rules::Ollama,
        Some(_) => false,
    }
}

/// C0 without line feed and tab, and C1.
fn has_control(text: &str) -> bool {
    text.chars()
        .any(|c| matches!(c, '\0'..='\u{1f}' | '\u{80}'..='\u{9f}') && !matches!(c, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good() -> Value {
        json!({
            "model": "m", "stream": true, "keep_alive": -1,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Tab\tand\nline, ünïcode 🦞"},
            ],
            "options": {"num_predict": 64, "temperature": 0.7, "top_k": 1, "seed": 3},
        })
    }

    #[test]
    fn a_clean_request_has_nothing_forbidden() {
        assert!(found(&good(), Rules::Hailo).is_empty());
        assert!(found(&good(), Rules::Ollama).is_empty());
        assert!(found(&json!({"model": "m", "keep_alive": 0}), Rules::Hailo).is_empty());
    }

    #[test]
    fn each_forbidden_field_is_named() {
        let cases = [
            ("/tools", json!([]), "tools"),
            ("/format", json!("json"), "format"),
            ("/think", json!(false), "think"),
            ("/keep_alive", json!("5m"), "keep_alive"),
            ("/keep_alive", json!(1.5), "keep_alive"),
            ("/options/frequency_penalty", json!(0), "frequency_penalty"),
            ("/options/top_k", json!(0), "top_k"),
            ("/options/num_predict", json!(0), "num_predict"),
            ("/options/num_predict", json!(-1), "num_predict"),
            ("/options/num_predict", Value::Null, "num_predict"),
            ("/messages", json!([]), "messages_empty"),
            ("/messages/0/role", json!("user"), "first_message_not_system"),
            ("/messages/1/content", json!("bell\u{7}"), "control_characters"),
            ("/messages/1/content", json!("c1 \u{85}"), "control_characters"),
        ];
        for (path, value, name) in cases {
            let mut body = good();
            match body.pointer_mut(path) {
                Some(place) => *place = value,
                None => {
                    let (parent, field) = path.rsplit_once('/').unwrap();
                    body.pointer_mut(parent).unwrap()[field] = value;
                }
            }
            assert_eq!(found(&body, Rules::Hailo), [name], "{path}");
        }
    }

    #[test]
    fn ollama_may_be_sent_a_schema_a_thinking_switch_and_durations() {
        let mut body = good();
        body["format"] = json!({"type": "object"});
        body["think"] = json!(false);
        body["truncate"] = json!(false);
        body["keep_alive"] = json!("10m");
        assert!(found(&body, Rules::Ollama).is_empty());
    }
}
