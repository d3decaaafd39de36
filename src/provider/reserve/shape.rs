//! Answers that must follow a JSON schema: which tokens may come next (pure).
//!
//! A schema without recursion, with bounds on its texts and lists, describes a regular language:
//! it is written down as a regular expression and becomes a table, over which a token's bytes are
//! walked before it is chosen. `llguidance` can do more, but brings nine packages and most of a
//! second of preparation; what is used here of schemas needs neither.
//!
//! Every answer follows the schema, but not everything that follows it can be an answer: all
//! properties are given, in the order of the schema, and what it does not bound is bounded by the
//! constants below. Keywords that are not known are refused, because leaving them out would
//! promise what is not kept.

use std::fmt::Write;

use regex_automata::dfa::{Automaton, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use serde_json::{Map, Value};

use super::vocabulary::Vocabulary;

/// Characters of a text that the schema does not bound: two lines.
const TEXT_MAX: u64 = 160;

/// Items of a list that the schema does not bound.
const ITEMS_MAX: u64 = 8;

/// Characters or items that a bound in a schema may ask for: a small model says no more.
const COUNT_MAX: u64 = 1000;

/// Schemas within schemas; deeper ones are a mistake or an attack on the stack.
const DEPTH_MAX: usize = 16;

/// Numbers between two bounds are spelled out, one by one.
const RANGE_MAX: u64 = 1000;

/// Bytes of the table and of its making, each. A schema that needs more is too large for a small
/// model anyway.
const TABLE_BYTES_MAX: usize = 4 << 20;

/// Bytes of what the table is made from: a text of 1000 characters takes a third of it.
const NFA_BYTES_MAX: usize = 1 << 20;

/// Keywords that say nothing about what may be answered.
const REMARKS: [&str; 7] =
    ["title", "description", "default", "examples", "$schema", "$comment", "additionalProperties"];

/// Where an answer stands in its schema.
pub(crate) struct Shape {
    table: dense::DFA<Vec<u32>>,
    state: StateID,
}

impl Shape {
    /// Begins an answer that follows this schema.
    ///
    /// # Errors
    /// What of the schema is not known, or that it is too large.
    pub(crate) fn begin(schema: &Value) -> Result<Self, String> {
        let pattern = pattern(schema, 0)?;
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(regex_automata::dfa::StartKind::Anchored)
            .dfa_size_limit(Some(TABLE_BYTES_MAX))
            .determinize_size_limit(Some(TABLE_BYTES_MAX));
        let table = dense::Builder::new()
            .configure(config)
            .thompson(thompson::Config::new().nfa_size_limit(Some(NFA_BYTES_MAX)))
            .build(&pattern)
            .map_err(|error| format!("the schema cannot be kept to: {error}"))?;
        let start = start::Config::new().anchored(Anchored::Yes);
        let state = table.start_state(&start).map_err(|error| error.to_string())?;
        Ok(Self { table, state })
    }

    /// Rules out what may not come next.
    pub(crate) fn restrict(&self, logits: &mut [f32], words: &Vocabulary, file: &[u8]) {
        let done = self.table.is_match_state(self.table.next_eoi_state(self.state));
        for (token, logit) in (0..).zip(logits) {
            let mut bytes = words.decode(file, token).peekable();
            let fits = match bytes.peek() {
                Some(_) => self.may_be_followed(self.after(bytes)),
                None => done && token == words.close,
            };
            if !fits {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    /// Takes the bytes of the token that was chosen. True if nothing can follow them.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        self.state = self.after(bytes.iter().copied());
        let next = |byte| self.table.next_state(self.state, byte);
        !(0..=u8::MAX).any(|byte| self.may_be_followed(next(byte)))
    }

    fn after(&self, mut bytes: impl Iterator<Item = u8>) -> StateID {
        let mut state = self.state;
        while !self.table.is_dead_state(state)
            && let Some(byte) = bytes.next()
        {
            state = self.table.next_state(state, byte);
        }
        state
    }

    /// Whether a whole answer can be had from here. Tables tell a match one byte late, so the
    /// state behind a whole answer is no dead one, but nothing comes after it.
    fn may_be_followed(&self, state: StateID) -> bool {
        let table = &self.table;
        !table.is_special_state(state)
            || table.is_match_state(state)
                && (table.is_match_state(table.next_eoi_state(state))
                    || (0..=u8::MAX)
                        .any(|byte| !table.is_dead_state(table.next_state(state, byte))))
    }
}

// === schemas as regular expressions ===

fn pattern(schema: &Value, depth: usize) -> Result<String, String> {
    if depth > DEPTH_MAX {
        return Err("the schema is nested too deeply".to_owned());
    }
    let Value::Object(schema) = schema else {
        return Err(format!("{schema} is no schema that can be kept to"));
    };
    let (choice, known): (String, &[&str]) = if let Some(values) = schema.get("enum") {
        (either(list("enum", values)?.iter().map(|value| Ok(literal(value))))?, &["enum", "type"])
    } else if let Some(value) = schema.get("const") {
        (literal(value), &["const", "type"])
    } else if let Some(schemas) = schema.get("anyOf").or_else(|| schema.get("oneOf")) {
        let each = list("anyOf", schemas)?.iter().map(|schema| pattern(schema, depth + 1));
        (either(each)?, &["anyOf", "oneOf"])
    } else {
        match schema.get("type") {
            Some(Value::String(kind)) => typed(kind, schema, depth)?,
            Some(Value::Array(kinds)) => {
                let mut known: Vec<&str> = vec!["type"];
                let mut each = Vec::new();
                for kind in kinds {
                    let (choice, also) = typed(kind.as_str().unwrap_or(""), schema, depth)?;
                    each.push(Ok(choice));
                    known.extend(also);
                }
                let choice = either(each.into_iter())?;
                refuse_unknown(schema, &known)?;
                return Ok(choice);
            }
            _ => return Err("a schema has no type, enum, const or anyOf".to_owned()),
        }
    };
    refuse_unknown(schema, known)?;
    Ok(choice)
}

fn refuse_unknown(schema: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    let unknown = schema
        .keys()
        .find(|key| !known.contains(&key.as_str()) && !REMARKS.contains(&key.as_str()));
    unknown.map_or(Ok(()), |key| Err(format!("{key:?} in a schema cannot be kept to")))
}

/// The expression of one type, and the keywords that it heeds.
fn typed(
    kind: &str,
    schema: &Map<String, Value>,
    depth: usize,
) -> Result<(String, &'static [&'static str]), String> {
    Ok(match kind {
        "string" => {
            let (least, most) = counts(schema, "minLength", "maxLength", TEXT_MAX)?;
            let character = r#"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])"#;
            let text = format!("\"{character}{{{least},{most}}}\"");
            (text, &["type", "minLength", "maxLength"])
        }
        "integer" => (integer(schema)?, &["type", "minimum", "maximum"]),
        "number" => (r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,6})?".to_owned(), &["type"]),
        "boolean" => ("(?:true|false)".to_owned(), &["type"]),
        "null" => ("null".to_owned(), &["type"]),
        "array" => {
            let (least, most) = counts(schema, "minItems", "maxItems", ITEMS_MAX)?;
            let item = schema.get("items").ok_or("an array without items cannot be kept to")?;
            let item = pattern(item, depth + 1)?;
            (items(&item, least, most), &["type", "items", "minItems", "maxItems"])
        }
        "object" => {
            let none = Value::Object(Map::new());
            let Value::Object(properties) = schema.get("properties").unwrap_or(&none) else {
                return Err("properties are no object".to_owned());
            };
            let mut members = String::from(r"\{");
            for (index, (name, schema)) in properties.iter().enumerate() {
                let comma = if index == 0 { "" } else { ", ?" };
                let name = literal(&Value::String(name.clone()));
                let value = pattern(schema, depth + 1)?;
                // Writing to a string cannot fail.
                let _ = write!(members, "{comma}{name}: ?{value}");
            }
            members.push_str(r"\}");
            (members, &["type", "properties", "required"])
        }
        other => return Err(format!("the type {other:?} in a schema cannot be kept to")),
    })
}

fn items(item: &str, least: u64, most: u64) -> String {
    let more = |least: u64| format!("{item}(?:, ?{item}){{{},{}}}", least, most - 1);
    match (least, most) {
        (_, 0) => r"\[\]".to_owned(),
        (0, _) => format!(r"\[(?:{})?\]", more(0)),
        _ => format!(r"\[{}\]", more(least - 1)),
    }
}

fn integer(schema: &Map<String, Value>) -> Result<String, String> {
    let bound = |key: &str| match schema.get(key) {
        None => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| format!("{key} is no whole number")),
    };
    match (bound("minimum")?, bound("maximum")?) {
        (None, None) => Ok("-?(?:0|[1-9][0-9]{0,14})".to_owned()),
        (Some(0), None) => Ok("(?:0|[1-9][0-9]{0,14})".to_owned()),
        (Some(1), None) => Ok("[1-9][0-9]{0,14}".to_owned()),
        (Some(least), Some(most)) if least <= most && most.abs_diff(least) <= RANGE_MAX => {
            either((least..=most).map(|number| Ok(number.to_string())))
        }
        _ => Err("an integer between these bounds cannot be kept to".to_owned()),
    }
}

fn counts(
    schema: &Map<String, Value>,
    least: &str,
    most: &str,
    usual: u64,
) -> Result<(u64, u64), String> {
    let bound = |key: &str, absent: u64| match schema.get(key) {
        None => Ok(absent),
        Some(value) => match value.as_u64() {
            Some(count) => Ok(count.min(COUNT_MAX)),
            None => Err(format!("{key} is no count")),
        },
    };
    let least = bound(least, 0)?;
    let most = bound(most, usual.max(least))?;
    if least > most {
        return Err("a schema allows nothing: its least is above its most".to_owned());
    }
    Ok((least, most))
}

fn list<'a>(key: &str, value: &'a Value) -> Result<&'a [Value], String> {
    match value {
        Value::Array(values) if !values.is_empty() => Ok(values),
        _ => Err(format!("{key} is no list of choices")),
    }
}

fn either(each: impl Iterator<Item = Result<String, String>>) -> Result<String, String> {
    let each: Result<Vec<String>, String> = each.collect();
    Ok(format!("(?:{})", each?.join("|")))
}

/// A value, and nothing else.
fn literal(value: &Value) -> String {
    let mut escaped = String::new();
    for character in value.to_string().chars() {
        if character.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
