//! Section `provider`: phase timeouts, breaker and pauses (pure).
//!
//! The defaults are those of the provider specification, sections 5A.4 to 5A.8.

use std::time::Duration;

use crate::config::key::{AnyKey, Key};
use crate::config::values::Values;

/// Shortest and longest timeout, in seconds. Tests and simulators run a hundred times faster
/// than the hardware; no phase of a healthy server takes an hour.
const TIMEOUT_S: (f64, f64) = (0.01, 3600.0);

/// Slowest and fastest server, in tokens a second.
const RATE: (f64, f64) = (0.1, 100_000.0);

/// Opening a connection, for every server.
pub const CONNECT: Key<Duration> = Key::seconds(
    "provider.connect_timeout_s",
    1.0,
    TIMEOUT_S,
    "Opening a connection, for every server.",
);

/// hailo-ollama: to the response head, if the model is loaded.
pub const HAILO_HEAD: Key<Duration> = Key::seconds(
    "provider.hailo_head_timeout_s",
    6.0,
    TIMEOUT_S,
    "hailo-ollama: to the response head, if the model is loaded.",
);

/// hailo-ollama: to the response head, if the model must be loaded first.
pub const HAILO_COLD: Key<Duration> = Key::seconds(
    "provider.hailo_cold_timeout_s",
    45.0,
    TIMEOUT_S,
    "hailo-ollama: to the response head, if the model must be loaded first.",
);

/// hailo-ollama: from the head to the first token. The server itself gives up after 10.
pub const HAILO_FIRST_TOKEN: Key<Duration> = Key::seconds(
    "provider.hailo_first_token_timeout_s",
    12.0,
    TIMEOUT_S,
    "hailo-ollama: from the head to the first token. The server itself gives up after 10.",
);

/// hailo-ollama: between two tokens.
pub const HAILO_BETWEEN_TOKENS: Key<Duration> = Key::seconds(
    "provider.hailo_between_tokens_timeout_s",
    12.0,
    TIMEOUT_S,
    "hailo-ollama: between two tokens.",
);

/// hailo-ollama: slowest decoding.
pub const HAILO_DECODE: Key<f64> = Key::number(
    "provider.hailo_decode_tokens_per_s",
    4.0,
    RATE,
    "tokens a second",
    "hailo-ollama: slowest decoding; with job_margin_s it bounds the whole answer.",
);

/// hailo-ollama: how long the model stays loaded without requests.
pub const HAILO_KEEP_ALIVE: Key<i64> = Key::whole(
    "provider.hailo_keep_alive_s",
    -1,
    (-1, 31_536_000),
    "seconds",
    "hailo-ollama: how long the model stays loaded without requests; -1 is for ever.",
);

/// Ollama: loading the model from the card, on top of prefill.
pub const OLLAMA_COLD: Key<Duration> = Key::seconds(
    "provider.ollama_cold_timeout_s",
    120.0,
    TIMEOUT_S,
    "Ollama: loading the model from the card, on top of prefill.",
);

/// Ollama: slowest prefill.
pub const OLLAMA_PREFILL: Key<f64> = Key::number(
    "provider.ollama_prefill_tokens_per_s",
    30.0,
    RATE,
    "tokens a second",
    "Ollama: slowest prefill; its head comes after prefill, so the head's timeout is the \
     prompt's tokens divided by this, and ollama_head_margin_s.",
);

/// Ollama: added to the time for prefill.
pub const OLLAMA_HEAD_MARGIN: Key<Duration> = Key::seconds(
    "provider.ollama_head_margin_s",
    10.0,
    TIMEOUT_S,
    "Ollama: added to the time for prefill.",
);

/// Ollama: from the head to the first token.
pub const OLLAMA_FIRST_TOKEN: Key<Duration> = Key::seconds(
    "provider.ollama_first_token_timeout_s",
    5.0,
    TIMEOUT_S,
    "Ollama: from the head to the first token.",
);

/// Ollama: between two tokens.
pub const OLLAMA_BETWEEN_TOKENS: Key<Duration> = Key::seconds(
    "provider.ollama_between_tokens_timeout_s",
    10.0,
    TIMEOUT_S,
    "Ollama: between two tokens.",
);

