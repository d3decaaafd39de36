//! What the OpenAI-compatible backend is told: where the server is, which model, its patience.

use std::time::Duration;

/// What an OpenAI-compatible backend needs to know.
#[derive(Clone, PartialEq)]
pub struct OpenAiConfig {
    /// Base URL, with or without `/v1` at its end.
    pub url: String,
    /// Model, as the server names it.
    pub model: String,
    /// Context planned for, in tokens. Servers do not tell theirs reliably.
    pub context_tokens: u32,
    /// API key; local servers need none.
    pub api_key: Option<String>,
    /// Limits on phases.
    pub timeouts: OpenAiTimeouts,
}

/// Limits on the phases of a request. The specification has none for this dialect; the values
/// leave room for a local server on a CPU that sends its head with the first token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpenAiTimeouts {
    /// Opening the connection, TLS included.
    pub connect: Duration,
    /// Short calls.
    pub probe: Duration,
    /// To the head, beyond the time for prefill.
    pub head: Duration,
    /// Slowest prefill allowed for, in tokens a second.
    pub prefill_tokens_per_s: u32,
    /// From the head to the first token, beyond the time for prefill: some send the head at once.
    pub first_token: Duration,
    /// From token to token.
    pub between_tokens: Duration,
    /// Slowest decoding allowed for, in tokens a second; a model known to be slower than that gets
    /// twice its time.
    pub decode_tokens_per_s: f64,
    /// Allowance for the whole answer beyond its decoding.
    pub whole_extra: Duration,
}

// === impl OpenAiConfig ===

impl Default for OpenAiConfig {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:8080".into(),
            model: "default".into(),
            context_tokens: 4096,
            api_key: None,
            timeouts: OpenAiTimeouts::default(),
        }
    }
}

impl std::fmt::Debug for OpenAiConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiConfig")
            .field("url", &crate::net::shown(&self.url))
            .field("model", &self.model)
            .field("context_tokens", &self.context_tokens)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl Default for OpenAiTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            probe: Duration::from_secs(3),
            head: Duration::from_secs(30),
            prefill_tokens_per_s: 30,
            first_token: Duration::from_secs(30),
            between_tokens: Duration::from_secs(30),
            decode_tokens_per_s: 3.0,
            whole_extra: Duration::from_secs(60),
        }
    }
}
