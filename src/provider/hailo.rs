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

use serde::Serialize;
use tokio::time::Instant;

use super::aliases::{aliases, published};
use super::backend::{ChatRequest, ChatStream, Message, Presence, Sampling};
use super::door::{Door, Tag};
use super::fault::{Class, Fault, Phase};
use super::learned::Seed;
use super::ndjson::Ndjson;
use super::parse::Dialect;
use super::phases::Limits;
use super::sanitise;
use super::server::{Dialogue, Habits, Sending, Server, keep_alive_s};
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
    server: Server,
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
        let seed = Seed {
            context_tokens: config.context_tokens,
            chunk_tokens: CHUNK_TOKENS,
            chunk: known.chunk.mul_f64(pace),
            tokens_per_s: known.tokens_per_s / pace,
            load: known.load.mul_f64(pace),
            prefill_max: Some(PREFILL_MAX.mul_f64(pace)),
            prefix_cache: false,
        };
        let door = Door {
            http,
            base: config.url.trim_end_matches('/').to_owned(),
            bearer: None,
            connect_timeout: config.timeouts.connect,
            dialect: Dialect::Hailo,
        };
        let server = Server::new(door, &config.model, config.timeouts.probe, seed);
        Self { config, server }
    }

    fn limits(&self, num_predict: u32) -> Limits {
        let timeouts = &self.config.timeouts;
        let loaded = self.server.learned.is_loaded(Instant::now());
        let decoding = self.server.decoding(num_predict, timeouts.decode_tokens_per_s);
        Limits {
            head: if loaded { timeouts.head_loaded } else { timeouts.head_cold },
            first_token: timeouts.first_token,
            between_tokens: timeouts.between_tokens,
            whole: timeouts.whole_extra + decoding,
            gives_up: Some(timeouts.gives_up),
        }
    }

    /// The server's name, with the version of the driver where that can be seen: it is the one of
    /// the server, which does not tell its own.
    fn release(&self) -> String {
        let facts = self.server.door.is_local().then(|| hailo::device::facts(&self.config.machine));
        match facts.and_then(|facts| facts.driver_version) {
            Some(version) => format!("hailo-ollama with driver {version}"),
            None => "hailo-ollama".to_owned(),
        }
    }

    fn foreign(&self, root: &str) -> Fault {
        let found = match root.trim() {
            text if text.contains("Ollama is running") => "Ollama",
            "" => "a server without a name",
            text => text,
        };
        self.server.door.foreign("hailo-ollama", found)
    }
}

impl Dialogue for Hailo {
    const NAME: &'static str = "hailo";

    fn server(&self) -> &Server {
        &self.server
    }

    fn habits(&self) -> Habits {
        let starts_inside = published(&self.config.model).starts_thinking;
        let think_mode = if starts_inside { ThinkMode::StartsInside } else { ThinkMode::MayOpen };
        Habits {
            record_outlives_failure: true,
            counts_cached_tokens: false,
            think_mode,
            service: Some("hailo-ollama"),
            // The hat has memory of its own.
            memory_to_load: None,
        }
    }

    async fn start(&self, request: ChatRequest) -> Result<ChatStream, Fault> {
        self.server.check(&request)?;
        let system_first =
            request.messages.first().is_some_and(|first| first.role.as_str() == "system");
        if !system_first {
            // The template would put its own words there, and every prompt would differ.
            let text = "a prompt that does not begin with the system message";
            return Err(Fault::new(Class::OurBug, Phase::Connect, text));
        }
        let model = self.server.resolve(&aliases(&self.config.model)).await?;
        let body = ChatBody {
            model: &model,
            messages: request.messages.iter().map(WireMessage::from).collect(),
            stream: true,
            keep_alive: self.config.keep_alive_s,
            options: Options::new(request.num_predict, request.sampling),
        };
        let sending = Sending {
            path: "/api/chat",
            body: &body,
            decode: Box::new(Ndjson::new(Dialect::Hailo)),
            limits: self.limits(request.num_predict),
            keep_alive_s: self.config.keep_alive_s,
            fields: Vec::new(),
        };
        self.server.answer(&request, sending)
    }

    async fn look(&self) -> Result<Presence, Fault> {
        let (door, limit) = (&self.server.door, self.config.timeouts.probe);
        let root = door.fetch(Method::Get, "/", None, limit).await?;
        let tags = match door.tags(limit).await {
            Ok(tags) => tags,
            Err(_) if !is_hailo(&root.text) => return Err(self.foreign(&root.text)),
            Err(fault) => return Err(fault),
        };
        let offered = names(&tags);
        // The second witness: only hailo-ollama has models of this format.
        if !is_hailo(&root.text) && !tags.iter().any(|tag| tag.hef) {
            return Err(self.foreign(&root.text));
        }
        let model = self.server.find(&aliases(&self.config.model), &offered);
        Ok(Presence { server: self.release(), model, offered })
    }

    /// A load's answer is not proof: after a failed one the server says "load" and does nothing.
    async fn set_loaded(&self, loaded: bool) -> Result<(), Fault> {
        let model = self.server.resolve(&aliases(&self.config.model)).await?;
        let keep_alive = keep_alive_s(self.config.keep_alive_s, loaded);
        let body = LoadBody { model: &model, keep_alive };
        self.server.load_or_release(&body, self.config.timeouts.head_cold, keep_alive).await
    }

    fn local_hint(&self) -> Option<String> {
        let there = hailo::device::present(&self.config.machine);
        (!there).then(|| "and this machine has no device node /dev/hailo* or /dev/h1x-*".to_owned())
    }

    fn lingers(&self, before_token: bool, prompt_tokens: u32) -> Duration {
        let learned = &self.server.learned;
        let tokens = Duration::from_secs_f64(GHOST_TOKENS / learned.tokens_per_s());
        let tokens = tokens.max(GHOST_MIN);
        if before_token {
            // A request whose client has gone is executed all the same: load, prefill, tokens.
            learned.first_token_estimate(prompt_tokens, Instant::now()) + tokens
        } else {
            tokens
        }
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
