//! Happenings as they are read back from the database.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A stored happening.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its place: higher is later. Numbers may be missing, and none is given twice.
    pub id: u64,
    /// When, in milliseconds since 1970, by the machine's clock then.
    pub at_ms: i64,
    /// `fault`, `body`, `turn` or `beat`.
    pub group: String,
    /// `error`, `warn` or `info`.
    pub severity: String,
    /// What, see `Event::name`.
    pub kind: String,
    /// The event's fields.
    pub body: Value,
}

/// Which happenings are wanted, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those after this place.
    After(u64),
    /// Those after this place that are not older than this moment.
    Since {
        /// In milliseconds since 1970.
        at_ms: i64,
        /// The place.
        after: u64,
    },
    /// The newest.
    Last,
}

/// A value in which every number that came from a single-precision one has the digits of that one:
/// 48.3, not 48.29999923706055.
#[must_use]
pub fn short_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let single = number.as_f64().map(|double| double as f32);
            let short = single.filter(|single| Some(f64::from(*single)) == number.as_f64());
            short
                .and_then(|single| single.to_string().parse().ok())
                .and_then(serde_json::Number::from_f64)
                .map_or(Value::Number(number), Value::Number)
        }
        Value::Array(items) => items.into_iter().map(short_numbers).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, short_numbers(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn single_precision_numbers_get_their_own_digits_back() {
        let long = json!({ "a": [48.3_f32, 0.1_f64, 7], "b": { "c": 1.0_f32 } });
        assert_eq!(short_numbers(long), json!({ "a": [48.3, 0.1, 7], "b": { "c": 1.0 } }));
    }
}
