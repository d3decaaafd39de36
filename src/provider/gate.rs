//! The breaker as a thing to hold: a permit that travels with the stream.
//!
//! Success is recorded at the end of an answer, not when headers arrive: a server that dies after
//! three tokens every time must not count as healthy. A permit that is dropped without a word
//! (the person cancelled) records `Abandoned`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::breaker::{Breaker, Outcome, Policy, Rejected, State};
use super::fault::Fault;
use super::hang::{Hang, Help};
use crate::event::{Event, Events};

/// Guards one backend.
#[derive(Debug)]
pub struct Gate {
    backend: String,
    inner: Mutex<Inner>,
    changed: Notify,
    events: Events,
}

/// The right to run one job on the backend.
#[derive(Debug)]
#[must_use = "dropping a permit records the job as abandoned"]
pub struct Permit {
    gate: Arc<Gate>,
    recorded: bool,
}

/// The right to run one probe.
#[derive(Debug)]
#[must_use = "dropping a probe permit leaves the breaker half open"]
pub struct ProbePermit {
    gate: Arc<Gate>,
    recorded: bool,
}

/// What people are told about a backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// The breaker's state.
    pub state: State,
    /// The last fault, kept after recovery until the next success.
    pub last_error: Option<String>,
    /// What a person should do about a server that hangs, in a sentence.
    pub hung: Option<String>,
    /// Whether a job would probably be answered; false until the server was seen.
    pub usable: bool,
}

#[derive(Debug)]
struct Inner {
    breaker: Breaker,
    last_error: Option<String>,
    /// The server answered but had not got the model.
    model_missing: bool,
    /// The server was seen with its model, or has answered. Until then nothing is known of it.
    found: bool,
    hang: Hang,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new(backend: &str, policy: Policy, events: Events) -> Arc<Self> {
        Arc::new(Self {
            backend: backend.to_owned(),
            inner: Mutex::new(Inner {
                breaker: Breaker::new(policy),
                last_error: None,
                model_missing: false,
                found: false,
                hang: Hang::default(),
            }),
            changed: Notify::new(),
            events,
        })
    }

    /// Lets a job through, or says when to come back.
    ///
    /// # Errors
    /// `Rejected` while the breaker is not closed.
    pub fn admit(self: &Arc<Self>) -> Result<Permit, Rejected> {
        self.lock().breaker.admit(Instant::now())?;
        Ok(Permit { gate: Arc::clone(self), recorded: false })
    }

    /// Lets a probe through if one is due and none is running.
    pub fn admit_probe(self: &Arc<Self>) -> Option<ProbePermit> {
        let due = self.lock().breaker.admit_probe(Instant::now());
        due.then(|| ProbePermit { gate: Arc::clone(self), recorded: false })
    }

    /// Makes the next probe due now, because a person is waiting.
    pub fn hurry(&self) {
        self.lock().breaker.hurry(Instant::now());
        self.changed.notify_waiters();
    }

    /// State and last error.
    #[must_use]
    pub fn health(&self) -> Health {
        let inner = self.lock();
        let state = inner.breaker.state();
        Health {
            state,
            last_error: inner.last_error.clone(),
            hung: inner.hang.words().map(str::to_owned),
            usable: state == State::Closed && inner.found && !inner.model_missing,
        }
    }

    /// Whether a probe has passed since the breaker opened.
    #[must_use]
    pub fn has_passed_a_probe(&self) -> bool {
        self.lock().breaker.probes_passed() > 0
    }

    /// Notes that the server is there but has not got the model. That does not count against the
    /// server, and jobs are still tried: somebody may pull the model at any moment.
    pub fn note_missing(&self, problem: String) {
        {
            let mut inner = self.lock();
            inner.last_error = Some(problem);
            inner.model_missing = true;
        }
        self.changed.notify_waiters();
    }

    /// Whether the model was not there when it was looked for last.
    #[must_use]
    pub fn misses_model(&self) -> bool {
        self.lock().model_missing
    }

    /// Notes that the server is there with its model.
    pub fn note_found(&self) {
        let news = {
            let mut inner = self.lock();
            let was_missing = std::mem::take(&mut inner.model_missing);
            if was_missing {
                inner.last_error = None;
            }
            !std::mem::replace(&mut inner.found, true) || was_missing
        };
        if news {
            self.events.tell(Event::BackendFound { backend: self.backend.clone() });
        }
    }

    /// Records that the server was found gone without a job having been tried.
    pub fn found_gone(&self, fault: &Fault) {
        self.apply(false, Some(fault), |breaker, now, jitter| {
            breaker.record(Outcome::Trip, now, jitter);
        });
    }

