//! `ollama-sim`: Ollama on a Raspberry Pi's CPU, its wire behaviour and pace.
//!
//! | file | holds |
//! |---|---|
//! | `routes` | connections, routes and the calls that use no model |
//! | `life`, `out`, `words` | one generation; its bytes; its words |
//! | `runners` | scheduler, loads, slots, keep-alive, memory |
//! | `request`, `options`, `keep_alive` | what is asked (pure) |
//! | `prompt`, `pieces` | tokens, truncation, prefix cache (pure) |
//! | `answers`, `schema`, `models`, `version` | what is answered (pure) |
//!
//! Not here: pulling, pushing and creating models, embeddings, the `/v1` routes, images.
//!
//! Faults of a scenario act as in its documentation, with these particulars: an `error_line` or
//! `status` before the head is an error answer with its status and after it a last line
//! `{"error":…}`; a `status` whose text says that a process "has terminated" also kills the
//! runner, so that the next request loads the model again; `after_head` is after prefill, because
//! Ollama's head leaves with the first token.

mod answers;
mod keep_alive;
mod life;
mod models;
mod options;
mod out;
mod pieces;
mod prompt;
mod request;
mod routes;
mod runners;
mod schema;
mod version;
mod words;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::models::{Model, defaults};
use self::{
    runners::{Limits, SLOWEST, Scheduler},
    version::Version,
};
use super::{
    clock::{Clock, Pace},
    control::{self, Controlled},
    log::{Entry, Event, Log},
    presence::{Counters, Presence},
    scenario::{Fault, Faults, Replies, Scenario},
    server::{Handle, Server, lock},
    voice::Voice,
};

/// How to start the simulator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port on 127.0.0.1; 0 = any.
    pub port: u16,
    /// Port of the control listener on 127.0.0.1; 0 = any.
    pub control_port: u16,
    /// What `/api/version` says; decides metrics, truncation and error texts.
    pub version: String,
    /// Pace of simulated time.
    pub pace: Pace,
    /// Seed of all chance; the scenario's is used when this is none.
    pub seed: Option<u64>,
    /// What is said and what goes wrong.
    pub scenario: Scenario,
    /// File to which the event log is appended.
    pub log: Option<PathBuf>,
    /// A real model to take the words from.
    pub voice: Option<String>,
    /// The models on disk.
    pub models: Vec<Model>,
    /// Prefill rate in tokens per second; 50 is estimated for a 1.5B model on a Pi 5.
    pub prefill_tps: f64,
    /// Decoding rate in tokens per second; people measured 7.5 to 10 for a 1.5B model.
    pub decode_tps: f64,
    /// `OLLAMA_NUM_PARALLEL`: slots of a runner.
    pub num_parallel: usize,
    /// `OLLAMA_MAX_QUEUE`: requests that may wait for a load.
    pub max_queue: usize,
    /// `OLLAMA_MAX_LOADED_MODELS`.
    pub max_loaded: usize,
    /// `OLLAMA_CONTEXT_LENGTH`: context where a request names none, in tokens.
    pub num_ctx: u32,
    /// Memory that runners may take together, in bytes.
    pub ram_bytes: u64,
    /// Reading speed of the card, in MB/s; the first load of a model pays it.
    pub sd_mb_per_s: f64,
    /// Time of a load from the page cache.
    pub cached_load: Duration,
    /// Real time for which a crashed process refuses connections.
    pub restart: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            control_port: 0,
            version: "0.33.0".to_owned(),
            pace: Pace::Published,
            seed: None,
            scenario: Scenario::default(),
            log: None,
            voice: None,
            models: defaults(),
            prefill_tps: 50.0,
            decode_tps: 9.0,
            num_parallel: 1,
            max_queue: 512,
            max_loaded: 3,
            num_ctx: 4096,
            // An 8 GB Pi with a desktop.
            ram_bytes: 6_000_000_000,
            sd_mb_per_s: 85.0,
            cached_load: Duration::from_millis(1_500),
            restart: Duration::from_millis(500),
        }
    }
}

/// A loaded model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Its name.
    pub model: String,
    /// Options its runner was started with.
    pub options: BTreeMap<String, i64>,
    /// Memory it takes, in bytes.
    pub memory_bytes: u64,
    /// Simulated seconds until it is unloaded; none is for ever.
    pub expires_in_s: Option<f64>,
    /// Tokens that each slot holds.
    pub resident_tokens: Vec<usize>,
}

