//! Things worth knowing, as a closed list: they go to the log with their fields and to whoever
//! listens on the bounded broadcast.

pub mod feed;
mod group;
pub mod turn;

use serde::Serialize;
use tokio::sync::{broadcast, watch};

pub use self::group::Group;
use self::turn::TurnEnd;
use crate::limits;

/// A happening. Names are past tense; the log's `EVENT` field is `Event::name`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
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
    TurnEnded(TurnEnd),
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
    /// The body came under stress.
    StressEntered {
        /// What is beyond its limit, in a sentence.
        reason: String,
        /// Temperature now, in degrees Celsius.
        temperature_c: Option<f32>,
        /// Memory in use now, in percent.
        ram_percent: Option<f32>,
        /// Work of the processors now, in percent.
        cpu_percent: Option<f32>,
    },
    /// Stress is over.
    StressLeft {
        /// How long it lasted, in seconds.
        lasted_s: u64,
        /// Highest temperature of the episode, in degrees Celsius.
        peak_temperature_c: Option<f32>,
        /// Highest memory use of the episode, in percent.
        peak_ram_percent: Option<f32>,
        /// Temperature now, in degrees Celsius.
        temperature_c: Option<f32>,
        /// Memory in use now, in percent.
        ram_percent: Option<f32>,
        /// Work of the processors now, in percent.
        cpu_percent: Option<f32>,
    },
    /// The governor allows more or less than before.
    GovernorStepped {
        /// From this level.
        from: &'static str,
        /// To this one.
        to: &'static str,
        /// Why, in a sentence.
        reason: String,
    },
    /// Sleep began.
    SleepBegan {
        /// The date of the evening, `YYYY-MM-DD`.
        night: String,
    },
    /// Sleep is over.
    SleepEnded {
        /// The date of the evening it began in.
        night: String,
    },
    /// Nobody has said anything for the idle time.
    IdleBegan {
        /// That time, in seconds.
        after_s: u64,
    },
    /// An hour of beats, in figures.
    BeatsSummed(BeatSummary),
    /// Critical tasks stand still; the watchdog is not fed.
    TasksStuck {
        /// Their names.
        tasks: Vec<&'static str>,
    },
    /// All critical tasks get on again.
    TasksMoving,
    /// Happenings came faster than they could be stored.
    EventsMissed {
        /// How many are missing.
        count: u64,
    },
    /// A supervised task ended in a way it should not.
    TaskFailed {
        /// Its name.
        task: &'static str,
        /// What happened.
        outcome: String,
    },
}

/// The beats of an hour, or of less if the daemon stopped before.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct BeatSummary {
    /// How many.
    pub beats: u32,
    /// Of these under stress.
    pub stressed: u32,
    /// Lowest temperature, in degrees Celsius.
    pub temperature_min_c: Option<f32>,
    /// Mean temperature.
    pub temperature_mean_c: Option<f32>,
    /// Highest temperature.
    pub temperature_max_c: Option<f32>,
    /// Mean work of the processors, in percent.
    pub cpu_mean_percent: Option<f32>,
    /// Most memory in use, in percent.
    pub ram_max_percent: Option<f32>,
    /// Bytes written to the card since the machine started.
    pub card_written_bytes: Option<u64>,
}

impl Event {
    /// What it is about.
    #[must_use]
    pub fn group(&self) -> Group {
        match self {
            Self::TurnEnded(_) => Group::Turn,
            Self::BeatsSummed(_) => Group::Beat,
            Self::StressEntered { .. }
            | Self::StressLeft { .. }
            | Self::GovernorStepped { .. }
            | Self::MoodChanged { .. }
            | Self::SleepBegan { .. }
            | Self::SleepEnded { .. }
            | Self::IdleBegan { .. } => Group::Body,
            _ => Group::Fault,
        }
    }