/// Ollama: slowest decoding.
pub const OLLAMA_DECODE: Key<f64> = Key::number(
    "provider.ollama_decode_tokens_per_s",
    3.0,
    RATE,
    "tokens a second",
    "Ollama: slowest decoding; with job_margin_s it bounds the whole answer.",
);

/// Ollama: how long the model stays loaded without requests.
pub const OLLAMA_KEEP_ALIVE: Key<i64> = Key::whole(
    "provider.ollama_keep_alive_s",
    600,
    (-1, 31_536_000),
    "seconds",
    "Ollama: how long the model stays loaded without requests; -1 is for ever. It takes some \
     2 GB of memory, and is the fallback only while the NPU is well.",
);

/// openai: to the response head.
pub const OPENAI_HEAD: Key<Duration> = Key::seconds(
    "provider.openai_head_timeout_s",
    60.0,
    TIMEOUT_S,
    "openai: to the response head.",
);

/// openai: from the head to the first token.
pub const OPENAI_FIRST_TOKEN: Key<Duration> = Key::seconds(
    "provider.openai_first_token_timeout_s",
    60.0,
    TIMEOUT_S,
    "openai: from the head to the first token.",
);

/// openai: between two tokens.
pub const OPENAI_BETWEEN_TOKENS: Key<Duration> = Key::seconds(
    "provider.openai_between_tokens_timeout_s",
    15.0,
    TIMEOUT_S,
    "openai: between two tokens.",
);

/// openai: slowest decoding.
pub const OPENAI_DECODE: Key<f64> = Key::number(
    "provider.openai_decode_tokens_per_s",
    3.0,
    RATE,
    "tokens a second",
    "openai: slowest decoding; with job_margin_s it bounds the whole answer.",
);

/// What an answer may take beyond its decoding.
pub const JOB_MARGIN: Key<Duration> = Key::seconds(
    "provider.job_margin_s",
    30.0,
    TIMEOUT_S,
    "Added to the time for decoding: an answer may take this long and its tokens divided by \
     the slowest decoding.",
);

/// Failures within breaker_window_s after which a server is left alone for a while.
pub const BREAKER_FAILURES: Key<u32> = Key::count(
    "provider.breaker_failures_to_open",
    3,
    (1, 100),
    "failures",
    "Failures within breaker_window_s after which a server is left alone for a while.",
);

/// How long a failure counts.
pub const BREAKER_WINDOW: Key<Duration> =
    Key::seconds("provider.breaker_window_s", 60.0, TIMEOUT_S, "How long a failure counts.");

/// How long a server is left alone at first.
pub const BREAKER_OPEN_FOR: Key<Duration> = Key::seconds(
    "provider.breaker_open_for_s",
    5.0,
    TIMEOUT_S,
    "How long a server is left alone at first; doubles each time it fails again.",
);

/// How long a server is left alone at most.
pub const BREAKER_OPEN_MAX: Key<Duration> = Key::seconds(
    "provider.breaker_open_max_s",
    120.0,
    TIMEOUT_S,
    "How long a server is left alone at most.",
);

/// Background work starts once nobody has said anything for this long.
pub const BACKGROUND_QUIET: Key<Duration> = Key::seconds(
    "provider.background_quiet_s",
    30.0,
    TIMEOUT_S,
    "Background work starts once nobody has said anything for this long.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[
    &CONNECT,
    &HAILO_HEAD,
    &HAILO_COLD,
    &HAILO_FIRST_TOKEN,
    &HAILO_BETWEEN_TOKENS,
    &HAILO_DECODE,
    &HAILO_KEEP_ALIVE,
    &OLLAMA_COLD,
    &OLLAMA_PREFILL,
    &OLLAMA_HEAD_MARGIN,
    &OLLAMA_FIRST_TOKEN,
    &OLLAMA_BETWEEN_TOKENS,
    &OLLAMA_DECODE,
    &OLLAMA_KEEP_ALIVE,
    &OPENAI_HEAD,
    &OPENAI_FIRST_TOKEN,
    &OPENAI_BETWEEN_TOKENS,
    &OPENAI_DECODE,
    &JOB_MARGIN,
    &BREAKER_FAILURES,
    &BREAKER_WINDOW,
    &BREAKER_OPEN_FOR,
    &BREAKER_OPEN_MAX,
    &BACKGROUND_QUIET,
];

