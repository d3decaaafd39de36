//! `ollama-sim`: Ollama on a Raspberry Pi's CPU, its wire behaviour and pace.
//!
//! | file | holds |
//! |---|---|
//! | `routes` | connections, routes and the calls that use no model |
//! | `engine` | what the threads share: state, counters, script |
//! | `life`, `faults` | one generation, and what goes wrong in it |
//! | `out`, `words` | its bytes and its words |
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
mod engine;
mod faults;
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

use std::{collections::BTreeMap, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use self::engine::Sim;
pub use self::models::{Model, defaults};
use super::{
    clock::Pace,
    control::{self, Controlled},
    log::{Entry, Log},
    presence::Counters,
    scenario::{Fault, Scenario},
    server::Server,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// As `/api/version` says it.
    pub version: String,
    /// Loaded models, in the order of their names.
    pub loaded: Vec<Loaded>,
    /// Tokens of the newest prompt, as given to the runner.
    pub prompt_tokens: u32,
    /// Tokens of it that were not in the slot.
    pub prefilled_tokens: u32,
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
    /// Requests, generations, overlaps, forbidden fields.
    #[serde(flatten)]
    pub counters: Counters,
}

/// A running simulator. Dropping it stops it and joins its threads.
#[derive(Debug)]
pub struct Running {
    sim: Arc<Sim>,
    server: Server,
    control: Server,
}

/// Starts the simulator.
///
/// # Errors
/// When a port or the log file cannot be had, or the voice is no plain HTTP URL.
pub fn start(options: Options) -> io::Result<Running> {
    let (port, control_port) = (options.port, options.control_port);
    let sim = Arc::new(Sim::new(options)?);
    let serving = Arc::clone(&sim);
    let server = Server::start(port, Arc::new(move |conn| routes::serve(&serving, conn)))?;
    let controlled: Arc<dyn Controlled> = Arc::<Sim>::clone(&sim);
    let control = control::start(control_port, controlled)?;
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

    /// The log itself, to wait for an entry.
    #[must_use]
    pub fn events(&self) -> &Log {
        &self.sim.log
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
    pub fn stop(mut self) {
        self.server.stop();
        self.control.stop();
    }
}