/// What the simulator knows of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// As `/api/version` says it.
    pub version: String,
    /// Requests, generations, overlaps, forbidden fields.
    pub counters: Counters,
    /// Loaded models, in the order of their names.
    pub loaded: Vec<Loaded>,
    /// Tokens of the newest prompt, as given to the runner.
    pub prompt_tokens: usize,
    /// Tokens of it that were not in the slot.
    pub prefilled_tokens: usize,
    /// Prompts of which something was dropped or cut.
    pub truncated: u64,
    /// Model loads.
    pub loads: u64,
    /// Loads because other options were asked of a loaded model.
    pub reloads: u64,
    /// Runners killed for want of memory.
    pub oom_kills: u64,
    /// Requests in the scheduler's queue, the one it handles included.
    pub queued: usize,
    /// Requests waiting for a slot.
    pub waiting: usize,
}

/// A running simulator. Dropping it stops it and joins its threads.
#[derive(Debug)]
pub struct Running {
    sim: Arc<Sim>,
    server: Server,
    control: Server,
}

/// Everything the threads share.
struct Sim {
    version_text: String,
    version: Version,
    clock: Clock,
    log: Log,
    presence: Presence,
    replies: Replies,
    faults: Faults,
    scheduler: Scheduler,
    models: Mutex<Vec<Model>>,
    voice: Option<Voice>,
    seed: u64,
    prefill_tps: f64,
    decode_tps: f64,
    num_ctx: u32,
    restart: Duration,
    facts: Mutex<Facts>,
}

/// What is true of the newest generation, and what a slow-down did.
struct Facts {
    prompt_tokens: usize,
    prefilled_tokens: usize,
    truncated: u64,
    /// Part of the usual decoding rate.
    rate: f64,
}

impl Default for Facts {
    fn default() -> Self {
        Self { prompt_tokens: 0, prefilled_tokens: 0, truncated: 0, rate: 1.0 }
    }
}

/// Starts the simulator.
///
/// # Errors
/// When a port or the log file cannot be had, or the voice is no plain HTTP URL.
pub fn start(options: Options) -> io::Result<Running> {
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
    let sim = Arc::new(Sim {
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
    });
    let serving = Arc::clone(&sim);
    let server = Server::start(options.port, Arc::new(move |conn| routes::serve(&serving, conn)))?;
    let controlled: Arc<dyn Controlled> = Arc::<Sim>::clone(&sim);
    let control = control::start(options.control_port, controlled)?;
    Ok(Running { sim, server, control })
}

impl Running {
    /// Where the simulated server listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Where the control port listens.
    #[must_use]
    pub fn control_addr(&self) -> SocketAddr {
        self.control.addr()
    }

    /// What is true now.
    #[must_use]
    pub fn state(&self) -> State {
        self.sim.state()
    }

    /// The kept log entries.
    #[must_use]
    pub fn log(&self) -> Vec<Entry> {
        self.sim.log.entries()
    }

    /// Waits until `seen` is true of the log, at most `limit` of real time.
    pub fn wait(&self, limit: Duration, seen: impl FnMut(&[Entry]) -> bool) -> bool {
        self.sim.log.wait(limit, seen)
    }

    /// Plans a fault.
    pub fn fault(&self, fault: Fault) {
        self.sim.faults.add(fault);
    }

    /// Forgets counters, log, faults, slow-down and the place in the script.
    pub fn reset(&self) {
        self.sim.reset();
    }

    /// Kills a model's runner, as the kernel or a crash in llama.cpp does.
    pub fn kill_runner(&self, model: &str) {
        self.sim.scheduler.kill(model);
    }

    /// Kills the whole server: connections are reset and refused until it is "restarted".
    pub fn crash(&self) {
        self.sim.crash(&self.server.handle());
    }

    /// Other programs take or give back memory: runners may have so many bytes together.
    pub fn set_ram(&self, ram_bytes: u64) {
        self.sim.scheduler.set_ram(ram_bytes);
    }

    /// Stops and joins all threads. Running answers are cut, as Ollama does at SIGTERM.
    pub fn stop(&mut self) {
        self.server.stop();
        self.control.stop();
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("version", &self.version_text).finish_non_exhaustive()
    }
}

impl Sim {
    fn model(&self, name: &str) -> Option<Model> {
        lock(&self.models).iter().find(|model| model.is(name)).cloned()
    }

    fn facts(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut lock(&self.facts));
    }

    fn rate(&self) -> f64 {
        lock(&self.facts).rate
    }

    fn set_rate(&self, part: f64) {
        self.facts(|facts| facts.rate = part.max(SLOWEST));
    }

    fn crash(&self, server: &Handle) {
        self.log.add(0, Event::Crashed { why: "fault".to_owned() });
        self.scheduler.clear();
        server.crash(self.restart);
    }

    fn state(&self) -> State {
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
