//! A value that satisfies a JSON schema (pure, seeded): what a model under a grammar would write.
//!
//! Covers what the product sends: enums, constants, strings with length bounds, integers and
//! numbers with ranges, booleans, arrays with item counts, nested objects, `anyOf`/`oneOf`, and
//! local `$ref`. Patterns and formats are not read.

use serde_json::{Map, Value};

/// Deeper schemas end in null; recursion through `$ref` would otherwise not end.
const DEPTH_MAX: u32 = 24;

/// Words from which strings are made.
const WORDS: [&str; 12] = [
    "harbour", "lamp", "quiet", "river", "signal", "garden", "copper", "morning", "window",
    "paper", "north", "kettle",
];

/// A value for `schema`, or any JSON object for `"json"`.
pub(super) fn value_for(schema: &Value, rng: &mut fastrand::Rng) -> Value {
    Writer { root: schema, rng }.value(schema, 0)
}

struct Writer<'a> {
    root: &'a Value,
    rng: &'a mut fastrand::Rng,
}

impl<'a> Writer<'a> {
    fn value(&mut self, schema: &'a Value, depth: u32) -> Value {
        if depth > DEPTH_MAX {
            return Value::Null;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = self.root.pointer(target.trim_start_matches('#'));
            return target.map_or(Value::Null, |schema| self.value(schema, depth + 1));
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(choice) = self.choice(schema.get("enum")) {
            return choice.clone();
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choice) = self.choice(schema.get(key)) {
                return self.value(choice, depth + 1);
            }
        }
        match self.type_of(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" => self.integer(schema),
            "number" => self.number(schema),
            "boolean" => Value::Bool(self.rng.bool()),
            "null" => Value::Null,
            _ => Value::String(self.string(schema)),
        }
    }

    fn choice(&mut self, list: Option<&'a Value>) -> Option<&'a Value> {
        let list = list?.as_array()?;
        if list.is_empty() { None } else { list.get(self.rng.usize(..list.len())) }
    }

    fn type_of(&mut self, schema: &'a Value) -> &'a str {
        match schema.get("type") {
            Some(Value::String(name)) => name,
            Some(list @ Value::Array(_)) => {
                self.choice(Some(list)).and_then(Value::as_str).unwrap_or("string")
            }
            _ if schema.get("properties").is_some() => "object",
            _ if schema.get("items").is_some() => "array",
            _ => "string",
        }
    }

    fn object(&mut self, schema: &'a Value, depth: u32) -> Value {
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut object = Map::new();
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                if required.contains(&name.as_str()) || self.rng.bool() {
                    object.insert(name.clone(), self.value(property, depth + 1));
                }
            }
        }
        Value::Object(object)
    }

    fn array(&mut self, schema: &'a Value, depth: u32) -> Value {
        let least = bound(schema, "minItems").unwrap_or(0);
        let most = bound(schema, "maxItems").unwrap_or(least.max(2)).max(least);
        let count = self.rng.u64(least..=most.min(least + 3));
        let items = schema.get("items").unwrap_or(&Value::Null);
        Value::Array((0..count).map(|_| self.value(items, depth + 1)).collect())
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let (low, high) = range(schema, 1.0);
        Value::from(self.rng.i64(low.ceil() as i64..=(high.floor() as i64).max(low.ceil() as i64)))
    }

    fn number(&mut self, schema: &Value) -> Value {
        let (low, high) = range(schema, 1e-3);
        let hundredths = ((low + (high - low) * self.rng.f64()) * 100.0).round() / 100.0;
        Value::from(hundredths.clamp(low, high))
    }

    fn string(&mut self, schema: &Value) -> String {
        let least = bound(schema, "minLength").unwrap_or(0) as usize;
        let most = bound(schema, "maxLength").map_or(usize::MAX, |most| most as usize);
        let words = self.rng.usize(1..=5);
        let mut text = String::new();
        let mut count = 0;
        while count < words || text.len() < least {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(WORDS[self.rng.usize(..WORDS.len())]);
            count += 1;
        }
        text.truncate(most.max(least));
        text
    }
}

fn bound(schema: &Value, key: &str) -> Option<u64> {
    schema.get(key).and_then(Value::as_u64)
}

/// Inclusive range of a number; `step` is how far an exclusive bound is moved inwards.
fn range(schema: &Value, step: f64) -> (f64, f64) {
    let get = |key: &str| schema.get(key).and_then(Value::as_f64);
    let low = get("minimum").or_else(|| get("exclusiveMinimum").map(|low| low + step));
    let high = get("maximum").or_else(|| get("exclusiveMaximum").map(|high| high - step));
    match (low, high) {
        (Some(low), Some(high)) => (low, high.max(low)),
        (Some(low), None) => (low, low + 100.0),
        (None, Some(high)) => (high - 100.0, high),
        (None, None) => (0.0, 100.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_bound_of_a_schema_is_kept_under_many_seeds() {
        let schema = json!({
            "type": "object",
            "properties": {
                "verb": {"enum": ["THINK", "ACT"]},
                "note": {"type": "string", "minLength": 3, "maxLength": 9},
                "score": {"type": "integer", "minimum": 1, "maximum": 5},
                "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                "sure": {"type": "boolean"},
                "steps": {"type": "array", "minItems": 2, "maxItems": 4,
                    "items": {"$ref": "#/$defs/step"}},
                "kind": {"const": "plan"},
                "either": {"anyOf": [{"type": "null"}, {"type": "string"}]}
            },
            "required": ["verb", "note", "score", "share", "sure", "steps", "kind", "either"],
            "$defs": {"step": {"type": "object", "required": ["n"],
                "properties": {"n": {"type": "integer"}}}}
        });
        for seed in 0..200 {
            let value = value_for(&schema, &mut fastrand::Rng::with_seed(seed));
            assert!(["THINK", "ACT"].contains(&value["verb"].as_str().unwrap()), "{value}");
            assert!((3..=9).contains(&value["note"].as_str().unwrap().len()), "{value}");
            assert!((1..=5).contains(&value["score"].as_i64().unwrap()), "{value}");
            let share = value["share"].as_f64().unwrap();
            assert!(share > 0.0 && share <= 1.0, "{value}");
            assert!(value["sure"].is_boolean(), "{value}");
            let steps = value["steps"].as_array().unwrap();
            assert!((2..=4).contains(&steps.len()), "{value}");
            assert!(steps.iter().all(|step| step["n"].is_i64()), "{value}");
            assert_eq!(value["kind"], "plan");
            assert!(value["either"].is_null() || value["either"].is_string(), "{value}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({"type": "object", "required": ["next"],
            "properties": {"next": {"$ref": "#"}}});
        let value = value_for(&schema, &mut fastrand::Rng::with_seed(1));
        assert!(value["next"].is_object());
    }
}
