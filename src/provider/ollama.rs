//! Ollama: the same wire as hailo-ollama with other habits.
//!
//! It sends its head only with the first token, reuses any common beginning of prompts, reloads
//! the model when an option of the context differs, thinks by default where it can, and cuts a
//! prompt silently unless told not to.
//!
//! # Invariants
//! - `num_ctx` and `num_thread` are the same in every request, the load included.
//! - `truncate: false` and `shift: false` always: a prompt that does not fit is an error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::backend::{ChatRequest, ChatStream, Presence, Sampling, ToolSpec};
use super::door::{Door, json as to_json};
use super::fault::{Fault, Field};
use super::learned::Seed;
use super::ndjson::Ndjson;
use super::parse::Dialect;
use super::phases::Limits;
use super::server::{Dialogue, Habits, Sending, Server, WireMessage, keep_alive_s};
use super::think::ThinkMode;
use crate::limits::PRELOAD_MEMORY_MIN;
use crate::net::{Http, Method};

mod config;

pub use config::{OllamaConfig, OllamaTimeouts};

/// Decoding before anything was measured, tokens a second: a 1.5B model on a Pi 5.
const TOKENS_PER_S: f64 = 7.5;

/// Loading before anything was measured: 1 GB from the page cache or a fast card.
const LOAD: Duration = Duration::from_secs(12);

/// Ollama stops within a token of a dropped connection; prefill is checked between batches.
const GHOST: Duration = Duration::from_millis(500);

/// The backend.
#[derive(Debug)]
pub struct Ollama {
    config: OllamaConfig,
    server: Server,
    /// Which model was asked whether it thinks, and the answer.
    thinks: Mutex<Option<(String, bool)>>,
    /// Its version counts a prompt's cached tokens too, so that a cut prompt shows.
    counts_cached: AtomicBool,
}

/// All that is ever sent to `/api/chat` with a prompt.
#[derive(Serialize)]
struct ChatBody<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    stream: bool,
    keep_alive: i64,
    options: Options,
    truncate: bool,
    shift: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
}

#[derive(Serialize)]
struct Options {
    num_ctx: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_thread: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
}

/// An empty list of messages loads, or unloads at a `keep_alive` of 0.
#[derive(Serialize)]
struct LoadBody<'a> {
    model: &'a str,
    messages: [(); 0],
    keep_alive: i64,
    options: Options,
}

// === impl Ollama ===

impl Ollama {
    /// A backend that has not spoken to its server yet.
    #[must_use]
    pub fn new(http: Arc<dyn Http>, config: OllamaConfig) -> Self {
        let slowest = f64::from(config.timeouts.prefill_tokens_per_s.max(1));
        let seed = Seed {
            context_tokens: config.context_tokens,
            chunk_tokens: 1,
            chunk: Duration::from_secs_f64(1.0 / slowest),
            tokens_per_s: TOKENS_PER_S,
            load: LOAD,
            prefill_max: None,
            prefix_cache: true,
        };
        let door = Door {
            http,
            base: config.url.trim_end_matches('/').to_owned(),
            bearer: config.api_key.clone(),
            connect_timeout: config.timeouts.connect,
            dialect: Dialect::Ollama,
        };
        let server = Server::new(door, &config.model, config.timeouts.probe, seed);
        Self { config, server, thinks: Mutex::new(None), counts_cached: AtomicBool::new(false) }
    }

    async fn resolve(&self) -> Result<String, Fault> {
        let latest = self.latest();
        self.server.resolve(&self.accepted(&latest)).await
    }

    fn latest(&self) -> String {
        format!("{}:latest", self.config.model)
    }

    /// Names of the model: without a tag the latest is meant.
    fn accepted<'a>(&'a self, latest: &'a str) -> Vec<&'a str> {
        let model = self.config.model.as_str();
        if model.contains(':') { vec![model] } else { vec![model, latest] }
    }

    /// Whether the model can think, asked once. A server that does not tell must not hold a chat
    /// up: then the field is left out and asked for again next time.
    async fn thinks(&self, model: &str) -> bool {
        let known = self.thinks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, thinks)) = known.filter(|(asked, _)| asked == model) {
            return thinks;
        }
        let Ok(body) = to_json(&json!({ "model": model })) else { return false };
        let limit = self.config.timeouts.probe;
        let shown = self.server.door.fetch_json(Method::Post, "/api/show", Some(body), limit).await;
        let Ok(shown) = shown else { return false };
        let able = shown.get("capabilities").and_then(Value::as_array);
        let thinks = able.is_some_and(|able| able.iter().any(|one| one == "thinking"));
        *self.thinks.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((model.to_owned(), thinks));
        thinks
    }

    fn options(&self, num_predict: Option<u32>, sampling: Sampling) -> Options {
        Options {
            num_ctx: self.config.context_tokens,
            num_thread: self.config.threads,
            repeat_penalty: self.config.repeat_penalty.filter(|p| p.is_finite() && *p > 0.0),
            num_predict: num_predict.map(|tokens| tokens.max(1)),
            temperature: sampling.temperature.filter(|t| t.is_finite() && *t >= 0.0),
            top_p: sampling.top_p.filter(|p| *p > 0.0 && *p <= 1.0),
            top_k: sampling.top_k.filter(|k| *k >= 1),
            seed: sampling.seed.map(|seed| seed & i32::MAX.unsigned_abs()),
        }
    }

    fn limits(&self, request: &ChatRequest) -> Limits {
        let timeouts = &self.config.timeouts;
        let loaded = self.server.learned.is_loaded(Instant::now());
        let base = if loaded { timeouts.head_loaded } else { timeouts.head_cold };
        let prefill = request.prompt_tokens / timeouts.prefill_tokens_per_s.max(1);
        let prefill = Duration::from_secs(prefill.into());
        let decoding = self.server.decoding(request.num_predict, timeouts.decode_tokens_per_s);
        Limits {
            head: base + prefill,
            // A proxy in front of Ollama may send the head at once.
            first_token: timeouts.first_token + prefill,
            between_tokens: timeouts.between_tokens,
            whole: timeouts.whole_extra + decoding,
            gives_up: None,
        }
    }
}