    /// When the server counts as hung, unless that was told already.
    pub(super) fn hang_due(&self) -> Option<Instant> {
        self.lock().hang.due()
    }

    /// Tells that the server hangs, if it still does.
    pub(super) fn tell_hang(&self, detail: &str) -> Option<Help> {
        let help = self.lock().hang.tell(detail, Instant::now())?;
        let (backend, detail) = (self.backend.clone(), detail.to_owned());
        self.tell(Event::BackendHung { backend, detail });
        Some(help)
    }

    /// Tells a happening of this backend.
    pub(super) fn tell(&self, event: Event) {
        self.events.tell(event);
    }

    /// Resolves at the next change of state. Take it before looking at the state.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while holding it cannot leave the breaker half changed: no call in it panics.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(
        &self,
        healed: bool,
        fault: Option<&Fault>,
        change: impl FnOnce(&mut Breaker, Instant, f64),
    ) {
        let now = Instant::now();
        let jitter = fastrand::f64() * 2.0 - 1.0;
        let (before, after) = {
            let mut inner = self.lock();
            let before = inner.breaker.state();
            change(&mut inner.breaker, now, jitter);
            if let Some(fault) = fault {
                inner.last_error = Some(fault.detail.clone());
                inner.hang.failed(fault.class, now);
            }
            let after = inner.breaker.state();
            if healed {
                inner.last_error = None;
                inner.model_missing = false;
                inner.found = true;
                inner.hang = Hang::default();
            }
            (before, after)
        };
        match (before, after) {
            (State::Closed, State::Open { until }) => self.events.tell(Event::BreakerOpened {
                backend: self.backend.clone(),
                reason: fault.map_or_else(|| "unknown".to_owned(), |fault| fault.detail.clone()),
                open_ms: millis(until.saturating_duration_since(now)),
            }),
            (State::HalfOpen { .. }, State::Closed) => {
                self.events.tell(Event::BreakerClosed { backend: self.backend.clone() });
            }
            _ => {}
        }
        self.changed.notify_waiters();
    }
}

impl Permit {
    /// Records how the job ended.
    pub fn record(mut self, outcome: Outcome, fault: Option<&Fault>) {
        self.recorded = true;
        let healed = outcome == Outcome::Success;
        self.gate.apply(healed, fault, |breaker, now, jitter| {
            breaker.record(outcome, now, jitter);
        });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.recorded {
            let now = Instant::now();
            self.gate.lock().breaker.record(Outcome::Abandoned, now, 0.0);
        }
    }
}

impl ProbePermit {
    /// Records how the probe ended.
    pub fn record(mut self, result: Result<(), &Fault>) {
        self.recorded = true;
        let passed = result.is_ok();
        self.gate.apply(passed, result.err(), |breaker, now, jitter| {
            breaker.record_probe(passed, now, jitter);
        });
    }
}

impl Drop for ProbePermit {
    fn drop(&mut self) {
        if !self.recorded {
            self.gate.lock().breaker.abandon_probe();
        }
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::fault::{Class, Phase};

    fn down(detail: &str) -> Fault {
        Fault::new(Class::Down, Phase::Connect, detail)
    }

    fn gate() -> (Arc<Gate>, tokio::sync::broadcast::Receiver<Event>) {
        let events = Events::default();
        let heard = events.listen();
        (Gate::new("hailo", Policy::default(), events), heard)
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_permit_changes_nothing() {
        let (gate, _heard) = gate();
        for _ in 0..10 {
            drop(gate.admit());
        }
        assert_eq!(gate.health().state, State::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn opening_and_closing_are_told_once_with_their_reason() {
        let (gate, mut heard) = gate();
        let permit = gate.admit().unwrap();
        permit.record(Outcome::Trip, Some(&down("connection refused")));
        assert!(matches!(
            heard.try_recv(),
            Ok(Event::BreakerOpened { reason, .. }) if reason == "connection refused"
        ));
        tokio::time::advance(Duration::from_secs(10)).await;
        for _ in 0..2 {
            gate.admit_probe().unwrap().record(Ok(()));
        }
        assert!(matches!(heard.try_recv(), Ok(Event::BreakerClosed { .. })));
        assert!(heard.try_recv().is_err());
        assert_eq!(gate.health().last_error, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_probe_lets_the_next_one_in() {
        let (gate, _heard) = gate();
        gate.admit().unwrap().record(Outcome::Trip, Some(&down("gone")));
        gate.hurry();
        drop(gate.admit_probe());
        assert!(gate.admit_probe().is_some());
    }
}
