//! What the threads of the simulator share.

use std::{io, sync::Mutex, time::Duration};

use serde_json::Value;

use super::{
    Loaded, Model, Options, State,
    runners::{self, Limits, SLOWEST, Scheduler},
    version::Version,
};
use crate::sim::{
    clock::Clock,
    control::Controlled,
    log::{Entry, Event, Log},
    presence::Presence,
    scenario::{Fault, Faults, Replies},
    server::{Handle, lock},
    voice::Voice,
};

/// Everything the threads share.
pub(super) struct Sim {
    pub(super) version_text: String,
    pub(super) version: Version,
    pub(super) clock: Clock,
    pub(super) log: Log,
    pub(super) presence: Presence,
    pub(super) replies: Replies,
    pub(super) faults: Faults,
    pub(super) scheduler: Scheduler,
    pub(super) models: Mutex<Vec<Model>>,
    pub(super) voice: Option<Voice>,
    pub(super) seed: u64,
    pub(super) prefill_tps: f64,
    pub(super) decode_tps: f64,
    pub(super) num_ctx: u32,
    pub(super) restart: Duration,
    pub(super) facts: Mutex<Facts>,
}

/// What is true of the newest generation, and what a slow-down did.
pub(super) struct Facts {
    pub(super) prompt_tokens: u32,
    pub(super) prefilled_tokens: u32,
    pub(super) truncated: u64,
    /// Part of the usual decoding rate.
    pub(super) rate: f64,
}

impl Default for Facts {
    fn default() -> Self {
        Self { prompt_tokens: 0, prefilled_tokens: 0, truncated: 0, rate: 1.0 }
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("version", &self.version_text).finish_non_exhaustive()
    }
}

impl Sim {
    /// Builds it; the errors of [`super::start`] that concern no port.
    pub(super) fn new(options: Options) -> io::Result<Self> {
        let clock = Clock::new(options.pace);
        let voice = options.voice.as_deref().map(Voice::new).transpose();
        let seed = options.seed.or(options.scenario.seed).unwrap_or(1);
        let limits = Limits {
            max_queue: options.max_queue,
            num_parallel: options.num_parallel.max(1),
            max_loaded: options.max_loaded.max(1),
            ram_bytes: options.ram_bytes,
            sd_mb_per_s: options.sd_mb_per_s,
            cached_load: options.cached_load,
        };
        Ok(Self {
            version: Version::parse(&options.version),
            version_text: options.version,
            log: Log::open(clock.clone(), options.log.as_deref())?,
            clock,
            presence: Presence::default(),
            replies: Replies::new(&options.scenario, seed),
            faults: Faults::new(options.scenario.faults),
            scheduler: Scheduler::new(limits),
            models: Mutex::new(options.models),
            voice: voice.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?,
            seed,
            prefill_tps: options.prefill_tps,
            decode_tps: options.decode_tps,
            num_ctx: options.num_ctx,
            restart: options.restart,
            facts: Mutex::default(),
        })
    }

    pub(super) fn model(&self, name: &str) -> Option<Model> {
        lock(&self.models).iter().find(|model| model.is(name)).cloned()
    }

    pub(super) fn facts(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut lock(&self.facts));
    }

    pub(super) fn rate(&self) -> f64 {
        lock(&self.facts).rate
    }

    pub(super) fn set_rate(&self, part: f64) {
        self.facts(|facts| facts.rate = part.max(SLOWEST));
    }

    pub(super) fn crash(&self, server: &Handle) {
        self.log.add(0, Event::Crashed { why: "fault".to_owned() });
        self.scheduler.clear();
        server.crash(self.restart);
    }

    pub(super) fn state(&self) -> State {
        let residents = self.scheduler.residents(self.clock.now());
        let counts = self.scheduler.counts();
        let facts = lock(&self.facts);
        State {
            version: self.version_text.clone(),
            counters: self.presence.counters(),
            loaded: residents.into_iter().map(Loaded::from).collect(),
            prompt_tokens: facts.prompt_tokens,
            prefilled_tokens: facts.prefilled_tokens,
            truncated: facts.truncated,
            loads: counts.loads,
            reloads: counts.reloads,
            oom_kills: counts.oom_kills,
            queued: self.scheduler.queued(),
            waiting: self.scheduler.waiting(),
        }
    }
}

impl From<runners::Resident> for Loaded {
    fn from(resident: runners::Resident) -> Self {
        Self {
            model: resident.model.name,
            options: resident.options.as_map(),
            memory_bytes: resident.memory_bytes,
            expires_in_s: resident.expires_in.map(|left| left.as_secs_f64()),
            resident_tokens: resident.slots,
        }
    }
}

impl Controlled for Sim {
    fn state_json(&self) -> Value {
        serde_json::to_value(self.state()).unwrap_or_default()
    }

    fn entries(&self) -> Vec<Entry> {
        self.log.entries()
    }

    fn add_fault(&self, fault: Fault) {
        self.faults.add(fault);
    }

    fn reset(&self) {
        self.presence.reset();
        self.faults.clear();
        self.replies.reset();
        self.log.clear();
        *lock(&self.facts) = Facts::default();
        self.scheduler.reset_counts();
    }
}