impl Dialogue for Ollama {
    const NAME: &'static str = "ollama";

    fn server(&self) -> &Server {
        &self.server
    }

    fn habits(&self) -> Habits {
        Habits {
            record_outlives_failure: false,
            counts_cached_tokens: self.counts_cached.load(Ordering::Relaxed),
            think_mode: ThinkMode::MayOpen,
            service: Some("ollama"),
            memory_to_load: Some(PRELOAD_MEMORY_MIN),
        }
    }

    async fn start(&self, request: ChatRequest) -> Result<ChatStream, Fault> {
        self.server.check(&request)?;
        let model = self.resolve().await?;
        let thinks = self.thinks(&model).await;
        let has_tools = !request.tools.is_empty();
        let fields = self.server.taken(&[(Field::Think, thinks), (Field::Tools, has_tools)]);
        let tools = request.tools.iter().filter(|_| fields.contains(&Field::Tools));
        let body = ChatBody {
            model: &model,
            messages: WireMessage::all(&request.messages),
            stream: true,
            keep_alive: self.config.keep_alive_s,
            options: self.options(Some(request.num_predict), request.sampling),
            truncate: false,
            shift: false,
            think: fields.contains(&Field::Think).then_some(false),
            format: request.schema.as_ref(),
            tools: tools.map(function).collect(),
        };
        let sending = Sending {
            path: "/api/chat",
            body: &body,
            decode: Box::new(Ndjson::new(Dialect::Ollama)),
            limits: self.limits(&request),
            keep_alive_s: self.config.keep_alive_s,
            fields,
        };
        self.server.answer(&request, sending)
    }

    async fn look(&self) -> Result<Presence, Fault> {
        let (door, limit) = (&self.server.door, self.config.timeouts.probe);
        let root = door.fetch(Method::Get, "/", None, limit).await?;
        if root.text.contains("hailo-ollama") {
            return Err(door.foreign("Ollama", "hailo-ollama"));
        }
        let tags = match door.tags(limit).await {
            Ok(tags) => tags,
            Err(_) if !root.text.contains("Ollama is running") => {
                return Err(door.foreign("Ollama", root.text.trim()));
            }
            Err(fault) => return Err(fault),
        };
        if tags.iter().any(|tag| tag.hef) {
            return Err(door.foreign("Ollama", "hailo-ollama"));
        }
        let offered: Vec<String> = tags.into_iter().map(|tag| tag.name).collect();
        let version = door.fetch_json(Method::Get, "/api/version", None, limit).await;
        let version = version.ok().and_then(|v| Some(v.get("version")?.as_str()?.to_owned()));
        let counts = version.as_deref().is_some_and(counts_cached);
        self.counts_cached.store(counts, Ordering::Relaxed);
        let server =
            version.map_or_else(|| "Ollama".to_owned(), |version| format!("Ollama {version}"));
        let latest = self.latest();
        let model = self.server.find(&self.accepted(&latest), &offered);
        Ok(Presence { server, model, offered })
    }

    async fn set_loaded(&self, loaded: bool) -> Result<(), Fault> {
        let model = self.resolve().await?;
        let keep_alive = keep_alive_s(self.config.keep_alive_s, loaded);
        // A proxy that knows no load takes the request for a prompt, and would have its model talk
        // without end on the one slot. Ollama ignores the bound here and does not load anew for it.
        let options = self.options(Some(1), Sampling::default());
        let body = LoadBody { model: &model, messages: [], keep_alive, options };
        self.server.load_or_release(&body, self.config.timeouts.head_cold, keep_alive).await
    }

    /// Asks what is loaded, which costs Ollama nothing: somebody else may have loaded it.
    async fn holds(&self) -> bool {
        if self.server.learned.is_loaded(Instant::now()) {
            return true;
        }
        let Some(model) = self.server.resolved.get() else { return false };
        let limit = self.config.timeouts.probe;
        let loaded = self.server.door.fetch_json(Method::Get, "/api/ps", None, limit).await;
        let models = loaded.ok().and_then(|value| Some(value.get("models")?.as_array()?.clone()));
        let name = |one: &Value| one.get("name").and_then(Value::as_str) == Some(&model);
        models.is_some_and(|models| models.iter().any(name))
    }

    fn lingers(&self, _before_token: bool, _prompt_tokens: u32) -> Duration {
        GHOST
    }
}

/// Whether this version counts the cached part of a prompt: 0.30 and later do (specification 4.1).
fn counts_cached(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(0), Some(minor)) => minor >= 30,
        (Some(_), Some(_)) => true,
        _ => false,
    }
}

/// A tool as both Ollama and OpenAI write it.
pub(crate) fn function(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    })
}

#[cfg(test)]
mod tests;
