//! The writer: takes what is queued, commits it, answers, folds the log when it is quiet.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backlog::{Backlog, Pending};
use super::disk::Disk;
use super::{Gauges, Job, Read, StoreError};
use crate::event::{Event, Events};
use crate::limits;

/// The owner of the connection. Spawned by the supervisor, critical, the last to be stopped.
pub struct StoreTask {
    queue: mpsc::Receiver<Job>,
    bench: Option<Bench>,
    gauges: Arc<Gauges>,
    events: Events,
    idle_flush: std::time::Duration,
    /// Whether commits may still be only in the page cache, and since when it is quiet.
    unflushed_since: Option<Instant>,
    /// How the last call went.
    outcome: Result<(), StoreError>,
}

/// What travels into the blocking call and back.
struct Bench {
    disk: Disk,
    backlog: Backlog,
    /// Size of the log at which the next attempt to fold it is due.
    fold_at_bytes: u64,
}

/// What a blocking call is asked beyond committing the backlog.
#[derive(Default)]
struct Round {
    reads: Vec<Read>,
    flushes: Vec<oneshot::Sender<Result<(), StoreError>>>,
    fold: bool,
}

/// What a blocking call reports.
struct Report {
    outcome: Result<(), StoreError>,
    committed: usize,
    lost: u64,
    tried_to_fold: bool,
    folded: bool,
}

impl std::fmt::Debug for StoreTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreTask").finish_non_exhaustive()
    }
}

impl StoreTask {
    pub(super) fn new(
        disk: Disk,
        queue: mpsc::Receiver<Job>,
        gauges: Arc<Gauges>,
        events: Events,
    ) -> Self {
        let idle_flush = disk.idle_flush();
        let bench =
            Some(Bench { disk, backlog: Backlog::default(), fold_at_bytes: limits::WAL_BYTES_MAX });
        Self { queue, bench, gauges, events, idle_flush, unflushed_since: None, outcome: Ok(()) }
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
        self.round(jobs, false).await?;
        let Some(bench) = self.bench.take() else { return Err(StoreError::Closed) };
        let closed = tokio::task::spawn_blocking(move || bench.disk.close()).await;
        closed.unwrap_or(Err(StoreError::Closed)).and(self.outcome)
    }

    /// When to look without being asked: to try again, or to flush after quiet.
    fn wake_at(&self) -> Option<Instant> {
        if self.gauges.degraded.load(Ordering::Relaxed) {
            return Some(Instant::now() + limits::STORE_RETRY);
        }
        self.unflushed_since.map(|since| since + self.idle_flush)
    }

    /// One blocking call for everything in hand. An error is the end of the task.
    async fn round(&mut self, jobs: Vec<Job>, fold: bool) -> Result<(), StoreError> {
        let Some(mut bench) = self.bench.take() else { return Err(StoreError::Closed) };
        let mut round = Round { fold, ..Round::default() };
        let kept_before = bench.backlog.pending.len();
        let mut taken = 0;
        for job in jobs {
            match job {
                Job::Write(write, answer) => {
                    taken += 1;
                    bench.backlog.pending.push_back(Pending { write, answer: Some(answer) });
                }
                Job::Read(read) => round.reads.push(read),
                Job::Flush(answer) => round.flushes.push(answer),
            }
        }
        let done = tokio::task::spawn_blocking(move || {
            let report = bench.work(round);
            (bench, report)
        });
        let Ok((bench, report)) = done.await else { return Err(StoreError::Closed) };
        let settled = (kept_before + taken).saturating_sub(bench.backlog.pending.len());
        self.gauges.unsettled.fetch_sub(count(settled), Ordering::AcqRel);
        self.note(&bench, &report);
        self.bench = Some(bench);
        self.outcome = report.outcome;
        Ok(())
    }

    /// Updates gauges and tells edges.
    fn note(&mut self, bench: &Bench, report: &Report) {
        self.gauges.lost.fetch_add(report.lost, Ordering::Relaxed);
        let kept = count(bench.backlog.pending.len());
        self.gauges.kept.store(kept, Ordering::Relaxed);
        if report.folded {
            self.unflushed_since = None;
        } else if report.committed > 0 || report.tried_to_fold {
            self.unflushed_since = Some(Instant::now());
        }
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

impl Bench {
    /// Commits, then folds the log if it is time, then answers the reads.
    fn work(&mut self, round: Round) -> Report {
        let mut report =
            Report { outcome: Ok(()), committed: 0, lost: 0, tried_to_fold: false, folded: false };
        report.outcome = self.commit_all(&mut report.committed);
        if let Err(error) = &report.outcome {
            report.lost = self.backlog.keep(error);
        }
        for read in round.reads {
            if let Err(detail) = read(Ok(self.disk.connection()))
                && let Err(error) = self.disk.replace(&detail)
            {
                report.outcome = Err(error);
            }
        }
        if round.fold || !round.flushes.is_empty() || self.disk.wal_bytes() > self.fold_at_bytes {
            let folded = self.fold(&mut report);
            let answer = report.outcome.clone().and(folded);
            for flush in round.flushes {
                // Whoever asked may have gone.
                let _ = flush.send(answer.clone());
            }
        }
        report
    }

    /// Folds the log into the database. A program that reads the file meanwhile only delays it; a
    /// failing disk is an outage.
    fn fold(&mut self, report: &mut Report) -> Result<(), StoreError> {
        report.tried_to_fold = true;
        match self.disk.checkpoint() {
            Ok(true) => {
                report.folded = true;
                self.fold_at_bytes = limits::WAL_BYTES_MAX;
                Ok(())
            }
            Ok(false) => {
                self.fold_at_bytes = self.disk.wal_bytes() + limits::WAL_BYTES_MAX;
                tracing::info!("another program reads the database; its log is folded later");
                Err(StoreError::Io("another program reads the database".into()))
            }
            Err(error) => {
                tracing::warn!(%error, "the log could not be folded into the database");
                report.outcome = report.outcome.clone().and(Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Commits the backlog in slices. A write that contradicts what is stored is answered and
    /// left out; a damaged database is replaced once.
    fn commit_all(&mut self, committed: &mut usize) -> Result<(), StoreError> {
        let mut replaced = false;
        while !self.backlog.pending.is_empty() {
            let count = self.backlog.slice();
            let slice = self.backlog.pending.iter().take(count).map(|p| &p.write);
            match self.disk.commit(slice) {
                Ok(()) => {
                    for mut done in self.backlog.pending.drain(..count) {
                        done.answer(Ok(()));
                    }
                    *committed += count;
                }
                Err((index, StoreError::Refused(detail))) => {
                    if let Some(mut refused) = self.backlog.pending.remove(index) {
                        tracing::warn!(detail, "a write was refused");
                        refused.answer(Err(StoreError::Refused(detail)));
                    }
                }
                Err((_, StoreError::Corrupt(detail))) if !replaced => {
                    replaced = true;
                    self.disk.replace(&detail)?;
                }
                Err((_, StoreError::Corrupt(detail))) => return Err(StoreError::Io(detail)),
                Err((_, error)) => return Err(error),
            }
        }
        Ok(())
    }
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
