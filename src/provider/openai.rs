//! Servers with OpenAI's chat completions: llama.cpp, vLLM, LM Studio, hosted ones.
//!
//! They agree on the request and the events of the stream and on little else, so nothing is
//! required of an answer that is not needed. Models are managed by their operators: there is
//! nothing to load or unload here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::backend::{ChatRequest, ChatStream, Presence};
use super::door::{Door, Reply};
use super::fault::{Fault, Field};
use super::learned::Seed;
use super::ollama::function;
use super::parse::Dialect;
use super::phases::Limits;
use super::server::{Dialogue, Habits, Sending, Server, WireMessage};
use super::think::ThinkMode;
use crate::net::{Http, Method};

mod config;
pub(super) mod stream;

pub use config::{OpenAiConfig, OpenAiTimeouts};

/// Decoding before anything was measured, tokens a second: a small model on a small computer.
const TOKENS_PER_S: f64 = 10.0;

/// Prefill before anything was measured, tokens a second.
const PREFILL_TOKENS_PER_S: f64 = 100.0;

/// The backend.
#[derive(Debug)]
pub struct OpenAi {
    config: OpenAiConfig,
    server: Server,
    /// Which of the possible base paths has answered.
    prefix: Mutex<Option<&'static str>>,
}

/// All that is ever sent to `/chat/completions`.
#[derive(Serialize)]
struct ChatBody<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    stream: bool,
    stream_options: StreamOptions,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

// === impl OpenAi ===

impl OpenAi {
    /// A backend that has not spoken to its server yet.
    #[must_use]
    pub fn new(http: Arc<dyn Http>, config: OpenAiConfig) -> Self {
        let seed = Seed {
            context_tokens: config.context_tokens,
            chunk_tokens: 1,
            chunk: Duration::from_secs_f64(1.0 / PREFILL_TOKENS_PER_S),
            tokens_per_s: TOKENS_PER_S,
            load: Duration::ZERO,
            prefill_max: None,
            prefix_cache: true,
        };
        let door = Door {
            http,
            base: config.url.trim_end_matches('/').to_owned(),
            bearer: config.api_key.clone(),
            connect_timeout: config.timeouts.connect,
            dialect: Dialect::OpenAi,
        };
        let server = Server::new(door, &config.model, config.timeouts.probe, seed);
        // Somebody else keeps the model loaded.
        server.learned.loaded(Instant::now(), -1);
        Self { config, server, prefix: Mutex::new(None) }
    }

    /// Paths to try between the configured URL and the API's own, the likelier first.
    fn prefixes(&self) -> &'static [&'static str] {
        let authority = self.server.door.base.split_once("://").map_or("", |(_, rest)| rest);
        match authority.split_once('/') {
            None => &["/v1"],
            Some((_, path)) if path == "v1" || path.ends_with("/v1") => &[""],
            Some(_) => &["", "/v1"],
        }
    }

    fn prefix(&self) -> &'static str {
        let known = *self.prefix.lock().unwrap_or_else(PoisonError::into_inner);
        known.or_else(|| self.prefixes().first().copied()).unwrap_or_default()
    }

    fn limits(&self, request: &ChatRequest) -> Limits {
        let timeouts = &self.config.timeouts;
        let prefill = request.prompt_tokens / timeouts.prefill_tokens_per_s.max(1);
        let prefill = Duration::from_secs(prefill.into());
        let decoding = self.server.decoding(request.num_predict, timeouts.decode_tokens_per_s);
        Limits {
            head: timeouts.head + prefill,
            first_token: timeouts.first_token + prefill,
            between_tokens: timeouts.between_tokens,
            whole: timeouts.whole_extra + prefill + decoding,
            gives_up: None,
        }
    }

    async fn models(&self) -> Result<Reply, Fault> {
        let mut found = None;
        for prefix in self.prefixes() {
            let path = format!("{prefix}/models");
            let limit = self.config.timeouts.probe;
            let reply = self.server.door.fetch(Method::Get, &path, None, limit).await?;
            let wrong_path = matches!(reply.status, 404 | 405) || reply.is_page();
            found = Some(reply);
            if !wrong_path {
                *self.prefix.lock().unwrap_or_else(PoisonError::into_inner) = Some(prefix);
                break;
            }
        }
        found.ok_or_else(|| self.server.door.foreign("an OpenAI-compatible server", "nothing"))
    }
}

