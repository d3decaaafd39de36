//! What comes with a message: who is to answer, and CashCode's selections (pure).
//!
//! The words of the refusals are those that CashCode's clients know.

use serde_json::{Map, Value, json};

/// Skills and connectors that one message may name, from CashCode.
const SELECTIONS_MAX: usize = 8;

/// Longest name of a skill or a connector, from CashCode's patterns.
const NAME_BYTES_MAX: usize = 64;

/// Longest label of a selection in characters, from CashCode.
const LABEL_CHARS_MAX: usize = 100;

/// Longest name of a model in characters, from CashCode.
const MODEL_CHARS_MAX: usize = 256;

/// Providers that CashCode's clients may name.
const PROVIDERS: [&str; 2] = ["openai_compatible", "ollama"];

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// A backend by name, from `metadata.backend`.
    pub backend: Option<String>,
    /// A provider and its model, from `metadata.llm`.
    pub llm: Option<Llm>,
    /// Names of `metadata.mentioned_skills` and `metadata.selected_mcp_connectors`, each once.
    pub selections: Vec<String>,
}

/// What CashCode's clients choose for each message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Llm {
    /// `openai_compatible`, `ollama`, or the name of a backend.
    pub provider: String,
    /// The model.
    pub model: String,
}

impl Metadata {
    /// That and no more.
    #[must_use]
    pub fn for_backend(backend: Option<String>) -> Self {
        Self { backend, ..Self::default() }
    }

    /// Reads the field `metadata` of a message. Keys that are not known are left alone.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(value: Option<&Value>) -> Result<Self, String> {
        let fields = match value {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err("metadata must be an object".to_owned()),
        };
        let backend = match fields.get("backend") {
            None | Some(Value::Null) => None,
            Some(Value::String(backend)) => Some(backend.clone()),
            Some(_) => return Err("metadata.backend must be a string".to_owned()),
        };
        let lists =
            [("mentioned_skills", "name", true), ("selected_mcp_connectors", "server", false)];
        let mut count = 0;
        let mut selections = Vec::new();
        for (field, id, dots) in lists {
            let entries = match fields.get(field) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(entries)) => entries,
                Some(_) => return Err(format!("{field} must be a list")),
            };
            count += entries.len();
            if count > SELECTIONS_MAX {
                let max = SELECTIONS_MAX;
                return Err(format!("at most {max} Skill/MCP selections are allowed"));
            }
            for entry in entries {
                let name = selection(field, id, dots, entry)?;
                if !selections.contains(&name) {
                    selections.push(name);
                }
            }
        }
        Ok(Self { backend, llm: llm(fields.get("llm"))?, selections })
    }

    /// As a client sends it; null if there is nothing in it.
    pub(super) fn to_json(&self) -> Value {
        let mut fields = Map::new();
        if let Some(backend) = &self.backend {
            fields.insert("backend".into(), backend.as_str().into());
        }
        if let Some(Llm { provider, model }) = &self.llm {
            fields.insert("llm".into(), json!({ "provider": provider, "model": model }));
        }
        if fields.is_empty() { Value::Null } else { Value::Object(fields) }
    }
}

impl Llm {
    /// Whether the provider is one of CashCode's two, which name a dialect and not a backend.
    #[must_use]
    pub fn is_dialect(&self) -> bool {
        PROVIDERS.contains(&self.provider.as_str())
    }
}

fn llm(value: Option<&Value>) -> Result<Option<Llm>, String> {
    let fields = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err("llm must be an object".to_owned()),
    };
    let provider = match fields.get("provider") {
        Some(Value::String(provider)) if is_name(provider, true) => provider.clone(),
        _ => return Err("llm.provider is invalid".to_owned()),
    };
    let Some(Value::String(model)) = fields.get("model") else {
        return Err("llm.model must be a string".to_owned());
    };
    let model = model.trim();
    if !(1..=MODEL_CHARS_MAX).contains(&model.chars().count()) || model.contains('\0') {
        return Err("llm.model is invalid".to_owned());
    }
    Ok(Some(Llm { provider, model: model.to_owned() }))
}

