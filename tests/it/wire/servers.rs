//! The simulators under the wire tests. Dropping one checks what it has counted.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crayfish::net::Http;
use crayfish::provider::backend::Backend;
use crayfish::provider::hailo::{Hailo, HailoConfig, HailoTimeouts};
use hailo::model::Release;
use hailo::sim::clock::Pace;
use hailo::sim::hailo as hailo_sim;
use hailo::sim::log::Event;
use hailo::sim::scenario::{At, Fault, Kind, Phase, Reply, Scenario};

use super::house::Recorder;

/// Long enough for a loaded machine to answer over loopback, short enough to be waited out.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);

/// A running hailo-sim.
pub(super) struct HailoSim(hailo_sim::Running);

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