    /// How much a person should mind.
    #[must_use]
    pub fn severity(&self) -> &'static str {
        match self {
            Self::TasksStuck { .. } | Self::StoreDegraded { .. } | Self::TaskFailed { .. } => {
                "error"
            }
            Self::TurnEnded(_)
            | Self::BeatsSummed(_)
            | Self::BackendFound { .. }
            | Self::BreakerClosed { .. }
            | Self::StoreRecovered
            | Self::ConfigReloaded { .. }
            | Self::StressLeft { .. }
            | Self::MoodChanged { .. }
            | Self::GovernorStepped { to: "full", .. }
            | Self::SleepBegan { .. }
            | Self::SleepEnded { .. }
            | Self::IdleBegan { .. }
            | Self::TasksMoving => "info",
            _ => "warn",
        }
    }

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
            Self::TurnEnded(_) => "turn.ended",
            Self::StoreDegraded { .. } => "store.degraded",
            Self::StoreRecovered => "store.recovered",
            Self::StoreReplaced { .. } => "store.replaced",
            Self::ConfigReloaded { .. } => "config.reloaded",
            Self::ConfigRefused { .. } => "config.refused",
            Self::MoodChanged { .. } => "mood.changed",
            Self::TaskFailed { .. } => "task.failed",
            Self::StressEntered { .. } => "stress.entered",
            Self::StressLeft { .. } => "stress.left",
            Self::GovernorStepped { .. } => "governor.stepped",
            Self::SleepBegan { .. } => "sleep.began",
            Self::SleepEnded { .. } => "sleep.ended",
            Self::IdleBegan { .. } => "idle.began",
            Self::BeatsSummed(_) => "beat.summed",
            Self::TasksStuck { .. } => "beat.stuck",
            Self::TasksMoving => "beat.moving",
            Self::EventsMissed { .. } => "event.missed",
        }
    }
}

/// Where happenings are told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    told: broadcast::Sender<Event>,
    /// Counts batches that are in the database.
    stored: watch::Sender<u64>,
}

impl Default for Events {
    fn default() -> Self {
        Self { told: broadcast::channel(limits::EVENT_QUEUE).0, stored: watch::channel(0).0 }
    }
}

impl Events {
    /// Logs the event and tells everybody who listens.
    pub fn tell(&self, event: Event) {
        let name = event.name();
        match &event {
            Event::TurnEnded(TurnEnd { session, turn, outcome, .. }) => {
                tracing::debug!(event = name, session, turn, outcome, "turn ended");
            }
            Event::BeatsSummed(_) => {
                tracing::debug!(event = name, detail = ?event, "an hour of beats");
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
                tracing::info!(event = name, detail = ?event, "a model server is there");
            }
            Event::TasksStuck { tasks } => {
                tracing::error!(event = name, ?tasks, "tasks stand still; watchdog not fed");
            }
            Event::TasksMoving => tracing::info!(event = name, "all tasks move again"),
            Event::GovernorStepped { from, to, reason } => {
                tracing::info!(event = name, from, to, reason, "the governor allows another level");
            }
            Event::SleepBegan { night } | Event::SleepEnded { night } => {
                tracing::info!(event = name, night, "day and night");
            }
            Event::IdleBegan { after_s } => tracing::debug!(event = name, after_s, "it is quiet"),
            _ if event.severity() == "info" => {
                tracing::info!(event = name, detail = ?event, "recovered or changed");
            }
            _ => tracing::warn!(event = name, detail = ?event, "degraded"),
        }
        // Nobody listening is normal.
        let _ = self.told.send(event);
    }

    /// A receiver of everything told from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.told.subscribe()
    }

    /// Says that more happenings are in the database.
    pub fn mark_stored(&self) {
        self.stored.send_modify(|count| *count += 1);
    }

    /// Changes whenever more happenings are in the database.
    #[must_use]
    pub fn stored(&self) -> watch::Receiver<u64> {
        self.stored.subscribe()
    }
}
