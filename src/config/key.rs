//! A configuration key: path, type, default, rule and documentation in one constant (pure).
//!
//! Each room publishes its keys as `pub const KEYS: &[&dyn AnyKey]` and builds its own settings
//! from checked [`Values`](super::values::Values), which cannot fail: a value that reaches
//! `Values` has passed its key's rule.
//!
//! # Absences
//! - No macros and no derive: a key is data, so that the document, the check and the reload can
//!   walk over it.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use jiff::civil;

use super::channels::Channels;
use super::rule::Rule;
use super::secrets::Secret;
use super::value::{Url, Value, Zone};

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// As soon as the file is read again (SIGHUP).
    Live,
    /// At the next start.
    Restart,
}

/// A key's default, in a form that fits in a constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fallback {
    /// No value (`null`).
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// A text, read by the key's rule.
    Text(&'static str),
    /// A list without members.
    EmptyList,
}

/// Everything about a key but its Rust type.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Dotted path, `section.name`.
    pub path: &'static str,
    /// What it does, for a person; whole sentences.
    pub doc: &'static str,
    /// What is accepted.
    pub rule: Rule,
    /// The value if the file does not have the key.
    pub fallback: Fallback,
    /// When a change takes effect.
    pub reload: Reload,
}

/// A key whose values are read as `T`.
pub struct Key<T> {
    spec: Spec,
    reads_as: PhantomData<fn() -> T>,
}

/// A key of any type.
pub trait AnyKey: Sync {
    /// The key's description.
    fn spec(&self) -> &Spec;
}

/// A type that checked values are read as. The conversion is total; a value of another kind
/// (impossible, as only the constructors below pair rules with types) gives a harmless value.
pub trait Typed: Sized {
    /// Reads a checked value.
    fn read(value: &Value) -> Self;
}

impl<T> AnyKey for Key<T> {
    fn spec(&self) -> &Spec {
        &self.spec
    }
}

impl<T> Key<T> {
    const fn new(path: &'static str, rule: Rule, fallback: Fallback, doc: &'static str) -> Self {
        let spec = Spec { path, doc, rule, fallback, reload: Reload::Restart };
        Self { spec, reads_as: PhantomData }
    }

    /// The same key, taking effect without a restart.
    #[must_use]
    pub const fn live(self) -> Self {
        let mut spec = self.spec;
        spec.reload = Reload::Live;
        Self { spec, reads_as: PhantomData }
    }

    /// Dotted path.
    #[must_use]
    pub const fn path(&self) -> &'static str {
        self.spec.path
    }
}

impl Key<bool> {
    /// A switch.
    #[must_use]
    pub const fn flag(path: &'static str, default: bool, doc: &'static str) -> Self {
        Self::new(path, Rule::Flag, Fallback::Flag(default), doc)
    }
}

impl Key<u32> {
    /// A count within `min..=max`; `unit` is the plural word for what is counted.
    #[must_use]
    pub const fn count(
        path: &'static str,
        default: u32,
        (min, max): (u32, u32),
        unit: &'static str,
        doc: &'static str,
    ) -> Self {
        let rule = Rule::Whole { min: min as i64, max: max as i64, unit };
        Self::new(path, rule, Fallback::Whole(default as i64), doc)
    }
}

impl Key<i64> {
    /// A whole number within `min..=max` that may be negative.
    #[must_use]
    pub const fn whole(
        path: &'static str,
        default: i64,
        (min, max): (i64, i64),
        unit: &'static str,
        doc: &'static str,
    ) -> Self {
        Self::new(path, Rule::Whole { min, max, unit }, Fallback::Whole(default), doc)
    }
}

impl Key<Option<u32>> {
    /// A count within `min..=max`, or `null`.
    #[must_use]
    pub const fn maybe_count(
        path: &'static str,
        (min, max): (u32, u32),
        unit: &'static str,
        doc: &'static str,
    ) -> Self {
        let rule = Rule::MaybeWhole { min: min as i64, max: max as i64, unit };
        Self::new(path, rule, Fallback::Null, doc)
    }
}

impl Key<u16> {
    /// A TCP port; 0 lets the system choose a free one.
    #[must_use]
    pub const fn port(path: &'static str, default: u16, doc: &'static str) -> Self {
        let rule = Rule::Whole { min: 0, max: u16::MAX as i64, unit: "" };
        Self::new(path, rule, Fallback::Whole(default as i64), doc)
    }
}

