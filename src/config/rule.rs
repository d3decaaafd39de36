//! What a key accepts, and how a text of the file becomes a checked value (pure, but that zone
//! names are looked up in the system's time zone database).

use jiff::civil;
use jiff::tz::TimeZone;

use super::channels::{self, Channels};
use super::env::Env;
use super::key::{Fallback, Spec};
use super::secrets::{Expanded, HIDDEN, Origin, Secret, expand};
use super::value::{Value, Zone};
use super::{address, secrets};

/// Longest value quoted in a message, in characters.
const QUOTED_CHARS_MAX: usize = 60;

/// What a key accepts. Bounds are inclusive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
        /// Plural word for messages; may be empty.
        unit: &'static str,
    },
    /// A whole number or `null`.
    MaybeWhole {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
        /// Plural word for messages; may be empty.
        unit: &'static str,
    },
    /// A finite number.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
        /// Plural word for messages; may be empty.
        unit: &'static str,
    },
    /// A finite number or `null`.
    MaybeNumber {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
        /// Plural word for messages; may be empty.
        unit: &'static str,
    },
    /// A text on one line.
    Text {
        /// Shortest, in bytes.
        min: usize,
        /// Longest, in bytes.
        max: usize,
    },
    /// A text on one line or `null`.
    MaybeText {
        /// Longest, in bytes.
        max: usize,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these words or `null`.
    MaybeChoice(&'static [&'static str]),
    /// `HH:MM`.
    TimeOfDay,
    /// An IANA time zone or `system`.
    Zone,
    /// A server's URL.
    Url,
    /// A server's URL or `null`.
    MaybeUrl,
    /// An address to listen on.
    Address,
    /// A list of host names.
    Hosts,
    /// A path.
    Path,
    /// Levels of the mood's channels.
    Channels,
    /// A secret.
    Secret,
}

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong.
    pub says: String,
    /// What to write.
    pub fix: String,
}

impl Wrong {
    pub(super) fn new(says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { says: says.into(), fix: fix.into() }
    }
}

impl Rule {
    /// True if `null` is a value of its own.
    #[must_use]
    pub fn takes_null(&self) -> bool {
        matches!(
            self,
            Self::MaybeWhole { .. }
                | Self::MaybeNumber { .. }
                | Self::MaybeText { .. }
                | Self::MaybeChoice(_)
                | Self::MaybeUrl
                | Self::Secret
        )
    }

    /// The value for `null`, where it is one.
    #[must_use]
    pub fn nothing(&self) -> Value {
        if matches!(self, Self::Secret) { Value::Secret(Secret::default()) } else { Value::Nothing }
    }

    /// True if `${...}` is replaced in it.
    fn expands(&self) -> bool {
        !matches!(
            self,
            Self::Flag
                | Self::Whole { .. }
                | Self::MaybeWhole { .. }
                | Self::Number { .. }
                | Self::MaybeNumber { .. }
        )
    }

    /// Reads a scalar as it stands in the file.
    ///
    /// # Errors
    /// What is wrong and what to write, quoting `raw` unless this is a secret's rule.
    pub fn read(&self, raw: &str, env: &dyn Env) -> Result<(Value, Origin), Wrong> {
        let shown = if matches!(self, Self::Secret) { HIDDEN.into() } else { quote(raw) };
        if !self.expands() {
            return self.read_plain(raw, &shown).map(|value| (value, Origin::Literal));
        }
        let Expanded { text, origin } =
            expand(raw, env).map_err(|secrets::Unexpandable { says, fix }| Wrong { says, fix })?;
        // Who names a variable for a token wants one: without it a door would stand open.
        if matches!(self, Self::Secret) && text.is_empty() && !raw.is_empty() {
            return Err(Wrong::new(
                "what it refers to is empty",
                "set the variable or credential, or write \"\" for no secret",
            ));
        }
        self.read_text(&text, &shown).map(|value| (value, origin))
    }

    /// Reads a list of scalars.
    ///
    /// # Errors
    /// As for [`read`](Self::read), or that the key takes no list.
    pub fn read_list(&self, raws: &[&str], env: &dyn Env) -> Result<(Value, Origin), Wrong> {
        if !matches!(self, Self::Hosts) {
            return Err(Wrong::new("a list where one value is expected", self.hint()));
        }
        let mut hosts = Vec::with_capacity(raws.len());
        let mut origin = Origin::Literal;
        for raw in raws {
            let expanded = expand(raw, env)
                .map_err(|secrets::Unexpandable { says, fix }| Wrong { says, fix })?;
            hosts.push(address::host(&expanded.text, &quote(raw))?);
            if expanded.origin != Origin::Literal {
                origin = expanded.origin;
            }
        }
        Ok((Value::List(hosts), origin))
    }

