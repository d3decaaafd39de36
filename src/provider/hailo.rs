//! hailo-ollama on the Hailo-10H: one slot, 2,048 tokens, a ten-second limit on prefill, and a
//! list of fields that break it.
//!
//! Works with the releases 5.1.1 to 5.4 without knowing which one answers. What is sent is a
//! closed list of typed fields, so that a forbidden one cannot be added by accident.
//!
//! # Invariants
//! - Always streamed: a generation that is not streamed cannot be cancelled.
//! - Never tools, format, think, images, truncate, or any option but the five below.
//! - Never a question that takes the generation lock (`/api/ps`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio::time::Instant;

use super::aliases::{aliases, pick, published};
use super::backend::{Backend, Capacity, ChatRequest, ChatStream, Message, Presence, Sampling};
use super::door::{Door, Resolved, Tag, check};
use super::fault::{Class, Fault, Phase};
use super::learned::{Learned, Seed};
use super::parse::Dialect;
use super::phases::{Limits, Plan, answer};
use super::sanitise;
use super::think::ThinkMode;
use crate::net::{Http, Method};

mod config;

use config::GIVES_UP;
pub use config::{HailoConfig, HailoTimeouts};

/// Tokens prefilled together, HailoRT's default; a model file may say otherwise.
const CHUNK_TOKENS: u32 = 96;

/// Prefill planned for at most this long: the server gives up at 10 s, and 2 s are for jitter.
const PREFILL_MAX: Duration = Duration::from_secs(8);

/// After a dropped stream the server notices at the next write or two, then awaits a recovery
/// token.
const GHOST_TOKENS: f64 = 3.0;

/// Shortest hold after a dropped stream, however fast the model: closing takes its time too.
const GHOST_MIN: Duration = Duration::from_millis(500);

/// Largest seed sent; the server reads a signed 32-bit number.
const SEED_MAX: u32 = i32::MAX as u32;

/// The backend.
#[derive(Debug)]
pub struct Hailo {
    config: HailoConfig,
    door: Door,
    learned: Arc<Learned>,
    resolved: Arc<Resolved>,
}

/// All that is ever sent to `/api/chat` with a prompt.
#[derive(Serialize)]
struct ChatBody<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    stream: bool,
    keep_alive: i64,
    options: Options,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: std::borrow::Cow<'a, str>,
}

#[derive(Serialize)]
struct Options {
    num_predict: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
}

/// Without messages the server loads, or unloads at a `keep_alive` of 0.
#[derive(Serialize)]
struct LoadBody<'a> {
    model: &'a str,
    keep_alive: i64,
}

// === impl Hailo ===

impl Hailo {
    /// A backend that has not spoken to its server yet.
    #[must_use]
    pub fn new(http: Arc<dyn Http>, config: HailoConfig) -> Self {
        let known = published(&config.model);
        let pace = pace(config.timeouts.gives_up);
        let learned = Learned::new(Seed {
            context_tokens: config.context_tokens,
            chunk_tokens: CHUNK_TOKENS,
            chunk: known.chunk.mul_f64(pace),
            tokens_per_s: known.tokens_per_s / pace,
            load: known.load.mul_f64(pace),
            prefill_max: Some(PREFILL_MAX.mul_f64(pace)),
            prefix_cache: false,
        });
        let door = Door {
            http,
            base: config.url.trim_end_matches('/').to_owned(),
            bearer: None,
            connect_timeout: config.timeouts.connect,
            dialect: Dialect::Hailo,
        };
        Self { config, door, learned: Arc::new(learned), resolved: Arc::default() }
    }

    async fn resolve(&self) -> Result<String, Fault> {
        if let Some(name) = self.resolved.get() {
            return Ok(name);
        }
        let offered = names(&self.door.tags(self.config.timeouts.probe).await?);
        self.find(&offered).ok_or_else(|| self.door.missing(&self.config.model, &offered))
    }

    /// The exact name among those offered, remembered until the model is missing.
    fn find(&self, offered: &[String]) -> Option<String> {
        let found = pick(&aliases(&self.config.model), offered).cloned();
        self.resolved.set(found.clone());
        found
    }

    async fn start(&self, request: ChatRequest) -> Result<ChatStream, Fault> {
        check(&request, self.config.context_tokens)?;
        let system_first =
            request.messages.first().is_some_and(|first| first.role.as_str() == "system");
        if !system_first {
            // The template would put its own words there, and every prompt would differ.
            let text = "a prompt that does not begin with the system message";
            return Err(Fault::new(Class::OurBug, Phase::Connect, text));
        }
        let model = self.resolve().await?;
        let body = ChatBody {
            model: &model,
            messages: request.messages.iter().map(WireMessage::from).collect(),
            stream: true,
            keep_alive: self.config.keep_alive_s,
            options: Options::new(request.num_predict, request.sampling),
        };
        let sending = self.door.open("/api/chat", &body)?;
        let limits = self.limits(request.num_predict);
        Ok(answer(Plan {
            sending,
            decode: Box::new(super::ndjson::Ndjson::new(Dialect::Hailo)),
            dialect: Dialect::Hailo,
            limits,
            learned: Arc::clone(&self.learned),
            resolved: Arc::clone(&self.resolved),
            fresh_tokens: self.learned.sending(&request),
            prompt_tokens: request.prompt_tokens,
            messages: request.messages,
            keep_alive_s: self.config.keep_alive_s,
        }))
    }