fn selection(field: &str, id: &str, dots: bool, entry: &Value) -> Result<String, String> {
    let Value::Object(entry) = entry else {
        return Err(format!("{field} entries must be objects"));
    };
    match entry.get("label") {
        None | Some(Value::Null) => {}
        Some(Value::String(label)) if label.trim().chars().count() <= LABEL_CHARS_MAX => {}
        Some(Value::String(_)) => {
            return Err(format!("{field}.label must be at most {LABEL_CHARS_MAX} characters"));
        }
        Some(_) => return Err(format!("{field}.label must be a string")),
    }
    match entry.get(id) {
        Some(Value::String(name)) if is_name(name, dots) => Ok(name.clone()),
        _ => Err(format!("{field}.{id} is invalid")),
    }
}

/// Whether a text may name a skill, a connector or a backend.
fn is_name(text: &str, dots: bool) -> bool {
    let inner = |b: u8| {
        b.is_ascii_lowercase()
            || b.is_ascii_digit()
            || b == b'_'
            || b == b'-'
            || (dots && b == b'.')
    };
    let first = text.bytes().next();
    text.len() <= NAME_BYTES_MAX
        && first.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(metadata: &Value) -> String {
        Metadata::parse(Some(metadata)).expect_err(&metadata.to_string())
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_that_cashcodes_clients_know() {
        let table = [
            (json!([]), "metadata must be an object"),
            (json!({"backend": 1}), "metadata.backend must be a string"),
            (json!({"llm": []}), "llm must be an object"),
            (json!({"llm": {"model": "m"}}), "llm.provider is invalid"),
            (json!({"llm": {"provider": "x y", "model": "m"}}), "llm.provider is invalid"),
            (json!({"llm": {"provider": "ollama"}}), "llm.model must be a string"),
            (json!({"llm": {"provider": "ollama", "model": " "}}), "llm.model is invalid"),
            (json!({"llm": {"provider": "ollama", "model": "a\0"}}), "llm.model is invalid"),
            (json!({"mentioned_skills": {}}), "mentioned_skills must be a list"),
            (json!({"mentioned_skills": ["a"]}), "mentioned_skills entries must be objects"),
            (json!({"mentioned_skills": [{"name": "../a"}]}), "mentioned_skills.name is invalid"),
            (
                json!({"mentioned_skills": [{"name": "a", "label": 1}]}),
                "mentioned_skills.label must be a string",
            ),
            (
                json!({"selected_mcp_connectors": [{"server": "a.b"}]}),
                "selected_mcp_connectors.server is invalid",
            ),
        ];
        for (metadata, expected) in table {
            assert_eq!(detail(&metadata), expected, "{metadata}");
        }
        let many = vec![json!({"name": "a"}); 9];
        let many = json!({ "mentioned_skills": many });
        assert_eq!(detail(&many), "at most 8 Skill/MCP selections are allowed");
        let long = json!({"mentioned_skills": [{"name": "a", "label": "x".repeat(101)}]});
        assert_eq!(detail(&long), "mentioned_skills.label must be at most 100 characters");
    }

    #[test]
    fn what_is_right_is_kept_once_and_trimmed() {
        let metadata = json!({
            "llm": {"provider": "ollama", "model": " qwen2:1.5b "},
            "mentioned_skills": [{"name": "a.b", "label": "A"}, {"name": "a.b"}],
            "selected_mcp_connectors": [{"server": "github"}],
            "colour": "red",
        });
        let read = Metadata::parse(Some(&metadata)).expect("sound");
        assert_eq!(read.selections, ["a.b", "github"]);
        let llm = read.llm.expect("given");
        assert_eq!((llm.provider.as_str(), llm.model.as_str()), ("ollama", "qwen2:1.5b"));
        assert!(llm.is_dialect());
        assert_eq!(Metadata::parse(Some(&Value::Null)), Ok(Metadata::default()));
    }
}