    fn read_plain(&self, raw: &str, shown: &str) -> Result<Value, Wrong> {
        match *self {
            Self::Whole { min, max, .. } | Self::MaybeWhole { min, max, .. } => {
                let Ok(whole) = raw.replace('_', "").parse::<i64>() else {
                    let says = format!("{shown} is not a whole number");
                    return Err(Wrong::new(says, self.hint()));
                };
                if whole < min || whole > max {
                    return Err(out_of_range(shown, self.hint()));
                }
                Ok(Value::Whole(whole))
            }
            Self::Number { min, max, .. } | Self::MaybeNumber { min, max, .. } => {
                let number = raw.replace('_', "").parse::<f64>().ok().filter(|n| n.is_finite());
                let Some(number) = number else {
                    return Err(Wrong::new(format!("{shown} is not a number"), self.hint()));
                };
                if number < min || number > max {
                    return Err(out_of_range(shown, self.hint()));
                }
                Ok(Value::Number(number))
            }
            _ => match raw {
                "true" | "True" | "TRUE" | "yes" | "Yes" | "on" | "On" => Ok(Value::Flag(true)),
                "false" | "False" | "FALSE" | "no" | "No" | "off" | "Off" => Ok(Value::Flag(false)),
                _ => Err(Wrong::new(format!("{shown} is neither true nor false"), self.hint())),
            },
        }
    }

    fn read_text(&self, text: &str, shown: &str) -> Result<Value, Wrong> {
        if text.chars().any(char::is_control) {
            let says = format!("{shown} contains a line end or control character");
            return Err(Wrong::new(says, "write it on one line"));
        }
        match *self {
            Self::Text { min, max } => read_length(text, shown, min, max),
            Self::MaybeText { .. } | Self::MaybeUrl | Self::MaybeChoice(_) if text.is_empty() => {
                Ok(Value::Nothing)
            }
            Self::MaybeText { max } => read_length(text, shown, 1, max),
            Self::Path => read_length(text, shown, 1, 4096),
            Self::Choice(words) | Self::MaybeChoice(words) => {
                match words.iter().find(|word| **word == text) {
                    Some(word) => Ok(Value::Word(word)),
                    None => {
                        let says = format!("{shown} is not one of {}", words.join(", "));
                        Err(Wrong::new(says, nearest_fix(text, words, &self.hint())))
                    }
                }
            }
            Self::TimeOfDay => read_time(text, shown).map(Value::Time),
            Self::Zone => read_zone(text, shown).map(Value::Zone),
            Self::Url | Self::MaybeUrl => address::url(text, shown).map(Value::Url),
            Self::Address => address::listen(text, shown).map(Value::Address),
            Self::Channels => Channels::read(text, shown).map(Value::Channels),
            Self::Secret if text.trim() != text => Err(Wrong::new(
                "has a space at its start or end",
                "remove it; it would be sent along",
            )),
            Self::Secret => Ok(Value::Secret(Secret::new(text))),
            _ => Err(Wrong::new("one value where a list is expected", self.hint())),
        }
    }

    /// What to write, as the end of a message.
    #[must_use]
    pub fn hint(&self) -> String {
        match *self {
            Self::Flag => "write true or false".into(),
            Self::Whole { min, max, unit } => {
                format!("write a whole number, {}", range(min, max, unit))
            }
            Self::MaybeWhole { min, max, unit } => {
                format!("write null or a whole number, {}", range(min, max, unit))
            }
            Self::Number { min, max, unit } => format!("write a number, {}", range(min, max, unit)),
            Self::MaybeNumber { min, max, unit } => {
                format!("write null or a number, {}", range(min, max, unit))
            }
            Self::Text { .. } => "write a text in quotes".into(),
            Self::MaybeText { .. } => "write null or a text in quotes".into(),
            Self::Choice(words) => format!("write {}", words.join(" or ")),
            Self::MaybeChoice(words) => format!("write null or {}", words.join(" or ")),
            Self::TimeOfDay => "write hours and minutes in quotes, e.g. \"06:30\"".into(),
            Self::Zone => "write an IANA name such as Europe/Berlin, or system".into(),
            Self::Url => "write e.g. http://127.0.0.1:8000".into(),
            Self::MaybeUrl => "write null or e.g. http://192.168.1.20:8080".into(),
            Self::Address => "write e.g. 127.0.0.1".into(),
            Self::Hosts => "write a list such as [crayfish.local]".into(),
            Self::Path => "write a path in quotes".into(),
            Self::Channels => channels::HINT.into(),
            Self::Secret => "write ${NAME}, ${credential:NAME} or a text in quotes".into(),
        }
    }
}

