//! The simulators under the wire tests. Dropping one checks what it has counted.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crayfish::net::Http;
use crayfish::provider::backend::Backend;
use crayfish::provider::hailo::{Hailo, HailoConfig, HailoTimeouts};
use crayfish::provider::ollama::{Ollama, OllamaConfig, OllamaTimeouts};
use crayfish::provider::openai::{OpenAi, OpenAiConfig, OpenAiTimeouts};
use hailo::model::Release;
use hailo::sim::clock::Pace;
use hailo::sim::hailo as hailo_sim;
use hailo::sim::log::Event;
use hailo::sim::ollama as ollama_sim;
use hailo::sim::scenario::{At, Fault, Kind, Phase, Reply, Scenario};

use super::house::Recorder;
use super::openai_peer::OpenAiPeer;

/// Long enough for a loaded machine to answer over loopback, short enough to be waited out.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);

/// A running hailo-sim.
pub(super) struct HailoSim(hailo_sim::Running);

/// A running ollama-sim, and the fields it may see although hailo-ollama may not.
pub(super) struct OllamaSim {
    running: ollama_sim::Running,
    pub(super) allowed: &'static [&'static str],
}

/// A scenario that says the same words at every request, token by token.
pub(super) fn always(words: &[&str]) -> Scenario {
    let tokens = words.iter().map(|word| (*word).to_owned()).collect();
    let reply = Reply { tokens: Some(tokens), ..Reply::default() };
    Scenario { cycle: true, replies: vec![reply], ..Scenario::default() }
}

pub(super) fn every(phase: Phase, kind: Kind) -> Fault {
    Fault { at: At::Every, phase, kind }
}

pub(super) fn next(phase: Phase, kind: Kind) -> Fault {
    Fault { at: At::Next, phase, kind }
}

/// Options under which nothing takes time.
pub(super) fn instant(release: Release, scenario: Scenario) -> hailo_sim::Options {
    hailo_sim::Options {
        release,
        scenario,
        pace: Pace::Instant,
        seed: Some(7),
        ..hailo_sim::Options::default()
    }
}

/// Patience to fit a simulator that takes no time.
pub(super) fn hailo_timeouts() -> HailoTimeouts {
    HailoTimeouts {
        connect: PATIENCE,
        probe: PATIENCE,
        head_loaded: PATIENCE,
        head_cold: PATIENCE,
        first_token: PATIENCE,
        between_tokens: PATIENCE,
        whole_extra: Duration::from_secs(20),
        gives_up: Duration::from_millis(500),
        ..HailoTimeouts::default()
    }
}

/// The model each release knows under one of the names of an alias group.
pub(super) const QWEN: &str = "qwen2.5-instruct:1.5b";

impl HailoSim {
    pub(super) fn start(options: hailo_sim::Options) -> Self {
        Self(hailo_sim::start(options).unwrap())
    }

    pub(super) fn config(&self) -> HailoConfig {
        HailoConfig {
            url: format!("http://{}", self.addr()),
            model: QWEN.into(),
            timeouts: hailo_timeouts(),
            ..HailoConfig::default()
        }
    }

    /// The backend that speaks to it, with its context.
    pub(super) fn backend(&self, recorder: &Arc<Recorder>) -> (Arc<dyn Backend>, u32) {
        self.backend_with(recorder, self.config())
    }

    pub(super) fn backend_with(
        &self,
        recorder: &Arc<Recorder>,
        config: HailoConfig,
    ) -> (Arc<dyn Backend>, u32) {
        let context = config.context_tokens;
        let http: Arc<dyn Http> = Arc::<Recorder>::clone(recorder);
        (Arc::new(Hailo::new(http, config)), context)
    }

    /// The faults are over: counters and log begin anew, after a look at them.
    pub(super) fn clear(&self) {
        self.check();
        self.0.reset();
    }

    /// Events of the log that are of this kind.
    pub(super) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.log().iter().filter(|entry| wanted(&entry.event)).count()
    }

    fn check(&self) {
        let state = self.state();
        assert!(state.counters.forbidden.is_empty(), "{:?}", state.counters.forbidden);
        assert_eq!(state.counters.overlapping, 0, "two generations inside: {:#?}", self.log());
        assert_eq!(state.ps_while_busy, 0);
    }
}

impl Deref for HailoSim {
    type Target = hailo_sim::Running;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for HailoSim {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// Ollama under which nothing takes time.
pub(super) fn instant_ollama(scenario: Scenario) -> ollama_sim::Options {
    ollama_sim::Options {
        scenario,
        pace: Pace::Instant,
        seed: Some(7),
        restart: Duration::from_millis(100),
        ..ollama_sim::Options::default()
    }
}

impl OllamaSim {
    pub(super) fn start(options: ollama_sim::Options) -> Self {
        Self { running: ollama_sim::start(options).unwrap(), allowed: &[] }
    }

    pub(super) fn config(&self) -> OllamaConfig {
        let timeouts = OllamaTimeouts {
            connect: PATIENCE,
            probe: PATIENCE,
            head_loaded: PATIENCE,
            head_cold: PATIENCE,
            prefill_tokens_per_s: 100_000,
            first_token: PATIENCE,
            between_tokens: PATIENCE,
            whole_extra: Duration::from_secs(20),
            ..OllamaTimeouts::default()
        };
        let url = format!("http://{}", self.addr());
        OllamaConfig { url, timeouts, ..OllamaConfig::default() }
    }

    /// The backend that speaks to it, with its context.
    pub(super) fn backend(&self, recorder: &Arc<Recorder>) -> (Arc<dyn Backend>, u32) {
        self.backend_with(recorder, self.config())
    }

    pub(super) fn backend_with(
        &self,
        recorder: &Arc<Recorder>,
        config: OllamaConfig,
    ) -> (Arc<dyn Backend>, u32) {
        let context = config.context_tokens;
        let http: Arc<dyn Http> = Arc::<Recorder>::clone(recorder);
        (Arc::new(Ollama::new(http, config)), context)
    }

    /// The faults are over: counters and log begin anew, after a look at them.
    pub(super) fn clear(&self) {
        self.check();
        self.running.reset();
    }

    fn check(&self) {
        let mut forbidden = self.state().counters.forbidden;
        forbidden.retain(|name, _| !self.allowed.contains(&name.as_str()));
        assert!(forbidden.is_empty(), "{forbidden:?}");
    }
}

impl Deref for OllamaSim {
    type Target = ollama_sim::Running;

    fn deref(&self) -> &Self::Target {
        &self.running
    }
}

impl Drop for OllamaSim {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// The context of an OpenAI-compatible server in these tests, in tokens.
const OPENAI_CONTEXT: u32 = 4096;

impl OpenAiPeer {
    /// The backend that speaks to it, with its context.
    pub(super) fn backend(&self, recorder: &Arc<Recorder>) -> (Arc<dyn Backend>, u32) {
        let timeouts = OpenAiTimeouts {
            connect: PATIENCE,
            probe: PATIENCE,
            head: PATIENCE,
            prefill_tokens_per_s: 100_000,
            first_token: PATIENCE,
            between_tokens: PATIENCE,
            whole_extra: Duration::from_secs(20),
            ..OpenAiTimeouts::default()
        };
        let config = OpenAiConfig {
            url: self.url.clone(),
            model: "peer".into(),
            context_tokens: OPENAI_CONTEXT,
            api_key: Some("sk-wire-tests".into()),
            timeouts,
        };
        let http: Arc<dyn Http> = Arc::<Recorder>::clone(recorder);
        (Arc::new(OpenAi::new(http, config)), OPENAI_CONTEXT)
    }
}
