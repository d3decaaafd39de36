//! The centre: inference that survives its servers.
//!
//! A job goes through the slots in their order, primary, fallback, reserve: each backend behind
//! its own breaker (`gate`) and its own line (`lease`), the conversation fitted anew to each
//! (`prompt`), until one has answered or none can. Text that a person has seen is never taken
//! back: after the first word there is no other backend and no retry, only the rest of the answer
//! or the truth about why it is missing.
//!
//! Not here: persons, sessions, tools. The provider knows messages.

pub mod backend;
pub mod breaker;
pub mod budget;
pub mod cache;
pub mod engine;
pub mod fault;
pub mod gate;
pub mod guard;
pub mod hailo;
pub mod learned;
pub mod lease;
pub mod lent;
pub mod ollama;
pub mod openai;
pub mod pace;
pub mod parse;
pub mod prompt;
pub mod recovery;
#[cfg(feature = "reserve")]
pub mod reserve;
pub mod sanitise;
pub mod think;

mod aliases;
mod answer;
mod attempt;
mod door;
#[cfg(any(test, feature = "sim"))]
pub mod foreign;
mod hang;
mod in_flight;
mod kept;
mod ndjson;
mod phases;
mod server;
mod stand_in;
mod visible;

#[cfg(test)]
mod rig;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use self::attempt::{Ended, Variation};
use self::backend::{Sampling, ToolSpec};
use self::breaker::State;
use self::engine::Engine;
use self::fault::{Class, Fault, Next};
use self::lease::Priority;
use self::prompt::Prompt;
use crate::event::{Event, Events};
use crate::snapshot::BackendState;

/// One wish for an answer.
#[derive(Clone)]
pub struct Job {
    /// Who asks.
    pub priority: Priority,
    /// Names the conversation, for the lease's continuation awareness.
    pub conversation: String,
    /// A backend by name; absent means the order of the slots.
    pub route: Option<String>,
    /// When the job is given up, whatever it is doing.
    pub deadline: Instant,
    /// Tokens kept free for the answer. The same for every job of a conversation: the window of
    /// past turns depends on it, and a window that moves costs a whole prefill.
    pub answer_tokens: u32,
    /// Fewer tokens for this answer, if it shall be short.
    pub answer_tokens_max: Option<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// JSON schema for the answer.
    pub schema: Option<serde_json::Value>,
    /// Tools for the model.
    pub tools: Vec<ToolSpec>,
    /// Where happenings are told.
    pub events: Events,
}

/// What a job tells while it runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// About how long until the first word.
    Waiting {
        /// From now.
        about: Duration,
    },
    /// Words for the person.
    Text(String),
}

/// A native tool call of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON text of the arguments, not validated.
    pub arguments: String,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// What the person saw.
    pub shown: String,
    /// What the model said, byte for byte, for the ledger.
    pub raw: String,
    /// Tools it wants to run.
    pub tool_calls: Vec<ToolCall>,
    /// Which backend spoke.
    pub backend: String,
    /// Its model.
    pub model: String,
    /// Whether the answer reached its token bound.
    pub cut: bool,
    /// The newest message as it was sent, if it had to be clipped.
    pub clipped: Option<String>,
    /// Tokens decoded, as the server counted.
    pub tokens: Option<u32>,
    /// Tokens of the prompt, as the server counted.
    pub prompt_tokens: Option<u32>,
    /// From sending to the first token.
    pub first_token: Option<Duration>,
}

/// Why a backend could not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The backend.
    pub backend: String,
    /// Its model.
    pub model: String,
    /// The kind of fault; absent while its breaker refuses.
    pub class: Option<Class>,
    /// The fault in a sentence.
    pub detail: String,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// No backend can answer now. Nothing was shown.
    #[error("no backend can answer: {causes:?}")]
    Offline {
        /// Until the next probe.
        retry_after: Duration,
        /// Why each one cannot, in the order of the slots.
        causes: Vec<Cause>,
    },
    /// The answer broke off after part of it was shown.
    #[error("the answer broke off: {0:?}")]
    BrokeOff(Cause),
    /// Somebody more important took the slot. Only background work sees this.
    #[error("gave way to more important work")]
    Preempted,
    /// Too many jobs wait.
    #[error("too many jobs wait")]
    Overloaded,
    /// The deadline passed.
    #[error("not answered in time")]
    TooLate,
    /// No backend of that name.
    #[error("no backend {0:?}")]
    NoSuchBackend(String),
}

/// The engines in their order.
pub struct Provider {
    engines: Vec<Arc<Engine>>,
    events: Events,
}

impl Provider {
    /// A provider over these engines, in the order in which they are tried.
    #[must_use]
    pub fn new(engines: Vec<Engine>, events: Events) -> Arc<Self> {
        Arc::new(Self { engines: engines.into_iter().map(Arc::new).collect(), events })
    }

