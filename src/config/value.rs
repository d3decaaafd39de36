//! Values that passed their key's rule, and the types they are read as (pure).

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use jiff::civil;
use jiff::tz::TimeZone;

use super::channels::Channels;
use super::key::Typed;
use super::secrets::Secret;

/// A checked value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Nothing,
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A finite number.
    Number(f64),
    /// A text on one line.
    Text(String),
    /// A word of a fixed set.
    Word(&'static str),
    /// A time of day.
    Time(civil::Time),
    /// A time zone.
    Zone(Zone),
    /// A server's URL.
    Url(Url),
    /// An address to listen on.
    Address(IpAddr),
    /// A list of texts.
    List(Vec<String>),
    /// Levels of the mood's channels.
    Channels(Channels),
    /// A secret.
    Secret(Secret),
}

/// A time zone and the name it was asked for by.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    /// IANA name, or `system`.
    pub name: String,
    /// The zone's rules.
    pub zone: TimeZone,
}

impl Default for Zone {
    fn default() -> Self {
        Self { name: "UTC".into(), zone: TimeZone::UTC }
    }
}

/// A server's URL: scheme, host, optional port and path prefix. No user, query or fragment, no
/// slash at the end, and never `localhost`, which may mean an IPv6 address on which the NPU's
/// server does not listen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Url {
    pub(super) text: String,
    pub(super) host: String,
    pub(super) tls: bool,
}

impl Url {
    /// The URL, ready to have a path appended.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True for `https`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The host, without brackets or port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// True if the server is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads one kind of value as one type, and anything else as the type's default.
fn either<T: Default>(found: Option<T>, value: &Value) -> T {
    debug_assert!(found.is_some(), "a key's type does not fit its rule: {value:?}");
    found.unwrap_or_default()
}

impl Typed for bool {
    fn read(value: &Value) -> Self {
        either(if let Value::Flag(flag) = value { Some(*flag) } else { None }, value)
    }
}

impl Typed for i64 {
    fn read(value: &Value) -> Self {
        either(if let Value::Whole(whole) = value { Some(*whole) } else { None }, value)
    }
}

impl Typed for u32 {
    fn read(value: &Value) -> Self {
        either(u32::try_from(i64::read(value)).ok(), value)
    }
}

impl Typed for u16 {
    fn read(value: &Value) -> Self {
        either(u16::try_from(i64::read(value)).ok(), value)
    }
}

impl Typed for f64 {
    fn read(value: &Value) -> Self {
        either(if let Value::Number(number) = value { Some(*number) } else { None }, value)
    }
}

impl Typed for Duration {
    fn read(value: &Value) -> Self {
        either(Duration::try_from_secs_f64(f64::read(value)).ok(), value)
    }
}

impl Typed for String {
    fn read(value: &Value) -> Self {
        either(if let Value::Text(text) = value { Some(text.clone()) } else { None }, value)
    }
}

impl Typed for &'static str {
    fn read(value: &Value) -> Self {
        either(if let Value::Word(word) = value { Some(*word) } else { None }, value)
    }
}

impl Typed for civil::Time {
    fn read(value: &Value) -> Self {
        either(if let Value::Time(time) = value { Some(*time) } else { None }, value)
    }
}

impl Typed for Zone {
    fn read(value: &Value) -> Self {
        either(if let Value::Zone(zone) = value { Some(zone.clone()) } else { None }, value)
    }
}

impl Typed for Url {
    fn read(value: &Value) -> Self {
        either(if let Value::Url(url) = value { Some(url.clone()) } else { None }, value)
    }
}

impl Typed for PathBuf {
    fn read(value: &Value) -> Self {
        Self::from(String::read(value))
    }
}

impl Typed for Vec<String> {
    fn read(value: &Value) -> Self {
        either(if let Value::List(list) = value { Some(list.clone()) } else { None }, value)
    }
}

impl Typed for IpAddr {
    fn read(value: &Value) -> Self {
        let found = if let Value::Address(address) = value { Some(*address) } else { None };
        debug_assert!(found.is_some(), "a key's type does not fit its rule: {value:?}");
        found.unwrap_or(Self::V4(Ipv4Addr::LOCALHOST))
    }
}

impl Typed for Channels {
    fn read(value: &Value) -> Self {
        either(if let Value::Channels(channels) = value { Some(*channels) } else { None }, value)
    }
}

impl Typed for Option<Secret> {
    fn read(value: &Value) -> Self {
        match value {
            Value::Secret(secret) if !secret.is_empty() => Some(secret.clone()),
            _ => None,
        }
    }
}

impl Typed for Option<String> {
    fn read(value: &Value) -> Self {
        if let Value::Text(text) = value { Some(text.clone()) } else { None }
    }
}

impl Typed for Option<&'static str> {
    fn read(value: &Value) -> Self {
        if let Value::Word(word) = value { Some(*word) } else { None }
    }
}

impl Typed for Option<Url> {
    fn read(value: &Value) -> Self {
        if let Value::Url(url) = value { Some(url.clone()) } else { None }
    }
}

impl Typed for Option<u32> {
    fn read(value: &Value) -> Self {
        if let Value::Whole(whole) = value { u32::try_from(*whole).ok() } else { None }
    }
}

impl Typed for Option<f64> {
    fn read(value: &Value) -> Self {
        if let Value::Number(number) = value { Some(*number) } else { None }
    }
}
