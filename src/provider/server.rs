//! A model server as all dialects share it: how it is reached, what was learned of it, which name
//! its model has there; and everything a backend says that follows from these.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio::time::Instant;

use super::aliases::pick;
use super::backend::{Backend, Capacity, ChatRequest, ChatStream, Message, Presence};
use super::door::{Door, Resolved, check};
use super::fault::{Class, Fault, Field};
use super::learned::{Learned, Seed};
use super::parse::Dialect;
use super::phases::{Decode, Limits, Plan, answer};
use super::think::ThinkMode;
use crate::net::Method;

/// Silent answers to `/` that make a server hung: one may be a busy machine's.
const SILENCES_MAX: u32 = 2;

/// One server and its one model.
#[derive(Debug)]
pub(crate) struct Server {
    /// As configured.
    pub(crate) model: String,
    pub(crate) context_tokens: u32,
    /// Limit of short calls.
    pub(crate) probe: Duration,
    pub(crate) door: Door,
    pub(crate) learned: Arc<Learned>,
    pub(crate) resolved: Arc<Resolved>,
}

/// What a dialect adds to a prompt that is ready to be sent.
pub(crate) struct Sending<'a, B> {
    pub(crate) path: &'a str,
    pub(crate) body: &'a B,
    pub(crate) decode: Box<dyn Decode>,
    pub(crate) limits: Limits,
    pub(crate) keep_alive_s: i64,
    /// Those of the fields that a model may refuse which the body has.
    pub(crate) fields: Vec<Field>,
}

/// Habits of a kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits {
    /// As [`Backend::record_outlives_failure`].
    pub(crate) record_outlives_failure: bool,
    /// As [`Backend::counts_cached_tokens`].
    pub(crate) counts_cached_tokens: bool,
    /// As [`Backend::think_mode`].
    pub(crate) think_mode: ThinkMode,
    /// As [`Backend::service`], of a server on this machine.
    /// As [`Backend::service`].
    pub(crate) service: Option<&'static str>,
    /// As [`Backend::memory_to_load`].
    pub(crate) memory_to_load: Option<u64>,
}

/// A backend behind an HTTP server: what is left for a dialect to say.
pub(crate) trait Dialogue: Send + Sync {
    /// As [`Backend::name`].
    const NAME: &'static str;

    /// The server.
    fn server(&self) -> &Server;

    /// Its habits.
    fn habits(&self) -> Habits;

    /// As [`Backend::chat`].
    fn start(&self, request: ChatRequest)
    -> impl Future<Output = Result<ChatStream, Fault>> + Send;

    /// As [`Backend::presence`].
    fn look(&self) -> impl Future<Output = Result<Presence, Fault>> + Send;

    /// Loads the model, or releases it.
    fn set_loaded(&self, loaded: bool) -> impl Future<Output = Result<(), Fault>> + Send;

    /// As [`Backend::holds_model`].
    fn holds(&self) -> impl Future<Output = bool> + Send {
        std::future::ready(self.server().learned.is_loaded(Instant::now()))
    }

    /// As [`Backend::hint`], of a server on this machine.
    fn local_hint(&self) -> Option<String> {
        None
    }

    /// As [`Backend::ghost`].
    fn lingers(&self, before_token: bool, prompt_tokens: u32) -> Duration;
}

/// A message in the form that all three dialects share.
#[derive(Serialize)]
pub(crate) struct WireMessage<'a> {
    role: &'static str,
    content: &'a str,
}

// === impl Server ===

impl Server {
    pub(crate) fn new(door: Door, model: &str, probe: Duration, seed: Seed) -> Self {
        Self {
            model: model.to_owned(),
            context_tokens: seed.context_tokens,
            probe,
            door,
            learned: Arc::new(Learned::new(seed)),
            resolved: Arc::default(),
        }
    }

    /// The model's exact name on the server, which is one of `accepted`.
    pub(crate) async fn resolve(&self, accepted: &[&str]) -> Result<String, Fault> {
        if let Some(name) = self.resolved.get() {
            return Ok(name);
        }
        let tags = self.door.tags(self.probe).await?;
        let offered: Vec<String> = tags.into_iter().map(|tag| tag.name).collect();
        self.find(accepted, &offered).ok_or_else(|| self.door.missing(&self.model, &offered))
    }

    /// The exact name among those offered, remembered until the model is missing.
    pub(crate) fn find(&self, accepted: &[&str], offered: &[String]) -> Option<String> {
        let found = pick(accepted, offered).cloned();
        self.resolved.set(found.clone());
        found
    }

    /// Refuses a prompt that no server may see.
    pub(crate) fn check(&self, request: &ChatRequest) -> Result<(), Fault> {
        check(request, self.context_tokens)
    }

    /// The answer to a prompt, which is sent when it is first polled.
    pub(crate) fn answer<B: Serialize>(
        &self,
        request: &ChatRequest,
        sending: Sending<'_, B>,
    ) -> Result<ChatStream, Fault> {
        Ok(answer(Plan {
            sending: self.door.open(sending.path, sending.body)?,
            decode: sending.decode,
            dialect: self.door.dialect,
            limits: sending.limits,
            learned: Arc::clone(&self.learned),
            resolved: Arc::clone(&self.resolved),
            fresh_tokens: self.learned.sending(request),
            prompt_tokens: request.prompt_tokens,
            messages: request.messages.clone(),
            keep_alive_s: sending.keep_alive_s,
            fields: sending.fields,
            alive: self.alive(),
        }))
    }