/// Phase timeouts of hailo-ollama. Its head comes before prefill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HailoTimeouts {
    /// To the head, model loaded.
    pub head: Duration,
    /// To the head, model not loaded.
    pub cold: Duration,
    /// From the head to the first token.
    pub first_token: Duration,
    /// Between tokens.
    pub between_tokens: Duration,
    /// Slowest decoding, in tokens a second.
    pub decode_tokens_per_s: f64,
    /// How long the model stays loaded, in seconds; -1 is for ever.
    pub keep_alive_s: i64,
}

/// Phase timeouts of Ollama. Its head comes with the first token, after prefill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OllamaTimeouts {
    /// Loading the model, on top of prefill.
    pub cold: Duration,
    /// Slowest prefill, in tokens a second.
    pub prefill_tokens_per_s: f64,
    /// Added to the time for prefill.
    pub head_margin: Duration,
    /// From the head to the first token.
    pub first_token: Duration,
    /// Between tokens.
    pub between_tokens: Duration,
    /// Slowest decoding, in tokens a second.
    pub decode_tokens_per_s: f64,
    /// How long the model stays loaded, in seconds; -1 is for ever.
    pub keep_alive_s: i64,
}

/// Phase timeouts of an OpenAI-compatible server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpenaiTimeouts {
    /// To the head.
    pub head: Duration,
    /// From the head to the first token.
    pub first_token: Duration,
    /// Between tokens.
    pub between_tokens: Duration,
    /// Slowest decoding, in tokens a second.
    pub decode_tokens_per_s: f64,
}

/// When a server is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// Failures within `window` that open it.
    pub failures_to_open: u32,
    /// How long a failure counts.
    pub window: Duration,
    /// How long it is open at first.
    pub open_for: Duration,
    /// How long it is open at most; not less than `open_for`.
    pub open_max: Duration,
}

/// Settings of the section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Provider {
    /// Opening a connection.
    pub connect: Duration,
    /// hailo-ollama.
    pub hailo: HailoTimeouts,
    /// Ollama.
    pub ollama: OllamaTimeouts,
    /// An OpenAI-compatible server.
    pub openai: OpenaiTimeouts,
    /// Whole answer: this and its tokens divided by the slowest decoding.
    pub job_margin: Duration,
    /// When a server is left alone.
    pub breaker: Breaker,
    /// Quiet time before background work.
    pub background_quiet: Duration,
}

impl Provider {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            connect: values.get(&CONNECT),
            hailo: HailoTimeouts {
                head: values.get(&HAILO_HEAD),
                cold: values.get(&HAILO_COLD),
                first_token: values.get(&HAILO_FIRST_TOKEN),
                between_tokens: values.get(&HAILO_BETWEEN_TOKENS),
                decode_tokens_per_s: values.get(&HAILO_DECODE),
                keep_alive_s: values.get(&HAILO_KEEP_ALIVE),
            },
            ollama: OllamaTimeouts {
                cold: values.get(&OLLAMA_COLD),
                prefill_tokens_per_s: values.get(&OLLAMA_PREFILL),
                head_margin: values.get(&OLLAMA_HEAD_MARGIN),
                first_token: values.get(&OLLAMA_FIRST_TOKEN),
                between_tokens: values.get(&OLLAMA_BETWEEN_TOKENS),
                decode_tokens_per_s: values.get(&OLLAMA_DECODE),
                keep_alive_s: values.get(&OLLAMA_KEEP_ALIVE),
            },
            openai: OpenaiTimeouts {
                head: values.get(&OPENAI_HEAD),
                first_token: values.get(&OPENAI_FIRST_TOKEN),
                between_tokens: values.get(&OPENAI_BETWEEN_TOKENS),
                decode_tokens_per_s: values.get(&OPENAI_DECODE),
            },
            job_margin: values.get(&JOB_MARGIN),
            breaker: Breaker {
                failures_to_open: values.get(&BREAKER_FAILURES),
                window: values.get(&BREAKER_WINDOW),
                open_for: values.get(&BREAKER_OPEN_FOR),
                open_max: values.get(&BREAKER_OPEN_MAX),
            },
            background_quiet: values.get(&BACKGROUND_QUIET),
        }
    }
}