impl Dialogue for OpenAi {
    const NAME: &'static str = "openai";

    fn server(&self) -> &Server {
        &self.server
    }

    fn habits(&self) -> Habits {
        Habits {
            record_outlives_failure: false,
            counts_cached_tokens: true,
            think_mode: ThinkMode::MayOpen,
            service: None,
            memory_to_load: None,
        }
    }

    async fn start(&self, request: ChatRequest) -> Result<ChatStream, Fault> {
        self.server.check(&request)?;
        let sampling = request.sampling;
        let fields = self.server.taken(&[(Field::Tools, !request.tools.is_empty())]);
        let tools = request.tools.iter().filter(|_| fields.contains(&Field::Tools));
        let body = ChatBody {
            model: &self.config.model,
            messages: WireMessage::all(&request.messages),
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            max_tokens: request.num_predict.max(1),
            temperature: sampling.temperature.filter(|t| t.is_finite() && *t >= 0.0),
            top_p: sampling.top_p.filter(|p| *p > 0.0 && *p <= 1.0),
            seed: sampling.seed.map(|seed| seed & i32::MAX.unsigned_abs()),
            response_format: request.schema.as_ref().map(response_format),
            tools: tools.map(function).collect(),
        };
        let sending = Sending {
            path: &format!("{}/chat/completions", self.prefix()),
            body: &body,
            decode: Box::new(stream::Completion::default()),
            limits: self.limits(&request),
            keep_alive_s: -1,
            fields,
        };
        self.server.answer(&request, sending)
    }

    async fn look(&self) -> Result<Presence, Fault> {
        let reply = self.models().await?;
        if reply.is_page() {
            return Err(self.server.door.foreign("an OpenAI-compatible server", "a web page"));
        }
        let value = reply.json(Dialect::OpenAi)?;
        let models: Vec<&Value> =
            value.get("data").and_then(Value::as_array).into_iter().flatten().collect();
        let field = |model: &Value, name: &str| {
            model.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let offered: Vec<String> = models.iter().map(|model| field(model, "id")).collect();
        let owner = models.first().map(|model| field(model, "owned_by")).unwrap_or_default();
        // llama.cpp serves its one model under any name, and lists it by its file's.
        let any_name = owner == "llamacpp" && offered.len() == 1;
        let here = any_name || offered.contains(&self.config.model);
        let server = if owner.is_empty() {
            "an OpenAI-compatible server".to_owned()
        } else {
            format!("an OpenAI-compatible server ({owner})")
        };
        Ok(Presence { server, model: here.then(|| self.config.model.clone()), offered })
    }

    /// Checks that the model is there; who runs the server decides what is loaded, and there is
    /// nothing to release from here.
    async fn set_loaded(&self, loaded: bool) -> Result<(), Fault> {
        if !loaded {
            return Ok(());
        }
        let presence = self.look().await?;
        match presence.model {
            Some(_) => Ok(()),
            None => Err(self.server.door.missing(&self.config.model, &presence.offered)),
        }
    }

    /// Such servers have several slots and notice a closed connection.
    fn lingers(&self, _before_token: bool, _prompt_tokens: u32) -> Duration {
        Duration::ZERO
    }
}

fn response_format(schema: &Value) -> Value {
    json!({
        "type": "json_schema",
        "json_schema": { "name": "answer", "strict": true, "schema": schema },
    })
}

#[cfg(test)]
mod tests;
