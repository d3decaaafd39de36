//! The writer: takes what is queued, commits it, answers, folds the log when it is quiet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backlog::Pending;
use super::bench::{Bench, Report, Round};
use super::medium::Medium;
use super::{Gauges, Job, StoreError};
use crate::event::{Event, Events};
use crate::limits;

/// The owner of the connection. Spawned by the supervisor, critical, the last to be stopped.
pub struct StoreTask {
    queue: mpsc::Receiver<Job>,
    bench: Option<Bench>,
    gauges: Arc<Gauges>,
    events: Events,
    idle_flush: Duration,
    /// Whether commits may still be only in the page cache, and since when it is quiet.
    unflushed_since: Option<Instant>,
    /// Whether the log is large enough to be folded at the next pause.
    fold_at_pause: bool,
}

impl std::fmt::Debug for StoreTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreTask").finish_non_exhaustive()
    }
}

impl StoreTask {
    pub(super) fn new(
        bench: Bench,
        queue: mpsc::Receiver<Job>,
        gauges: Arc<Gauges>,
        events: Events,
        idle_flush: Duration,
    ) -> Self {
        let bench = Some(bench);
        Self {
            queue,
            bench,
            gauges,
            events,
            idle_flush,
            unflushed_since: None,
            fold_at_pause: false,
        }
    }

    /// Works until `stop`, then commits what is queued, brings it onto the medium and closes.
    ///
    /// # Errors
    /// `Full` or `Io` if writes could not be brought onto the disk before the end; `Closed` if a
    /// database call panicked.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), StoreError> {
        loop {
            let mut jobs = Vec::new();
            let wake = self.wake_at();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                count = self.queue.recv_many(&mut jobs, limits::STORE_QUEUE) => {
                    if count == 0 {
                        break;
                    }
                    self.round(jobs, false).await?;
                }
                () = sleep_until(wake) => {
                    let fold = self.unflushed_since.is_some();
                    self.round(Vec::new(), fold).await?;
                }
            }
        }
        self.queue.close();
        let mut jobs = Vec::new();
        while let Ok(job) = self.queue.try_recv() {
            jobs.push(job);
        }
        let Some(mut bench) = self.bench.take() else { return Err(StoreError::Closed) };
        let (round, in_hand) = take_in(&mut bench, jobs, false);
        let medium = bench.medium();
        // One call for both: on a slow card each costs its wait, and the drain's time is short.
        let done = call(medium.as_ref(), move || {
            let report = bench.work(round);
            let kept = bench.backlog.pending.len();
            (report, kept, bench.close())
        });
        let (report, kept, closed) = done.await?;
        self.note(in_hand.saturating_sub(kept), kept, &report);
        closed.and(report.outcome)
    }

    /// When to look without being asked: to try again, or to flush after quiet.
    fn wake_at(&self) -> Option<Instant> {
        if self.gauges.degraded.load(Ordering::Relaxed) {
            return Some(Instant::now() + limits::STORE_RETRY);
        }
        let quiet = match self.fold_at_pause {
            true => limits::STORE_PAUSE.min(self.idle_flush),
            false => self.idle_flush,
        };
        self.unflushed_since.map(|since| since + quiet)
    }

    /// One blocking call for everything in hand. An error is the end of the task.
    async fn round(&mut self, jobs: Vec<Job>, fold: bool) -> Result<(), StoreError> {
        let Some(mut bench) = self.bench.take() else { return Err(StoreError::Closed) };
        let (round, in_hand) = take_in(&mut bench, jobs, fold);
        let medium = bench.medium();
        let done = call(medium.as_ref(), move || {
            let report = bench.work(round);
            (bench, report)
        });
        let (bench, report) = done.await?;
        let kept = bench.backlog.pending.len();
        self.note(in_hand.saturating_sub(kept), kept, &report);
        self.bench = Some(bench);
        Ok(())
    }

    /// Updates gauges and tells edges after a call that settled so many writes and keeps others.
    fn note(&mut self, settled: usize, kept: usize, report: &Report) {
        self.gauges.unsettled.fetch_sub(count(settled), Ordering::AcqRel);
        self.gauges.lost.fetch_add(report.lost, Ordering::Relaxed);
        let kept = count(kept);
        self.gauges.kept.store(kept, Ordering::Relaxed);
        if report.folded {
            self.unflushed_since = None;
        } else if report.committed > 0 || report.tried_to_fold {
            self.unflushed_since = Some(Instant::now());
        }
        self.fold_at_pause = report.fold_at_pause;
        let was = self.gauges.degraded.swap(report.outcome.is_err(), Ordering::Relaxed);
        match &report.outcome {
            Err(error) if !was => {
                self.events.tell(Event::StoreDegraded { reason: error.to_string() });
            }
            Ok(()) if was => self.events.tell(Event::StoreRecovered),
            _ => {}
        }
        if report.lost > 0 {
            tracing::warn!(lost = report.lost, kept, "shown text was given up");
        }
    }
}

/// Puts jobs in hand for one call; how many writes there are now.
fn take_in(bench: &mut Bench, jobs: Vec<Job>, fold: bool) -> (Round, usize) {
    let mut round = Round { fold, ..Round::default() };
    for job in jobs {
        match job {
            Job::Write(write, answer) => {
                bench.backlog.pending.push_back(Pending { write, answer: Some(answer) });
            }
            Job::Read(read) => round.reads.push(read),
            Job::Flush(answer) => round.flushes.push(answer),
        }
    }
    (round, bench.backlog.pending.len())
}

/// Runs one blocking call and gives its result back.
async fn call<T: Send + 'static>(
    medium: &dyn Medium,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let (give, result) = oneshot::channel();
    // Whoever asked waits for it below.
    medium.run(Box::new(move || drop(give.send(work())))).await?;
    result.await.map_err(|_| StoreError::Closed)
}

/// Sleeps until then, or for ever.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