    /// Asks whether the server lives, of those that answer `/` whatever else they do. One that
    /// answers is slow; one that does not, or is another, need not be waited for.
    fn alive(&self) -> Option<BoxFuture<'static, Result<(), Fault>>> {
        let (ours, other) = match self.door.dialect {
            Dialect::Hailo => ("hailo-ollama", "Ollama is running"),
            Dialect::Ollama => ("Ollama", "hailo-ollama"),
            Dialect::OpenAi => return None,
        };
        let (door, limit) = (self.door.clone(), self.probe);
        Some(Box::pin(async move {
            let mut silences = 0;
            loop {
                match door.fetch(Method::Get, "/", None, limit).await {
                    Ok(reply) if reply.text.contains(other) => {
                        return Err(door.foreign(ours, reply.text.trim()));
                    }
                    Err(fault) if fault.class == Class::Down => return Err(fault),
                    Err(fault) if fault.class == Class::Wedged => {
                        silences += 1;
                        if silences == SILENCES_MAX {
                            return Err(fault);
                        }
                    }
                    // A proxy in front of it may answer anything, or nothing of use.
                    Ok(_) | Err(_) => return Ok(()),
                }
            }
        }))
    }

    /// A load, or an unload at a `keep_alive_s` of 0, and what it teaches.
    pub(crate) async fn load_or_release<B: Serialize>(
        &self,
        body: &B,
        limit: Duration,
        keep_alive_s: i64,
    ) -> Result<(), Fault> {
        let began = Instant::now();
        let outcome = self.door.command("/api/chat", body, limit).await;
        if outcome.as_ref().is_err_and(|fault| fault.class == Class::ModelMissing) {
            self.resolved.set(None);
        }
        self.learned.load_ended(outcome.is_ok() && keep_alive_s != 0, began, keep_alive_s);
        outcome
    }

    /// The fields among `wanted` that the model takes.
    pub(crate) fn taken(&self, wanted: &[(Field, bool)]) -> Vec<Field> {
        let takes = |(field, wanted): &(Field, bool)| *wanted && !self.learned.has_refused(*field);
        wanted.iter().filter(|one| takes(one)).map(|(field, _)| *field).collect()
    }

    /// Time allowed for decoding: at half the known rate, and never at more than `slowest`.
    pub(crate) fn decoding(&self, tokens: u32, slowest: f64) -> Duration {
        let rate = (self.learned.tokens_per_s() / 2.0).clamp(0.1, slowest.max(0.1));
        Duration::from_secs_f64(f64::from(tokens) / rate)
    }
}

impl<'a> WireMessage<'a> {
    pub(crate) fn all(messages: &'a [Message]) -> Vec<Self> {
        let wire = |one: &'a Message| Self { role: one.role.as_str(), content: &one.content };
        messages.iter().map(wire).collect()
    }
}

/// The time a model is asked to stay loaded for: 0 would release it at once.
pub(crate) fn keep_alive_s(configured: i64, loaded: bool) -> i64 {
    match (loaded, configured) {
        (false, _) => 0,
        (true, 0) => 1,
        (true, seconds) => seconds,
    }
}

// === impl Backend ===

impl<D: Dialogue> Backend for D {
    fn name(&self) -> &str {
        D::NAME
    }

    fn model(&self) -> String {
        self.server().model.clone()
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            context_tokens: self.server().context_tokens,
            prefill_tokens_max: self.server().learned.prefill_tokens_max(),
        }
    }

    fn first_token_estimate(&self, fresh_tokens: u32) -> Duration {
        self.server().learned.first_token_estimate(fresh_tokens, Instant::now())
    }

    fn chat(&self, request: ChatRequest) -> BoxFuture<'_, Result<ChatStream, Fault>> {
        Box::pin(self.start(request))
    }

    fn presence(&self) -> BoxFuture<'_, Result<Presence, Fault>> {
        Box::pin(self.look())
    }

    fn load(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.set_loaded(true))
    }

    fn unload(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.set_loaded(false))
    }

    fn ghost(&self, before_token: bool, prompt_tokens: u32) -> Duration {
        self.lingers(before_token, prompt_tokens)
    }

    fn record_outlives_failure(&self) -> bool {
        self.habits().record_outlives_failure
    }

    fn think_mode(&self) -> ThinkMode {
        self.habits().think_mode
    }

    fn counts_cached_tokens(&self) -> bool {
        self.habits().counts_cached_tokens
    }

    fn hint(&self) -> Option<String> {
        self.local_hint().filter(|_| self.server().door.is_local())
    }

    fn service(&self) -> Option<&str> {
        self.habits().service.filter(|_| self.server().door.is_local())
    }

    fn address(&self) -> &str {
        &self.server().door.base
    }

    fn holds_model(&self) -> BoxFuture<'_, bool> {
        Box::pin(self.holds())
    }

    fn memory_to_load(&self) -> Option<u64> {
        self.habits().memory_to_load.filter(|_| self.server().door.is_local())
    }

    fn learned(&self) -> Option<&Learned> {
        Some(&self.server().learned)
    }
}
