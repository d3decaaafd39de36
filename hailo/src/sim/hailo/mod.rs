//! `hailo-sim`: hailo-ollama's wire behaviour and pace, without the device.
//!
//! A request lives as in the real server: its own thread reads it, decodes it strictly, finds the
//! model, waits for the one lock (`device_lock`), loads if it has to, compares the prompt with
//! what the cache holds (`npu`), sends the head *before* prefill, decodes at the published rate
//! and records the answer (`generation`). Routes which take no lock answer at once (`routes`).
//!
//! What was not seen on hardware but read from the server's source is built as read; where 5.3 is
//! unknown it has 5.4's errors and tool types, and 5.1.1's prompt comparison.

mod device_lock;
mod dto;
mod engine;
mod faults;
mod generation;
mod npu;
mod openai;
mod prompt;
mod pull;
mod reply;
mod routes;
mod store;
mod words;

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use self::engine::Sim;
use super::{
    clock::Pace,
    control::{self, Controlled},
    log::{Entry, Log},
    presence::Counters,
    scenario::{Fault, Scenario},
    server::Server,
};
use crate::model::Release;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which release of hailo-ollama.
    pub release: Release,
    /// How fast simulated time runs.
    pub pace: Pace,
    /// Seed of all chance; the scenario's, or 1, when absent.
    pub seed: Option<u64>,
    /// What is said and what goes wrong.
    pub scenario: Scenario,
    /// Port on 127.0.0.1; 0 = any.
    pub port: u16,
    /// Port of the control listener; 0 = any.
    pub control_port: u16,
    /// Count forbidden fields. They are answered as the real server does in any case.
    pub strict: bool,
    /// Keep-alive in s of requests that name none; negative = for ever.
    pub keep_alive_s: i64,
    /// Simulated s between the death of the process and its restart.
    pub restart_s: f64,
    /// Real model that gives the words.
    pub voice: Option<String>,
    /// Another process holds the device.
    pub device_held: bool,
    /// Names of the downloaded models; all of the release when absent.
    pub models: Option<Vec<String>>,
    /// Append the log to this file as JSON lines.
    pub log: Option<PathBuf>,
    /// `top_k: 0` kills the process; otherwise it gives garbage.
    pub top_k_zero_crashes: bool,
    /// A pull fails in the middle with this message.
    pub pull_error: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            release: Release::V5_1_1,
            pace: Pace::Published,
            seed: None,
            scenario: Scenario::default(),
            port: 0,
            control_port: 0,
            strict: true,
            keep_alive_s: 300,
            restart_s: 2.0,
            voice: None,
            device_held: false,
            models: None,
            log: None,
            top_k_zero_crashes: true,
            pull_error: None,
        }
    }
}

/// What a test may know that a client cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Release simulated, as `--profile` spells it.
    pub profile: String,
    /// Model the server believes loaded.
    pub loaded_model: Option<String>,
    /// The last load failed, and the server does not know it.
    pub poisoned: bool,
    /// Tokens in the cache, at most the context.
    pub kv_tokens: u32,
    /// The cache holds a partial answer the server's record does not.
    pub dirty: bool,
    /// Whether the last prompt continued the cache.
    pub last_continuation: bool,
    /// Whether the system message of the last prompt is still in the window.
    pub system_in_window: bool,
    /// Tokens the last prompt had to prefill.
    pub prefilled_tokens: u32,
    /// Whether a request holds the lock.
    pub lock_held: bool,
    /// Requests waiting for it.
    pub lock_waiting: usize,
    /// Another process holds the device.
    pub device_held: bool,
    /// `/api/ps` requests that came while a generation was inside.
    pub ps_while_busy: u64,
    /// Deaths of the process.
    pub crashes: u64,
    /// Counters.
    #[serde(flatten)]
    pub counters: Counters,
}

/// A running simulator. Dropping it stops it and waits for its threads.
#[derive(Debug)]
pub struct Running {
    sim: Arc<Sim>,
    server: Server,
    control: Server,
}

/// Starts a simulator.
///
/// # Errors
/// When a port is taken, the log cannot be opened, or the voice's URL is not understood.
pub fn start(options: Options) -> io::Result<Running> {
    let (port, control_port) = (options.port, options.control_port);
    let sim = Arc::new(Sim::new(options)?);
    let serving = Arc::clone(&sim);
    let server = Server::start(port, Arc::new(move |conn| routes::serve(&serving, conn)))?;
    let controlled: Arc<dyn Controlled> = Arc::clone(&sim) as Arc<dyn Controlled>;
    let control = control::start(control_port, controlled)?;
    Ok(Running { sim, server, control })
}

impl Running {
    /// Where it serves.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Where its control port is.
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

    /// Another process takes the device, or gives it back.
    pub fn hold_device(&self, held: bool) {
        self.sim.device_held.store(held, Ordering::SeqCst);
    }

    /// Forgets counters, log and faults, ends hangs and slow-downs, starts the script again. What
    /// is loaded stays loaded.
    pub fn reset(&self) {
        Controlled::reset(self.sim.as_ref());
    }

    /// The process dies now and is restarted after [`Options::restart_s`].
    pub fn crash(&self) {
        self.sim.crash(&self.server.handle(), 0, "asked");
    }

    /// SIGTERM: no new connections; running requests end first. Returns whether they did within
    /// `limit` of real time.
    pub fn drain(&mut self, limit: Duration) -> bool {
        self.server.drain(limit)
    }

    /// Ends everything and waits for the threads.
    pub fn stop(mut self) {
        self.server.stop();
        self.control.stop();
    }
}