impl Spec {
    /// The key's default as a checked value.
    #[must_use]
    pub fn default_value(&self) -> Value {
        /// Defaults are literals, so they are read without surroundings.
        struct Nowhere;
        impl Env for Nowhere {
            fn var(&self, _: &str) -> Option<String> {
                None
            }
            fn credential(&self, _: &str) -> Option<String> {
                None
            }
        }
        match self.fallback {
            Fallback::Null => Value::Nothing,
            Fallback::Flag(flag) => Value::Flag(flag),
            Fallback::Whole(whole) => Value::Whole(whole),
            Fallback::Number(number) => Value::Number(number),
            Fallback::EmptyList => Value::List(Vec::new()),
            // A test reads every default, so the error is unreachable.
            Fallback::Text(text) => {
                self.rule.read(text, &Nowhere).map_or(Value::Nothing, |(value, _)| value)
            }
        }
    }
}

/// A text as quoted in messages, cut if long.
pub(super) fn quote(text: &str) -> String {
    let mut cut: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    format!("{cut:?}")
}

/// The nearest of `words` as a fix, or `otherwise` if none is near.
pub(super) fn nearest_fix(text: &str, words: &[&str], otherwise: &str) -> String {
    match nearest(text, words.iter().copied()) {
        Some(word) => format!("did you mean {word}?"),
        None => otherwise.into(),
    }
}

/// The word most like `text`, if it is like it at all.
pub(super) fn nearest<'a>(text: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this, suggestions are more often wrong than right. Found by trying the seed's keys
    /// with one or two letters swapped, left out or doubled.
    const SIMILAR_ENOUGH: f64 = 0.6;
    if text.len() > 100 {
        return None;
    }
    let text = text.to_lowercase();
    words
        .map(|word| (strsim::normalized_damerau_levenshtein(&text, &word.to_lowercase()), word))
        .filter(|(score, _)| *score >= SIMILAR_ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

fn range(min: impl std::fmt::Display, max: impl std::fmt::Display, unit: &str) -> String {
    if unit.is_empty() { format!("{min} to {max}") } else { format!("{min} to {max} {unit}") }
}

fn out_of_range(shown: &str, hint: String) -> Wrong {
    Wrong::new(format!("{} is out of range", shown.trim_matches('"')), hint)
}

fn read_length(text: &str, shown: &str, min: usize, max: usize) -> Result<Value, Wrong> {
    if text.len() > max {
        let says = format!("{shown} has {} bytes; at most {max} fit", text.len());
        return Err(Wrong::new(says, "shorten it"));
    }
    if text.trim().len() < min {
        return Err(Wrong::new("is empty", "write a text in quotes, or remove the line"));
    }
    Ok(Value::Text(text.into()))
}

fn read_time(text: &str, shown: &str) -> Result<civil::Time, Wrong> {
    let parse = || {
        let (hour, minute) = text.split_once(':')?;
        let two = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if digits && part.len() <= 2 { part.parse::<i8>().ok() } else { None }
        };
        civil::Time::new(two(hour)?, two(minute)?, 0, 0).ok()
    };
    parse()
        .ok_or_else(|| Wrong::new(format!("{shown} is not a time of day"), Rule::TimeOfDay.hint()))
}

fn read_zone(text: &str, shown: &str) -> Result<Zone, Wrong> {
    if text == "system" {
        return Ok(Zone { name: text.into(), zone: TimeZone::system() });
    }
    if let Ok(zone) = TimeZone::get(text) {
        return Ok(Zone { name: text.into(), zone });
    }
    let known: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
    if known.is_empty() {
        return Err(Wrong::new(
            format!("{shown} cannot be looked up: this machine has no time zone database"),
            "install the package tzdata, or write system or UTC",
        ));
    }
    let hint = Rule::Zone.hint();
    let fix = nearest(text, known.iter().map(String::as_str))
        .map_or(hint, |name| format!("did you mean {name}?"));
    Err(Wrong::new(format!("{shown} is not a time zone"), fix))
}