impl Key<f64> {
    /// A number within `min..=max`.
    #[must_use]
    pub const fn number(
        path: &'static str,
        default: f64,
        (min, max): (f64, f64),
        unit: &'static str,
        doc: &'static str,
    ) -> Self {
        Self::new(path, Rule::Number { min, max, unit }, Fallback::Number(default), doc)
    }
}

impl Key<Option<f64>> {
    /// A number within `min..=max`, or `null`.
    #[must_use]
    pub const fn maybe_number(
        path: &'static str,
        (min, max): (f64, f64),
        doc: &'static str,
    ) -> Self {
        Self::new(path, Rule::MaybeNumber { min, max, unit: "" }, Fallback::Null, doc)
    }
}

impl Key<Duration> {
    /// A time span in seconds within `min..=max`; fractions are allowed, negatives are not.
    #[must_use]
    pub const fn seconds(
        path: &'static str,
        default: f64,
        (min, max): (f64, f64),
        doc: &'static str,
    ) -> Self {
        let rule = Rule::Number { min, max, unit: "seconds" };
        Self::new(path, rule, Fallback::Number(default), doc)
    }
}

impl Key<String> {
    /// A text of `min..=max` bytes on one line.
    #[must_use]
    pub const fn text(
        path: &'static str,
        default: &'static str,
        (min, max): (usize, usize),
        doc: &'static str,
    ) -> Self {
        Self::new(path, Rule::Text { min, max }, Fallback::Text(default), doc)
    }
}

impl Key<Option<String>> {
    /// A text of at most `max` bytes on one line, or `null`; an empty text counts as `null`.
    #[must_use]
    pub const fn maybe_text(path: &'static str, max: usize, doc: &'static str) -> Self {
        Self::new(path, Rule::MaybeText { max }, Fallback::Null, doc)
    }
}

impl Key<&'static str> {
    /// One of the words of `words`.
    #[must_use]
    pub const fn choice(
        path: &'static str,
        default: &'static str,
        words: &'static [&'static str],
        doc: &'static str,
    ) -> Self {
        Self::new(path, Rule::Choice(words), Fallback::Text(default), doc)
    }
}

impl Key<Option<&'static str>> {
    /// One of the words of `words`, or `null`.
    #[must_use]
    pub const fn maybe_choice(
        path: &'static str,
        words: &'static [&'static str],
        doc: &'static str,
    ) -> Self {
        Self::new(path, Rule::MaybeChoice(words), Fallback::Null, doc)
    }
}

impl Key<civil::Time> {
    /// A time of day, `HH:MM`.
    #[must_use]
    pub const fn time_of_day(path: &'static str, default: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::TimeOfDay, Fallback::Text(default), doc)
    }
}

impl Key<Zone> {
    /// A time zone: an IANA name, or `system`.
    #[must_use]
    pub const fn zone(path: &'static str, default: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::Zone, Fallback::Text(default), doc)
    }
}

impl Key<Url> {
    /// An `http://` or `https://` URL of a server.
    #[must_use]
    pub const fn url(path: &'static str, default: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::Url, Fallback::Text(default), doc)
    }
}

impl Key<Option<Url>> {
    /// An `http://` or `https://` URL of a server, or `null`.
    #[must_use]
    pub const fn maybe_url(path: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::MaybeUrl, Fallback::Null, doc)
    }
}

impl Key<std::net::IpAddr> {
    /// An address to listen on: IPv4, IPv6 or `localhost`.
    #[must_use]
    pub const fn address(path: &'static str, default: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::Address, Fallback::Text(default), doc)
    }
}

impl Key<Vec<String>> {
    /// A list of host names without ports.
    #[must_use]
    pub const fn hosts(path: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::Hosts, Fallback::EmptyList, doc)
    }
}

impl Key<Channels> {
    /// Levels of the mood's channels, such as `joy 0.15, calm -0.08`.
    #[must_use]
    pub const fn channels(path: &'static str, default: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::Channels, Fallback::Text(default), doc)
    }
}

impl Key<PathBuf> {
    /// A path of a file or directory.
    #[must_use]
    pub const fn file(path: &'static str, default: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::Path, Fallback::Text(default), doc)
    }
}

impl Key<Option<Secret>> {
    /// A secret, or nothing; an empty text counts as nothing.
    #[must_use]
    pub const fn secret(path: &'static str, doc: &'static str) -> Self {
        Self::new(path, Rule::Secret, Fallback::Text(""), doc)
    }
}
