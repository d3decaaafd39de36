//! The circuit breaker of one backend, as a state machine over `(state, input, now)` (pure).
//!
//! Closed lets jobs through. Open refuses them at once, so that a dead server does not cost its
//! timeout on every turn. Half-open lets through probes only, one at a time: a server that comes
//! back is not stampeded, and no person's turn is the experiment.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Probes in a row that must succeed before jobs are let through again (specification 5A.8).
const PROBES_TO_CLOSE: u32 = 2;

/// Share by which an open time is lengthened or shortened at random, so that several daemons on
/// one server do not probe it in step (specification 5A.8: 20 %).
const JITTER: f64 = 0.2;

/// When it opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Failures within `window` that open it.
    pub failures_to_open: usize,
    /// How long a failure counts.
    pub window: Duration,
    /// The first open time; it doubles with every failed probe.
    pub open_for: Duration,
    /// The longest open time.
    pub open_max: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            failures_to_open: 3,
            window: Duration::from_secs(60),
            open_for: Duration::from_secs(5),
            open_max: Duration::from_secs(120),
        }
    }
}

/// How a job ended, as far as the breaker cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It ended as it should.
    Success,
    /// The server failed.
    Failure,
    /// The server is certainly gone or taken: one such failure is enough.
    Trip,
    /// Says nothing about the server: cancelled by the person, or our own mistake.
    Abandoned,
}

/// The three states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Jobs pass.
    Closed,
    /// Jobs are refused until the instant, then a probe may run.
    Open {
        /// When the next probe is due.
        until: Instant,
    },
    /// A probe runs, or the next may start now.
    HalfOpen {
        /// Whether one is running.
        probing: bool,
    },
}

/// A job was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// Until the next probe.
    pub retry_after: Duration,
}

/// The breaker.
#[derive(Debug)]
pub struct Breaker {
    policy: Policy,
    state: State,
    /// When the failures that still count happened, oldest first.
    failures: VecDeque<Instant>,
    /// Failed probes since it was last closed; the exponent of the open time.
    rounds: u32,
    /// Successful probes in a row.
    probes_passed: u32,
}

impl Breaker {
    /// A closed breaker: a server is presumed well until it shows otherwise.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::Closed,
            failures: VecDeque::new(),
            rounds: 0,
            probes_passed: 0,
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Successful probes in a row since it opened.
    #[must_use]
    pub fn probes_passed(&self) -> u32 {
        self.probes_passed
    }

    /// Whether a job may run now.
    ///
    /// # Errors
    /// `Rejected` with the time until the next probe while it is not closed.
    pub fn admit(&self, now: Instant) -> Result<(), Rejected> {
        match self.state {
            State::Closed => Ok(()),
            State::Open { until } => {
                Err(Rejected { retry_after: until.saturating_duration_since(now) })
            }
            State::HalfOpen { .. } => Err(Rejected { retry_after: Duration::ZERO }),
        }
    }

    /// Takes the right to probe. False while it is closed, not yet due, or a probe is running.
    pub fn admit_probe(&mut self, now: Instant) -> bool {
        let due = match self.state {
            State::Closed => false,
            State::Open { until } => now >= until,
            State::HalfOpen { probing } => !probing,
        };
        if due {
            self.state = State::HalfOpen { probing: true };
        }
        due
    }

    /// Makes the next probe due now, because a person is waiting.
    pub fn hurry(&mut self, now: Instant) {
        if let State::Open { until } = &mut self.state {
            *until = (*until).min(now);
        }
    }

    /// Records how an admitted job ended. `jitter` is a random number in [-1, 1].
    pub fn record(&mut self, outcome: Outcome, now: Instant, jitter: f64) {
        if self.state != State::Closed {
            // The job was admitted before another one opened it; its end changes nothing.
            return;
        }
        match outcome {
            Outcome::Success => self.failures.clear(),
            Outcome::Abandoned => {}
            Outcome::Failure => {
                while let Some(oldest) = self.failures.front()
                    && now.saturating_duration_since(*oldest) > self.policy.window
                {
                    self.failures.pop_front();
                }
                self.failures.push_back(now);
                if self.failures.len() >= self.policy.failures_to_open {
                    self.open(now, jitter);
                }
            }
            Outcome::Trip => self.open(now, jitter),
        }
    }

    /// Records how a probe ended.
    pub fn record_probe(&mut self, passed: bool, now: Instant, jitter: f64) {
        debug_assert_eq!(self.state, State::HalfOpen { probing: true });
        if !passed {
            self.rounds = self.rounds.saturating_add(1);
            self.open(now, jitter);
            return;
        }
        self.probes_passed += 1;
        if self.probes_passed >= PROBES_TO_CLOSE {
            self.state = State::Closed;
            self.failures.clear();
            self.rounds = 0;
            self.probes_passed = 0;
        } else {
            self.state = State::HalfOpen { probing: false };
        }
    }

    /// A probe was dropped before it ended: the next one may start.
    pub fn abandon_probe(&mut self) {
        if self.state == (State::HalfOpen { probing: true }) {
            self.state = State::HalfOpen { probing: false };
        }
    }

