//! A backend, as told to programs (pure).

use serde::{Deserialize, Serialize};

use crate::snapshot::BackendState;

/// One backend's state, as told to programs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// `primary`, `fallback` or `reserve`.
    pub slot: String,
    /// The configured model.
    pub model: String,
    /// `closed`, `open`, `half-open`.
    pub breaker: String,
    /// Until the next probe, in seconds, while it is open.
    pub retry_in_s: Option<f32>,
    /// The last fault.
    pub last_error: Option<String>,
    /// Measured decode rate, tokens a second.
    pub tokens_per_s: Option<f32>,
    /// The rate it has when it is well, tokens a second.
    #[serde(default)]
    pub healthy_tokens_per_s: Option<f32>,
    /// Whether it decodes much slower than it used to.
    #[serde(default)]
    pub degraded: bool,
    /// From sending to the response head in the newest answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_ms: Option<f32>,
    /// From sending to the first token in the newest answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<f32>,
    /// Median of the newest gaps between tokens, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_p50_ms: Option<f32>,
    /// 99th percentile of the newest gaps between tokens, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_p99_ms: Option<f32>,
    /// Whether an answer is being decoded, or the rest of one that was dropped.
    #[serde(default)]
    pub busy: bool,
    /// How many wait in its line.
    #[serde(default)]
    pub waiting: usize,
    /// Tokens of the prompts it has answered since the start, as estimated.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Of these, tokens that it had in its cache from the prompt before, as estimated.
    #[serde(default)]
    pub cached_tokens: u64,
}

impl From<&BackendState> for BackendStatus {
    fn from(backend: &BackendState) -> Self {
        Self {
            name: backend.name.clone(),
            slot: backend.slot.to_owned(),
            model: backend.model.clone(),
            breaker: backend.breaker.to_owned(),
            retry_in_s: backend.retry_in_s,
            last_error: backend.last_error.clone(),
            tokens_per_s: backend.tokens_per_s,
            healthy_tokens_per_s: backend.healthy_tokens_per_s,
            degraded: backend.degraded,
            head_ms: backend.head_ms,
            first_token_ms: backend.first_token_ms,
            gap_p50_ms: backend.gap_p50_ms,
            gap_p99_ms: backend.gap_p99_ms,
            busy: backend.busy,
            waiting: backend.waiting,
            prompt_tokens: backend.prompt_tokens,
            cached_tokens: backend.cached_tokens,
        }
    }
}
