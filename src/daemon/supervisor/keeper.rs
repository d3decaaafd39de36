//! Keeps one task: runs its attempts, records how they end and applies its policy.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Factory, Outcome, Policy, Progress, Restart, Shared, Spec, TaskCx, start};
use crate::event::Event;

pub(super) struct Keeper {
    id: u64,
    spec: Spec,
    stop: CancellationToken,
    progress: Progress,
    shared: Arc<Shared>,
}

impl Keeper {
    pub(super) fn new(
        id: u64,
        spec: Spec,
        stop: CancellationToken,
        progress: Progress,
        shared: Arc<Shared>,
    ) -> Self {
        Self { id, spec, stop, progress, shared }
    }

    pub(super) async fn keep(self, mut factory: Factory) {
        let given_up = self.attempts(&mut factory).await;
        // What the factory holds (a queue's end, a handle) goes before the task counts as ended.
        drop(factory);
        if given_up {
            self.shared.change(self.id, |entry| entry.live = false);
        } else {
            self.shared.table().entries.remove(&self.id);
        }
        self.shared.ended.send_modify(|count| *count += 1);
    }

    /// Attempt after attempt; true if the task was given up, false if it is over.
    async fn attempts(&self, factory: &mut Factory) -> bool {
        let mut past = Past::default();
        loop {
            let outcome = self.attempt(factory).await;
            if self.stop.is_cancelled() {
                self.log_stopped(&outcome);
                return false;
            }
            let next = match self.spec.policy {
                Policy::Once if outcome == Outcome::Returned => return false,
                Policy::Once => Next::Nothing,
                Policy::ExitProcess => Next::Leave,
                Policy::Restart(restart) => past.after_end(restart, Instant::now()),
            };
            // Recorded before anything is done about it, so that a fault in doing it hides nothing.
            self.record(next, &outcome, past.restarts);
            match next {
                Next::Nothing => return false,
                Next::Leave => {
                    // Full means that another critical task was first, which is reason enough.
                    let _ = self.shared.critical.try_send((self.spec.name, outcome));
                    return false;
                }
                Next::GiveUp => return true,
                Next::After(delay) => {
                    tokio::select! {
                        biased;
                        () = self.stop.cancelled() => return false,
                        () = sleep(delay) => {}
                    }
                    self.shared.change(self.id, |entry| entry.report.state = "running");
                }
            }
        }
    }

    /// One run, in a task of its own: the runtime catches its panics, those of `Drop` included,
    /// and the drain can drop it.
    async fn attempt(&self, factory: &mut Factory) -> Outcome {
        let cx = TaskCx { stop: self.stop.clone(), progress: self.progress.clone() };
        let attempt = match catch_unwind(AssertUnwindSafe(|| factory(cx))) {
            Ok(attempt) => attempt,
            Err(payload) => return Outcome::Panicked(panic_text(payload.as_ref())),
        };
        let handle = start(attempt);
        self.shared.change(self.id, |entry| {
            if entry.overran_at.is_some() {
                handle.abort();
            }
            entry.abort = Some(handle.abort_handle());
        });
        match handle.await {
            Ok(Ok(())) => Outcome::Returned,
            Ok(Err(why)) => Outcome::Failed(why),
            Err(error) => Outcome::Panicked(join_text(error)),
        }
    }

    fn record(&self, next: Next, outcome: &Outcome, restarts: u32) {
        let (state, told) = match next {
            Next::After(delay) => {
                ("restarting", format!("{outcome}; restarts in {} s", delay.as_secs_f32()))
            }
            Next::GiveUp => ("given up", format!("{outcome}; given up")),
            Next::Leave | Next::Nothing => ("ended", outcome.to_string()),
        };
        self.shared.change(self.id, |entry| {
            entry.report.state = state;
            entry.report.restarts = restarts;
            entry.report.last_outcome = Some(outcome.to_string());
        });
        self.shared.events.tell(Event::TaskFailed { task: self.spec.name, outcome: told });
    }

    fn log_stopped(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Returned => tracing::debug!(task = self.spec.name, "task stopped"),
            Outcome::Failed(_) | Outcome::Panicked(_) => {
                tracing::warn!(task = self.spec.name, %outcome, "task stopped badly");
            }
        }
    }
}

/// What follows a task's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    Leave,
    After(Duration),
    GiveUp,
}

/// Restarts of one task so far.
#[derive(Debug, Default)]
struct Past {
    restarts: u32,
    recent: VecDeque<Instant>,
}

impl Past {
    /// Decides what follows an end. Never holds more than `restarts_max` instants.
    fn after_end(&mut self, restart: Restart, now: Instant) -> Next {
        while self.recent.front().is_some_and(|at| now.duration_since(*at) >= restart.window) {
            self.recent.pop_front();
        }
        let count = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if count >= restart.restarts_max {
            return Next::GiveUp;
        }
        self.recent.push_back(now);
        self.restarts = self.restarts.saturating_add(1);
        // The shift must not overflow, and 2^16 times any first delay is beyond any longest one.
        let delay = restart.delay_first.saturating_mul(1 << count.min(16));
        Next::After(delay.min(restart.delay_max))
    }
}

fn join_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => panic_text(payload.as_ref()),
        Err(_) => "dropped from outside".to_owned(),
    }
}

/// The message of a panic: `panic!` makes one of these two types, `panic_any` anything.
pub(in crate::daemon) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&'static str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_a_quiet_window_starts_over() {
        let restart = Restart { restarts_max: 9, ..Restart::USUAL };
        let mut past = Past::default();
        let start = Instant::now();
        let delays: Vec<_> = (0..10).map(|_| past.after_end(restart, start)).collect();
        let expected = [1, 2, 4, 8, 16, 32, 60, 60, 60];
        let mut expected: Vec<_> =
            expected.iter().map(|s| Next::After(Duration::from_secs(*s))).collect();
        expected.push(Next::GiveUp);
        assert_eq!(delays, expected);
        let later = start + restart.window;
        assert_eq!(past.after_end(restart, later), Next::After(Duration::from_secs(1)));
        assert_eq!(past.restarts, 10);
    }

    #[test]
    fn a_panic_is_said_whatever_its_payload() {
        let text = |payload: Box<dyn std::any::Any + Send>| panic_text(payload.as_ref());
        assert_eq!(text(Box::new("literal")), "literal");
        assert_eq!(text(Box::new(String::from("formatted"))), "formatted");
        assert_eq!(text(Box::new(7_u8)), "a panic without a message");
    }
}