    fn open(&mut self, now: Instant, jitter: f64) {
        let doubled = 2_f64.powi(i32::try_from(self.rounds.min(16)).unwrap_or(16));
        let seconds =
            (self.policy.open_for.as_secs_f64() * doubled).min(self.policy.open_max.as_secs_f64());
        let jittered = seconds * (1.0 + JITTER * jitter.clamp(-1.0, 1.0));
        self.state = State::Open { until: now + Duration::from_secs_f64(jittered) };
        self.failures.clear();
        self.probes_passed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Instant {
        // One base for a test run; only differences matter.
        use std::sync::OnceLock;
        static BASE: OnceLock<Instant> = OnceLock::new();
        *BASE.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    fn breaker() -> Breaker {
        Breaker::new(Policy::default())
    }

    fn open_until(b: &Breaker) -> Instant {
        match b.state() {
            State::Open { until } => until,
            other => panic!("not open: {other:?}"),
        }
    }

    #[test]
    fn three_failures_within_a_minute_open_it() {
        let mut b = breaker();
        b.record(Outcome::Failure, at(0), 0.0);
        b.record(Outcome::Failure, at(30), 0.0);
        assert_eq!(b.state(), State::Closed);
        b.record(Outcome::Failure, at(59), 0.0);
        assert_eq!(open_until(&b), at(64));
    }

    #[test]
    fn failures_older_than_the_window_do_not_count() {
        let mut b = breaker();
        for second in [0, 61, 122, 183] {
            b.record(Outcome::Failure, at(second), 0.0);
        }
        assert_eq!(b.state(), State::Closed);
    }

    #[test]
    fn a_success_forgets_failures() {
        let mut b = breaker();
        b.record(Outcome::Failure, at(0), 0.0);
        b.record(Outcome::Failure, at(1), 0.0);
        b.record(Outcome::Success, at(2), 0.0);
        b.record(Outcome::Failure, at(3), 0.0);
        assert_eq!(b.state(), State::Closed);
    }

    #[test]
    fn a_server_that_is_gone_opens_it_at_once() {
        let mut b = breaker();
        b.record(Outcome::Trip, at(0), 0.0);
        assert_eq!(b.admit(at(1)), Err(Rejected { retry_after: Duration::from_secs(4) }));
    }

    #[test]
    fn open_times_double_up_to_the_bound() {
        let mut b = breaker();
        b.record(Outcome::Trip, at(0), 0.0);
        let mut now = at(0);
        for expected in [5, 10, 20, 40, 80, 120, 120] {
            assert_eq!(open_until(&b), now + Duration::from_secs(expected));
            now = open_until(&b);
            assert!(b.admit_probe(now));
            b.record_probe(false, now, 0.0);
        }
    }

    #[test]
    fn two_probes_in_a_row_close_it_and_only_one_runs_at_a_time() {
        let mut b = breaker();
        b.record(Outcome::Trip, at(0), 0.0);
        assert!(!b.admit_probe(at(4)), "not due yet");
        assert!(b.admit_probe(at(5)));
        assert!(!b.admit_probe(at(5)), "one is running");
        assert!(b.admit(at(5)).is_err(), "jobs wait for the probes");
        b.record_probe(true, at(6), 0.0);
        assert!(b.admit(at(6)).is_err(), "one success is not enough");
        assert!(b.admit_probe(at(6)));
        b.record_probe(true, at(7), 0.0);
        assert_eq!(b.state(), State::Closed);
        b.record(Outcome::Trip, at(8), 0.0);
        assert_eq!(open_until(&b), at(13), "the doubling starts anew");
    }

    #[test]
    fn a_person_who_waits_makes_the_probe_due_now() {
        let mut b = breaker();
        b.record(Outcome::Trip, at(0), 0.0);
        b.hurry(at(1));
        assert!(b.admit_probe(at(1)));
        b.abandon_probe();
        assert!(b.admit_probe(at(1)), "an abandoned probe frees the place");
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        for (jitter, seconds) in [(-1.0, 4), (1.0, 6), (-9.0, 4)] {
            let mut b = breaker();
            b.record(Outcome::Trip, at(0), jitter);
            assert_eq!(open_until(&b), at(seconds));
        }
    }

    proptest! {
        #[test]
        fn jobs_pass_only_while_closed_and_probes_only_while_not(
            steps in proptest::collection::vec((0_u8..7, 0_u64..40), 0..200)
        ) {
            let mut b = breaker();
            let mut second = 0;
            for (step, pause) in steps {
                second += pause;
                let now = at(second);
                let closed = b.state() == State::Closed;
                prop_assert_eq!(b.admit(now).is_ok(), closed);
                match step {
                    0 => b.record(Outcome::Success, now, 0.3),
                    1 => b.record(Outcome::Failure, now, -0.4),
                    2 => b.record(Outcome::Trip, now, 0.9),
                    3 => b.record(Outcome::Abandoned, now, 0.0),
                    4 => b.hurry(now),
                    other => if b.admit_probe(now) {
                        prop_assert!(!closed);
                        prop_assert!(!b.admit_probe(now));
                        b.record_probe(other == 5, now, 0.1);
                    },
                }
                if let State::Open { until } = b.state() {
                    prop_assert!(until <= now + Duration::from_secs(144));
                }
            }
        }
    }
}
