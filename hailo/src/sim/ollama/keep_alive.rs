//! The `keep_alive` field in all its forms (pure): seconds as a number, a Go duration as a string,
//! negative for ever, zero for unload at once.

use std::time::Duration;

use serde_json::Value;

/// How long a model stays loaded after its last request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepAlive {
    /// Until something else needs the memory.
    Forever,
    /// From the end of the request; zero unloads at once.
    For(Duration),
}

impl KeepAlive {
    /// Ollama's default, five minutes.
    pub(super) const DEFAULT: Self = Self::For(Duration::from_secs(300));

    /// Whether the model goes as soon as it is idle.
    pub(super) fn is_zero(self) -> bool {
        self == Self::For(Duration::ZERO)
    }
}

/// Reads the field. The error is the server's text for a 400.
pub(super) fn parse(value: &Value) -> Result<KeepAlive, String> {
    match value {
        Value::Number(number) => {
            let seconds = number.as_f64().unwrap_or(0.0);
            Ok(from_seconds(seconds))
        }
        Value::String(text) => go_duration(text).map(from_seconds),
        Value::Bool(_) => Err("Unsupported type: 'bool'".to_owned()),
        Value::Array(_) => Err("Unsupported type: '[]interface {}'".to_owned()),
        Value::Object(_) => Err("Unsupported type: 'map[string]interface {}'".to_owned()),
        Value::Null => Ok(KeepAlive::DEFAULT),
    }
}

fn from_seconds(seconds: f64) -> KeepAlive {
    if seconds < 0.0 {
        return KeepAlive::Forever;
    }
    Duration::try_from_secs_f64(seconds).map_or(KeepAlive::Forever, KeepAlive::For)
}

/// Go's `time.ParseDuration`, in seconds.
fn go_duration(text: &str) -> Result<f64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
        None => return Err(invalid()),
    };
    if rest == "0" {
        return Ok(0.0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = &rest[..letters];
        rest = &rest[letters..];
        total += number
            * match unit {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "" => return Err(format!("time: missing unit in duration {text:?}")),
                other => {
                    return Err(format!("time: unknown unit {other:?} in duration {text:?}"));
                }
            };
    }
    Ok(if negative { -total } else { total })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_is_understood() {
        let table = [
            (json!(30), KeepAlive::For(Duration::from_secs(30))),
            (json!(0), KeepAlive::For(Duration::ZERO)),
            (json!(-1), KeepAlive::Forever),
            (json!("5m"), KeepAlive::For(Duration::from_secs(300))),
            (json!("1h30m"), KeepAlive::For(Duration::from_secs(5400))),
            (json!("1.5s"), KeepAlive::For(Duration::from_millis(1500))),
            (json!("0"), KeepAlive::For(Duration::ZERO)),
            (json!("-1m"), KeepAlive::Forever),
            (json!(null), KeepAlive::DEFAULT),
        ];
        for (value, expected) in table {
            assert_eq!(parse(&value), Ok(expected), "{value}");
        }
    }

    #[test]
    fn other_forms_are_refused_with_the_words_of_go() {
        let table = [
            (json!("-1"), "time: missing unit in duration \"-1\""),
            (json!("soon"), "time: invalid duration \"soon\""),
            (json!("5x"), "time: unknown unit \"x\" in duration \"5x\""),
            (json!(""), "time: invalid duration \"\""),
            (json!(true), "Unsupported type: 'bool'"),
        ];
        for (value, expected) in table {
            assert_eq!(parse(&value), Err(expected.to_owned()), "{value}");
        }
    }
}
