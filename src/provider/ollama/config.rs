//! What the Ollama backend is told: where the server is, which model, constant options, patience.

use std::time::Duration;

/// What an Ollama backend needs to know.
#[derive(Clone, PartialEq)]
pub struct OllamaConfig {
    /// Base URL, e.g. `http://127.0.0.1:11434`.
    pub url: String,
    /// Model with its tag; without one `:latest` is meant.
    pub model: String,
    /// `num_ctx` of every request, in tokens.
    pub context_tokens: u32,
    /// `num_thread` of every request; absent leaves it to the server.
    pub threads: Option<u32>,
    /// `repeat_penalty` of every request; absent leaves it to the model.
    pub repeat_penalty: Option<f32>,
    /// How long the model stays loaded after a request, in seconds; negative is for ever.
    pub keep_alive_s: i64,
    /// Bearer token for a server behind a proxy.
    pub api_key: Option<String>,
    /// Limits on phases.
    pub timeouts: OllamaTimeouts,
}

/// Limits on the phases of a request (specification, 5A.6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OllamaTimeouts {
    /// Opening the connection.
    pub connect: Duration,
    /// Short calls.
    pub probe: Duration,
    /// To the head with the model believed loaded, beyond the time for prefill.
    pub head_loaded: Duration,
    /// To the head with a load before it, beyond the time for prefill.
    pub head_cold: Duration,
    /// Slowest prefill allowed for, in tokens a second.
    pub prefill_tokens_per_s: u32,
    /// From the head to the first token, beyond the time for prefill. Ollama sends both together;
    /// a proxy in front of it may not.
    pub first_token: Duration,
    /// From token to token.
    pub between_tokens: Duration,
    /// Slowest decoding allowed for, in tokens a second; a model known to be slower than that gets
    /// twice its time.
    pub decode_tokens_per_s: f64,
    /// Allowance for the whole answer beyond its decoding.
    pub whole_extra: Duration,
}

// === impl OllamaConfig ===

impl Default for OllamaConfig {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:11434".into(),
            model: "qwen2.5:1.5b".into(),
            context_tokens: 4096,
            threads: None,
            repeat_penalty: None,
            keep_alive_s: 600,
            api_key: None,
            timeouts: OllamaTimeouts::default(),
        }
    }
}

impl std::fmt::Debug for OllamaConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OllamaConfig")
            .field("url", &crate::net::shown(&self.url))
            .field("model", &self.model)
            .field("context_tokens", &self.context_tokens)
            .field("keep_alive_s", &self.keep_alive_s)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl Default for OllamaTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            probe: Duration::from_secs(1),
            head_loaded: Duration::from_secs(10),
            head_cold: Duration::from_secs(120),
            prefill_tokens_per_s: 30,
            first_token: Duration::from_secs(5),
            between_tokens: Duration::from_secs(10),
            decode_tokens_per_s: 3.0,
            whole_extra: Duration::from_secs(30),
        }
    }
}
