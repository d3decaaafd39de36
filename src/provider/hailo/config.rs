//! What the hailo-ollama backend is told: where the server is, which model, and its patience.

use std::path::PathBuf;
use std::time::Duration;

use crate::limits::HAILO_CONTEXT_TOKENS;

/// The server's own limit on the first token, fixed in its source.
pub(super) const GIVES_UP: Duration = Duration::from_secs(10);

/// What a hailo-ollama backend needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct HailoConfig {
    /// Base URL, e.g. `http://127.0.0.1:8000`.
    pub url: String,
    /// Model, under its name in any release.
    pub model: String,
    /// Context, in tokens; fixed in the model file.
    pub context_tokens: u32,
    /// How long the model stays loaded after a request, in seconds; negative is for ever.
    pub keep_alive_s: i64,
    /// Root of the file system in which the device's node is looked for.
    pub machine: PathBuf,
    /// Limits on phases.
    pub timeouts: HailoTimeouts,
}

/// Limits on the phases of a request (specification, 5A.6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HailoTimeouts {
    /// Opening the connection.
    pub connect: Duration,
    /// Short calls that take no lock.
    pub probe: Duration,
    /// To the head, with the model believed loaded.
    pub head_loaded: Duration,
    /// To the head, with a load before it; also the limit of a load itself.
    pub head_cold: Duration,
    /// From the head to the first token; more than the server's own ten seconds.
    pub first_token: Duration,
    /// From token to token.
    pub between_tokens: Duration,
    /// Slowest decoding allowed for, in tokens a second; a model known to be slower than that gets
    /// twice its time.
    pub decode_tokens_per_s: f64,
    /// Allowance for the whole answer beyond its decoding.
    pub whole_extra: Duration,
    /// Time after which the server gives up on prefill.
    pub gives_up: Duration,
}

// === impl HailoConfig ===

impl Default for HailoConfig {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:8000".into(),
            model: "qwen2.5-instruct:1.5b".into(),
            context_tokens: HAILO_CONTEXT_TOKENS,
            keep_alive_s: -1,
            machine: PathBuf::from("/"),
            timeouts: HailoTimeouts::default(),
        }
    }
}

impl Default for HailoTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            probe: Duration::from_secs(1),
            head_loaded: Duration::from_secs(6),
            head_cold: Duration::from_secs(45),
            first_token: Duration::from_secs(12),
            between_tokens: Duration::from_secs(12),
            decode_tokens_per_s: 4.0,
            whole_extra: Duration::from_secs(30),
            gives_up: GIVES_UP,
        }
    }
}
