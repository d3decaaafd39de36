//! The checked values of all keys, with where each came from (pure).

use std::collections::BTreeMap;
use std::fmt;

use super::key::{AnyKey, Key, Reload, Spec, Typed};
use super::secrets::HIDDEN;
use super::sections::SECTIONS;
use super::value::Value;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The program's default.
    Default,
    /// The file.
    File {
        /// Line, from 1.
        line: usize,
    },
    /// An environment variable named in the file.
    Environment {
        /// The variable.
        name: String,
        /// Line, from 1.
        line: usize,
    },
    /// A systemd credential named in the file.
    Credential {
        /// The credential.
        name: String,
        /// Line, from 1.
        line: usize,
    },
}

impl Source {
    /// The line in the file, if the file names the key.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Default => None,
            Self::File { line }
            | Self::Environment { line, .. }
            | Self::Credential { line, .. } => Some(*line),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { line } => write!(f, "line {line}"),
            Self::Environment { name, line } => write!(f, "line {line}, ${{{name}}}"),
            Self::Credential { name, line } => write!(f, "line {line}, ${{credential:{name}}}"),
        }
    }
}

/// A value and its source.
#[derive(Clone, PartialEq)]
struct Held {
    value: Value,
    source: Source,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.shown(), self.source)
    }
}

impl Held {
    /// The value for people; hidden if it is secret by type or by source.
    fn shown(&self) -> String {
        match self.source {
            Source::Credential { .. } => HIDDEN.into(),
            _ => show(&self.value),
        }
    }
}

/// The values of all keys. A key that is not in the file has its default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Values {
    set: BTreeMap<&'static str, Held>,
}

/// One line of the table of effective values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// Dotted path.
    pub path: &'static str,
    /// The value as YAML would have it; secrets as asterisks.
    pub value: String,
    /// Where it came from.
    pub source: Source,
}

impl Values {
    /// The value of a key.
    #[must_use]
    pub fn get<T: Typed>(&self, key: &Key<T>) -> T {
        match self.set.get(key.path()) {
            Some(held) => T::read(&held.value),
            None => T::read(&key.spec().default_value()),
        }
    }

    /// Where the value of the key at `path` came from.
    #[must_use]
    pub fn source(&self, path: &str) -> Source {
        self.set.get(path).map_or(Source::Default, |held| held.source.clone())
    }

    /// The file's line for the key at `path`, or 0.
    #[must_use]
    pub fn line(&self, path: &str) -> usize {
        self.source(path).line().unwrap_or(0)
    }

    /// All values in the order of the document.
    #[must_use]
    pub fn effective(&self) -> Vec<Effective> {
        let specs = SECTIONS.iter().flat_map(|section| section.keys).map(|key| key.spec());
        specs
            .map(|spec| Effective {
                path: spec.path,
                value: self.shown(spec),
                source: self.source(spec.path),
            })
            .collect()
    }

    /// True if both have the same value for the key, wherever it came from.
    pub(super) fn same(&self, other: &Self, spec: &Spec) -> bool {
        self.value(spec) == other.value(spec)
    }

    /// These values, with those of `newer` for the keys that take effect without a restart.
    #[must_use]
    pub(super) fn with_live_of(&self, newer: &Self) -> Self {
        let mut merged = self.clone();
        for key in SECTIONS.iter().flat_map(|section| section.keys) {
            let Spec { path, reload, .. } = *key.spec();
            // What did not change is taken too, as its line may have.
            if reload == Reload::Live || self.same(newer, key.spec()) {
                match newer.set.get(path) {
                    Some(held) => merged.set.insert(path, held.clone()),
                    None => merged.set.remove(path),
                };
            }
        }
        merged
    }

    pub(super) fn set(&mut self, path: &'static str, value: Value, source: Source) {
        self.set.insert(path, Held { value, source });
    }

    pub(super) fn is_set(&self, path: &str) -> bool {
        self.set.contains_key(path)
    }

    pub(super) fn shown(&self, spec: &Spec) -> String {
        self.set.get(spec.path).map_or_else(|| show(&spec.default_value()), Held::shown)
    }

    fn value(&self, spec: &Spec) -> Value {
        self.set.get(spec.path).map_or_else(|| spec.default_value(), |held| held.value.clone())
    }
}

/// A value as YAML would have it; a secret as asterisks, or as an empty text if there is none.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Nothing => "null".into(),
        Value::Flag(flag) => flag.to_string(),
        Value::Whole(whole) => whole.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::Word(word) => (*word).into(),
        Value::Channels(channels) => format!("{:?}", channels.to_string()),
        Value::Time(time) => format!("\"{:02}:{:02}\"", time.hour(), time.minute()),
        Value::Zone(zone) => zone.name.clone(),
        Value::Url(url) => url.to_string(),
        Value::Address(address) => format!("\"{address}\""),
        Value::List(list) => format!("[{}]", list.join(", ")),
        Value::Secret(secret) if secret.is_empty() => "\"\"".into(),
        Value::Secret(_) => HIDDEN.into(),
    }
}
