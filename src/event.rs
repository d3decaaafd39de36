//! Things worth knowing, as a closed list: they go to the log with their fields and to whoever
//! listens on the bounded broadcast.

use tokio::sync::broadcast;

use crate::limits;

/// A happening. Names are past tense; the log's `EVENT` field is `Event::name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A backend's breaker opened: it is not used for now.
    BreakerOpened {
        /// The backend.
        backend: String,
        /// Why.
        reason: String,
        /// For how long, in milliseconds.
        open_ms: u64,
    },
    /// A backend's breaker closed: it is used again.
    BreakerClosed {
        /// The backend.
        backend: String,
    },
    /// A backend was seen with its model for the first time since the start, or since it missed it.
    BackendFound {
        /// The backend.
        backend: String,
    },
    /// A model server takes connections and has answered nothing for minutes.
    BackendHung {
        /// The backend.
        backend: String,
        /// A sentence with the command that helps.
        detail: String,
    },
    /// A restart of a hung model server was asked for, as the configuration allows.
    BackendRestarted {
        /// The backend.
        backend: String,
        /// What came of it.
        outcome: String,
    },
    /// A turn moved to another backend before its first word.
    FellBack {
        /// From.
        from: String,
        /// To.
        to: String,
        /// Why.
        reason: String,
    },
    /// The configured model is not on the server.
    ModelMissing {
        /// The backend.
        backend: String,
        /// Sentence with the names it offers.
        detail: String,
    },
    /// The reserve's model is being fetched.
    ModelFetching {
        /// How far it is, in a sentence.
        progress: String,
    },
    /// The reserve's model is here.
    ModelFetched {
        /// Its name.
        name: String,
    },
    /// The reserve's model could not be fetched; it is tried again.
    ModelFetchFailed {
        /// Why.
        reason: String,
    },
    /// A model does not take a field of requests; it is left out from now on.
    FieldRefused {
        /// The backend.
        backend: String,
        /// Its model.
        model: String,
        /// `tools` or `thinking`.
        field: &'static str,
    },
    /// A server told a prompt size that does not match what was sent.
    PromptTruncated {
        /// The backend.
        backend: String,
        /// Tokens the server counted.
        counted: u32,
        /// Fewest tokens the prompt can have.
        expected: u32,
    },
    /// A turn ended.
    TurnEnded {
        /// Its session.
        session: String,
        /// Its number.
        turn: u64,
        /// `done`, `error`, `cancelled` or `interrupted`.
        outcome: &'static str,
    },
    /// The database cannot be written; turns go on from memory.
    StoreDegraded {
        /// Why.
        reason: String,
    },
    /// The database can be written again.
    StoreRecovered,
    /// A damaged database was set aside and a new one started.
    StoreReplaced {
        /// Where the damaged one is.
        aside: String,
    },
    /// The configuration was read again.
    ConfigReloaded {
        /// Keys that changed and are in force.
        changed: Vec<String>,
        /// Keys that changed and need a restart.
        restart: Vec<String>,
    },
    /// A new configuration was refused; the old one stays.
    ConfigRefused {
        /// How many problems.
        problems: usize,
    },
    /// Another channel of the mood is felt now.
    MoodChanged {
        /// The channel that was felt, or `rest`.
        from: &'static str,
        /// The channel that is felt, or `rest`.
        to: &'static str,
    },
    /// A supervised task ended in a way it should not.
    TaskFailed {
        /// Its name.
        task: &'static str,
        /// What happened.
        outcome: String,
    },
}

impl Event {
    /// Stable name for the log: `breaker.opened`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::BreakerOpened { .. } => "breaker.opened",
            Self::BreakerClosed { .. } => "breaker.closed",
            Self::BackendFound { .. } => "backend.found",
            Self::BackendHung { .. } => "backend.hung",
            Self::BackendRestarted { .. } => "backend.restarted",
            Self::FellBack { .. } => "provider.fell_back",
            Self::ModelMissing { .. } => "provider.model_missing",
            Self::ModelFetching { .. } => "model.fetching",
            Self::ModelFetched { .. } => "model.fetched",
            Self::ModelFetchFailed { .. } => "model.fetch_failed",
            Self::FieldRefused { .. } => "provider.field_refused",
            Self::PromptTruncated { .. } => "provider.prompt_truncated",
            Self::TurnEnded { .. } => "turn.ended",
            Self::StoreDegraded { .. } => "store.degraded",
            Self::StoreRecovered => "store.recovered",
            Self::StoreReplaced { .. } => "store.replaced",
            Self::ConfigReloaded { .. } => "config.reloaded",
            Self::ConfigRefused { .. } => "config.refused",
            Self::MoodChanged { .. } => "mood.changed",
            Self::TaskFailed { .. } => "task.failed",
        }
    }
}

/// Where happenings are told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::channel(limits::EVENT_QUEUE).0)
    }
}

impl Events {
    /// Logs the event and tells everybody who listens.
    pub fn tell(&self, event: Event) {
        match &event {
            Event::TurnEnded { session, turn, outcome } => {
                tracing::debug!(event = event.name(), session, turn, outcome, "turn ended");
            }
            Event::MoodChanged { from, to } => {
                tracing::info!(event = event.name(), from, to, "the mood has changed");
            }
            Event::ModelFetching { progress } => {
                tracing::debug!(event = event.name(), progress, "the model is on its way");
            }
            Event::ModelFetched { name } => {
                tracing::info!(event = event.name(), name, "the model is here");
            }
            Event::BackendFound { .. } => {
                tracing::info!(event = event.name(), detail = ?event, "a model server is there");
            }
            Event::BreakerClosed { .. } | Event::StoreRecovered | Event::ConfigReloaded { .. } => {
                tracing::info!(event = event.name(), detail = ?event, "recovered or changed");
            }
            _ => tracing::warn!(event = event.name(), detail = ?event, "degraded"),
        }
        // Nobody listening is normal.
        let _ = self.0.send(event);
    }

    /// A receiver of everything told from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
