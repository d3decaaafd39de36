//! Ollama: the same wire as hailo-ollama with other habits.
//!
//! It sends its head only with the first token, reuses any common beginning of prompts, reloads
//! the model when an option of the context differs, thinks by default where it can, and cuts a
//! prompt silently unless told not to.
//!
//! # Invariants
//! - `num_ctx` and `num_thread` are the same in every request, the load included.
//! - `truncate: false` and `shift: false` always: a prompt that does not fit is an error.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::aliases::pick;
use super::backend::{Backend, Capacity, ChatRequest, ChatStream, Presence, Sampling, ToolSpec};
use super::door::{Door, Resolved, check, json as to_json};
use super::fault::{Class, Fault};
use super::learned::{Learned, Seed};
use super::ndjson::Ndjson;
use super::parse::Dialect;
use super::phases::{Limits, Plan, answer};
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
    door: Door,
    learned: Arc<Learned>,
    resolved: Arc<Resolved>,
    /// Which model was asked whether it thinks, and the answer.
    thinks: Mutex<Option<(String, bool)>>,
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
struct WireMessage<'a> {
    role: &'static str,
    content: &'a str,
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
        let learned = Learned::new(Seed {
            context_tokens: config.context_tokens,
            chunk_tokens: 1,
            chunk: Duration::from_secs_f64(1.0 / slowest),
            tokens_per_s: TOKENS_PER_S,
            load: LOAD,
            prefill_max: None,
            prefix_cache: true,
        });
        let door = Door {
            http,
            base: config.url.trim_end_matches('/').to_owned(),
            bearer: config.api_key.clone(),
            connect_timeout: config.timeouts.connect,
            dialect: Dialect::Ollama,
        };
        Self {
            config,
            door,
            learned: Arc::new(learned),
            resolved: Arc::default(),
            thinks: Mutex::new(None),
        }
    }

    async fn resolve(&self) -> Result<String, Fault> {
        if let Some(name) = self.resolved.get() {
            return Ok(name);
        }
        let offered = self.offered().await?;
        self.find(&offered).ok_or_else(|| self.door.missing(&self.config.model, &offered))
    }

    async fn offered(&self) -> Result<Vec<String>, Fault> {
        let tags = self.door.tags(self.config.timeouts.probe).await?;
        Ok(tags.into_iter().map(|tag| tag.name).collect())
    }

    fn find(&self, offered: &[String]) -> Option<String> {
        let model = self.config.model.as_str();
        let latest = format!("{model}:latest");
        let accepted = if model.contains(':') { vec![model] } else { vec![model, latest.as_str()] };
        let found = pick(&accepted, offered).cloned();
        self.resolved.set(found.clone());
        found
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
        let shown = self.door.fetch_json(Method::Post, "/api/show", Some(body), limit).await;
        let Ok(shown) = shown else { return false };
        let able = shown.get("capabilities").and_then(Value::as_array);
        let thinks = able.is_some_and(|able| able.iter().any(|one| one == "thinking"));
        *self.thinks.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((model.to_owned(), thinks));
        thinks
    }

    async fn start(&self, request: ChatRequest) -> Result<ChatStream, Fault> {
        check(&request, self.config.context_tokens)?;
        let model = self.resolve().await?;
        let thinks = self.thinks(&model).await;
        let body = ChatBody {
            model: &model,
            messages: request
                .messages
                .iter()
                .map(|one| WireMessage { role: one.role.as_str(), content: &one.content })
                .collect(),
            stream: true,
            keep_alive: self.config.keep_alive_s,
            options: self.options(Some(request.num_predict), request.sampling),
            truncate: false,
            shift: false,
            think: thinks.then_some(false),
            format: request.schema.as_ref(),
            tools: request.tools.iter().map(function).collect(),
        };
        let sending = self.door.open("/api/chat", &body)?;
        Ok(answer(Plan {
            sending,
            decode: Box::new(Ndjson::new(Dialect::Ollama)),
            dialect: Dialect::Ollama,
            limits: self.limits(&request),
            learned: Arc::clone(&self.learned),
            resolved: Arc::clone(&self.resolved),
            fresh_tokens: self.learned.sending(&request),
            prompt_tokens: request.prompt_tokens,
            messages: request.messages,
            keep_alive_s: self.config.keep_alive_s,
        }))
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
        let loaded = self.learned.is_loaded(Instant::now());
        let base = if loaded { timeouts.head_loaded } else { timeouts.head_cold };
        let prefill = request.prompt_tokens / timeouts.prefill_tokens_per_s.max(1);
        let prefill = Duration::from_secs(prefill.into());
        let rate =
            (self.learned.tokens_per_s() / 2.0).clamp(0.1, timeouts.decode_tokens_per_s.max(0.1));
        let decoding = Duration::from_secs_f64(f64::from(request.num_predict) / rate);
        Limits {
            head: base + prefill,
            // A proxy in front of Ollama may send the head at once.
            first_token: timeouts.first_token + prefill,
            between_tokens: timeouts.between_tokens,
            whole: timeouts.whole_extra + decoding,
            gives_up: None,
        }
    }

    async fn look(&self) -> Result<Presence, Fault> {
        let limit = self.config.timeouts.probe;
        let root = self.door.fetch(Method::Get, "/", None, limit).await?;
        if root.text.contains("hailo-ollama") {
            return Err(self.door.foreign("Ollama", "hailo-ollama"));
        }
        let tags = match self.door.tags(limit).await {
            Ok(tags) => tags,
            Err(_) if !root.text.contains("Ollama is running") => {
                return Err(self.door.foreign("Ollama", root.text.trim()));
            }
            Err(fault) => return Err(fault),
        };
        if tags.iter().any(|tag| tag.hef) {
            return Err(self.door.foreign("Ollama", "hailo-ollama"));
        }
        let offered: Vec<String> = tags.into_iter().map(|tag| tag.name).collect();
        let version = self.door.fetch_json(Method::Get, "/api/version", None, limit).await;
        let version = version.ok().and_then(|v| Some(v.get("version")?.as_str()?.to_owned()));
        let server =
            version.map_or_else(|| "Ollama".to_owned(), |version| format!("Ollama {version}"));
        Ok(Presence { server, model: self.find(&offered), offered })
    }

    async fn set_loaded(&self, keep_alive: i64) -> Result<(), Fault> {
        let model = self.resolve().await?;
        // A proxy that knows no load takes the request for a prompt, and would have its model talk
        // without end on the one slot. Ollama ignores the bound here and does not load anew for it.
        let options = self.options(Some(1), Sampling::default());
        let body = LoadBody { model: &model, messages: [], keep_alive, options };
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

impl Backend for Ollama {
    fn name(&self) -> &str {
        "ollama"
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

    fn ghost(&self, _before_head: bool, _prompt_tokens: u32) -> Duration {
        GHOST
    }

    fn record_outlives_failure(&self) -> bool {
        false
    }

    fn learned(&self) -> Option<&Learned> {
        Some(&self.learned)
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