    fn limits(&self, num_predict: u32) -> Limits {
        let timeouts = &self.config.timeouts;
        let loaded = self.learned.is_loaded(Instant::now());
        let rate =
            (self.learned.tokens_per_s() / 2.0).clamp(0.1, timeouts.decode_tokens_per_s.max(0.1));
        Limits {
            head: if loaded { timeouts.head_loaded } else { timeouts.head_cold },
            first_token: timeouts.first_token,
            between_tokens: timeouts.between_tokens,
            whole: timeouts.whole_extra + Duration::from_secs_f64(f64::from(num_predict) / rate),
            gives_up: Some(timeouts.gives_up),
        }
    }

    async fn look(&self) -> Result<Presence, Fault> {
        let limit = self.config.timeouts.probe;
        let root = self.door.fetch(Method::Get, "/", None, limit).await?;
        let tags = match self.door.tags(limit).await {
            Ok(tags) => tags,
            Err(_) if !is_hailo(&root.text) => return Err(self.foreign(&root.text)),
            Err(fault) => return Err(fault),
        };
        let offered = names(&tags);
        // The second witness: only hailo-ollama has models of this format.
        if !is_hailo(&root.text) && !tags.iter().any(|tag| tag.hef) {
            return Err(self.foreign(&root.text));
        }
        let model = self.find(&offered);
        Ok(Presence { server: "hailo-ollama".into(), model, offered })
    }

    fn foreign(&self, root: &str) -> Fault {
        let found = match root.trim() {
            text if text.contains("Ollama is running") => "Ollama",
            "" => "a server without a name",
            text => text,
        };
        self.door.foreign("hailo-ollama", found)
    }

    /// A load's answer is not proof: after a failed one the server says "load" and does nothing.
    async fn set_loaded(&self, keep_alive: i64) -> Result<(), Fault> {
        let model = self.resolve().await?;
        let body = LoadBody { model: &model, keep_alive };
        let limit = self.config.timeouts.head_cold;
        let began = Instant::now();
        let outcome = self.door.command("/api/chat", &body, limit).await;
        if outcome.as_ref().is_err_and(|fault| fault.class == Class::ModelMissing) {
            self.resolved.set(None);
        }
        self.learned.load_ended(outcome.is_ok() && keep_alive != 0, began, keep_alive);
        outcome
    }
}

impl Backend for Hailo {
    fn name(&self) -> &str {
        "hailo"
    }

    fn model(&self) -> String {
        self.config.model.clone()
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            context_tokens: self.config.context_tokens,
            prefill_tokens_max: self.learned.prefill_tokens_max(),
        }
    }

    fn first_token_estimate(&self, fresh_tokens: u32) -> Duration {
        self.learned.first_token_estimate(fresh_tokens, Instant::now())
    }

    fn chat(&self, request: ChatRequest) -> BoxFuture<'_, Result<ChatStream, Fault>> {
        Box::pin(self.start(request))
    }

    fn presence(&self) -> BoxFuture<'_, Result<Presence, Fault>> {
        Box::pin(self.look())
    }

    fn load(&self) -> BoxFuture<'_, Result<(), Fault>> {
        // 0 would unload.
        let keep_alive = if self.config.keep_alive_s == 0 { 1 } else { self.config.keep_alive_s };
        Box::pin(self.set_loaded(keep_alive))
    }

    fn unload(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.set_loaded(0))
    }

    fn ghost(&self, before_token: bool, prompt_tokens: u32) -> Duration {
        let tokens = Duration::from_secs_f64(GHOST_TOKENS / self.learned.tokens_per_s());
        let tokens = tokens.max(GHOST_MIN);
        if before_token {
            // A request whose client has gone is executed all the same: load, prefill, tokens.
            self.first_token_estimate(prompt_tokens) + tokens
        } else {
            tokens
        }
    }

    fn record_outlives_failure(&self) -> bool {
        true
    }

    fn think_mode(&self) -> ThinkMode {
        let starts_inside = published(&self.config.model).starts_thinking;
        if starts_inside { ThinkMode::StartsInside } else { ThinkMode::MayOpen }
    }

    fn learned(&self) -> Option<&Learned> {
        Some(&self.learned)
    }
}

impl<'a> From<&'a Message> for WireMessage<'a> {
    fn from(message: &'a Message) -> Self {
        Self { role: message.role.as_str(), content: sanitise::without_controls(&message.content) }
    }
}

impl Options {
    fn new(num_predict: u32, sampling: Sampling) -> Self {
        Self {
            num_predict: num_predict.max(1),
            temperature: sampling.temperature.filter(|t| t.is_finite() && *t >= 0.0),
            top_p: sampling.top_p.filter(|p| *p > 0.0 && *p <= 1.0),
            top_k: sampling.top_k.filter(|k| (1..=SEED_MAX).contains(k)),
            seed: sampling.seed.map(|seed| seed & SEED_MAX),
        }
    }
}

/// How much time a published second takes. A simulator in a hurry gives up earlier, and does all
/// else faster by the same factor.
fn pace(gives_up: Duration) -> f64 {
    (gives_up.as_secs_f64() / GIVES_UP.as_secs_f64()).max(1e-3)
}

fn is_hailo(root: &str) -> bool {
    root.contains("hailo-ollama")
}

fn names(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|tag| tag.name.clone()).collect()
}

#[cfg(test)]
mod tests;