    /// Whether a backend of this name is configured.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.engines.iter().any(|engine| engine.backend.name() == name)
    }

    /// Names of the backends, in their order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.engines.iter().map(|engine| engine.backend.name().to_owned()).collect()
    }

    /// The state of every backend, in their order.
    #[must_use]
    pub fn states(&self) -> Vec<BackendState> {
        let now = Instant::now();
        self.engines.iter().map(|engine| engine.state(now)).collect()
    }

    /// Answers one job. What happens meanwhile goes to `out`, the text included.
    ///
    /// # Errors
    /// See `ProviderError`. After `BrokeOff`, what was sent to `out` stands.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the job.
    pub async fn chat(
        &self,
        job: &Job,
        prompt: &dyn Prompt,
        out: &mpsc::Sender<Progress>,
    ) -> Result<Completed, ProviderError> {
        let order = self.order(job.route.as_deref())?;
        match self.try_all(&order, job, prompt, out).await {
            Err(ProviderError::Offline { .. }) if self.hurried(&order, job).await => {
                self.try_all(&order, job, prompt, out).await
            }
            other => other,
        }
    }

    fn order(&self, route: Option<&str>) -> Result<Vec<Arc<Engine>>, ProviderError> {
        let Some(name) = route else { return Ok(self.engines.clone()) };
        let named: Vec<_> =
            self.engines.iter().filter(|e| e.backend.name() == name).cloned().collect();
        if named.is_empty() {
            return Err(ProviderError::NoSuchBackend(name.to_owned()));
        }
        Ok(named)
    }

    async fn try_all(
        &self,
        order: &[Arc<Engine>],
        job: &Job,
        prompt: &dyn Prompt,
        out: &mpsc::Sender<Progress>,
    ) -> Result<Completed, ProviderError> {
        let mut causes: Vec<Cause> = Vec::new();
        let (mut retry_after, mut overloaded) = (Duration::MAX, false);
        for engine in order {
            if let Some(from) = causes.last() {
                self.events.tell(Event::FellBack {
                    from: from.backend.clone(),
                    to: engine.backend.name().to_owned(),
                    reason: from.detail.clone(),
                });
            }
            let cause = match self.try_one(engine, job, prompt, out).await? {
                Tried::Answered(completed) => return Ok(completed),
                Tried::Overloaded => {
                    overloaded = true;
                    continue;
                }
                Tried::Refused(wait, cause) => {
                    retry_after = retry_after.min(wait);
                    cause
                }
                Tried::Failed(cause) => cause,
            };
            causes.push(cause);
        }
        if causes.is_empty() && overloaded {
            return Err(ProviderError::Overloaded);
        }
        for engine in order {
            if let State::Open { until } = engine.gate.health().state {
                retry_after = retry_after.min(until.saturating_duration_since(Instant::now()));
            }
        }
        Err(ProviderError::Offline { retry_after, causes })
    }

    /// Tries one backend, with its one retry.
    async fn try_one(
        &self,
        engine: &Engine,
        job: &Job,
        prompt: &dyn Prompt,
        out: &mpsc::Sender<Progress>,
    ) -> Result<Tried, ProviderError> {
        let mut variation = Variation { seed: None, retried: false };
        loop {
            let (fault, next) = match attempt::run(engine, job, prompt, out, variation).await {
                Ended::Done(completed) => return Ok(Tried::Answered(completed)),
                Ended::Overloaded => return Ok(Tried::Overloaded),
                Ended::Preempted => return Err(ProviderError::Preempted),
                Ended::TooLate => return Err(ProviderError::TooLate),
                Ended::NotAdmitted(rejected) => {
                    let health = engine.gate.health();
                    let detail = health
                        .hung
                        .or(health.last_error)
                        .unwrap_or_else(|| "not usable right now".to_owned());
                    let cause = cause(engine, None, detail);
                    return Ok(Tried::Refused(rejected.retry_after, cause));
                }
                Ended::Faulted { fault, shown: true, .. } => {
                    let cause = cause(engine, Some(fault.class), fault.detail);
                    return Err(ProviderError::BrokeOff(cause));
                }
                Ended::Faulted { fault, shown: false, next } => (fault, next),
            };
            self.note(engine, &fault);
            match next {
                Next::Again => {}
                Next::Reseeded => variation.seed = Some(fastrand::u32(1..i32::MAX as u32)),
                Next::After(pause) => {
                    let resume = Instant::now() + pause;
                    if resume >= job.deadline {
                        let cause = cause(engine, Some(fault.class), fault.detail);
                        return Ok(Tried::Failed(cause));
                    }
                    tokio::time::sleep_until(resume).await;
                }
                Next::NextBackend => {
                    let cause = cause(engine, Some(fault.class), fault.detail);
                    return Ok(Tried::Failed(cause));
                }
            }
            variation.retried = true;
        }
    }

    /// The backend that would answer now, if any.
    #[must_use]
    pub fn active(&self) -> Option<String> {
        let usable = |engine: &&Arc<Engine>| engine.gate.health().usable;
        self.engines.iter().find(usable).map(|engine| engine.backend.name().to_owned())
    }

    /// Faults that no breaker shows but a person must know of.
    fn note(&self, engine: &Engine, fault: &Fault) {
        let backend = engine.backend.name().to_owned();
        match fault.class {
            Class::ModelMissing => {
                engine.gate.note_missing(fault.detail.clone());
                self.events.tell(Event::ModelMissing { backend, detail: fault.detail.clone() });
            }
            Class::Unsupported(field) => self.events.tell(Event::FieldRefused {
                backend,
                model: engine.backend.model(),
                field: field.as_str(),
            }),
            Class::OurBug => {
                tracing::error!(backend, detail = fault.detail, "a server refused what we sent");
            }
            _ => tracing::warn!(
                backend,
                class = ?fault.class,
                phase = ?fault.phase,
                detail = fault.detail,
                "a model server failed"
            ),
        }
    }
}

enum Tried {
    Answered(Completed),
    Overloaded,
    Refused(Duration, Cause),
    Failed(Cause),
}

fn cause(engine: &Engine, class: Option<Class>, detail: String) -> Cause {
    Cause {
        backend: engine.backend.name().to_owned(),
        model: engine.backend.model(),
        class,
        detail,
    }
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
