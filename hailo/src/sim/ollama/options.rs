//! The `options` object (pure): which options are the identity of a runner, so that a change of
//! one makes Ollama load the model again, and which only steer one answer.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Options that a runner is started with.
const RUNNER_INTEGERS: [&str; 5] = ["num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread"];

/// Integer options of one answer.
const INTEGERS: [&str; 5] = ["num_keep", "seed", "num_predict", "top_k", "repeat_last_n"];

/// Floating point options of one answer.
const FLOATS: [&str; 7] = [
    "top_p",
    "min_p",
    "typical_p",
    "temperature",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
];

/// What a runner was, or would have to be, started with. Two requests with different ones cannot
/// share a runner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RunnerOptions {
    /// Option by name; what is absent has the server's default.
    values: BTreeMap<&'static str, i64>,
}

/// Options of one answer, as far as the simulator acts on them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Sampling {
    /// Tokens the answer may have; absent or negative is bounded by the context only.
    pub(super) num_predict: Option<i64>,
    /// Makes an answer repeatable.
    pub(super) seed: Option<i64>,
}

impl RunnerOptions {
    /// Reads them; an error is the server's text.
    pub(super) fn read(options: &Map<String, Value>) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        for name in RUNNER_INTEGERS {
            if let Some(value) = integer(options, name)? {
                values.insert(name, value);
            }
        }
        if let Some(value) = options.get("use_mmap").filter(|value| !value.is_null()) {
            let wrong = || "option \"use_mmap\" must be of type boolean".to_owned();
            values.insert("use_mmap", i64::from(value.as_bool().ok_or_else(wrong)?));
        }
        Ok(Self { values })
    }

    /// Fills in the defaults that would otherwise make an absent value differ from the same value
    /// spelt out. A context below four tokens is raised, as the scheduler does.
    pub(super) fn resolved(mut self, num_ctx_default: u32) -> Self {
        let num_ctx = self.values.entry("num_ctx").or_insert(i64::from(num_ctx_default));
        *num_ctx = (*num_ctx).max(4);
        for (name, default) in [("num_batch", 512), ("num_thread", 0), ("num_gpu", -1)] {
            self.values.entry(name).or_insert(default);
        }
        self
    }

    /// Context of one slot, in tokens.
    pub(super) fn num_ctx(&self) -> usize {
        self.values.get("num_ctx").and_then(|value| usize::try_from(*value).ok()).unwrap_or(4)
    }

    /// For the control port and the log.
    pub(super) fn as_map(&self) -> BTreeMap<String, i64> {
        self.values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }
}

impl Sampling {
    /// Reads them; an error is the server's text.
    pub(super) fn read(options: &Map<String, Value>) -> Result<Self, String> {
        for name in FLOATS {
            let value = options.get(name).filter(|value| !value.is_null());
            if value.is_some_and(|value| !value.is_number()) {
                return Err(format!("option {name:?} must be of type float32"));
            }
        }
        for name in INTEGERS {
            integer(options, name)?;
        }
        if options.get("stop").is_some_and(|stop| !stop.is_array() && !stop.is_null()) {
            return Err("option \"stop\" must be of type array".to_owned());
        }
        Ok(Self { num_predict: integer(options, "num_predict")?, seed: integer(options, "seed")? })
    }
}

/// An integer as Go reads it: any number, its fraction dropped.
fn integer(options: &Map<String, Value>, name: &str) -> Result<Option<i64>, String> {
    match options.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => {
            Ok(number.as_i64().or_else(|| number.as_f64().map(|value| value as i64)))
        }
        Some(_) => Err(format!("option {name:?} must be of type integer")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn runner(options: &Value) -> RunnerOptions {
        RunnerOptions::read(options.as_object().unwrap()).unwrap().resolved(4096)
    }

    #[test]
    fn only_runner_options_make_another_runner() {
        let base = runner(&json!({"num_ctx": 2048, "num_thread": 4}));
        assert_eq!(base, runner(&json!({"num_ctx": 2048, "num_thread": 4, "seed": 7, "top_k": 1})));
        assert_eq!(runner(&json!({})), runner(&json!({"num_ctx": 4096})));
        for other in [
            json!({"num_ctx": 4096, "num_thread": 4}),
            json!({"num_ctx": 2048}),
            json!({"num_ctx": 2048, "num_thread": 4, "use_mmap": false}),
        ] {
            assert_ne!(base, runner(&other), "{other}");
        }
        assert_eq!(runner(&json!({"num_ctx": 1})).num_ctx(), 4);
    }

    #[test]
    fn unknown_options_pass_and_wrong_types_do_not() {
        let read = |options: Value| Sampling::read(options.as_object().unwrap());
        assert_eq!(
            read(json!({"num_predict": 7.9, "mirostat": "x"})).unwrap().num_predict,
            Some(7)
        );
        assert!(read(json!({"temperature": "hot"})).unwrap_err().contains("float32"));
        assert!(read(json!({"stop": "x"})).unwrap_err().contains("array"));
        assert!(read(json!({"seed": [1]})).unwrap_err().contains("integer"));
    }
}
