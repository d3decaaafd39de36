//! One blocking call: commit what waits, fold the log if it is time, answer the reads.
//!
//! The bench travels into the call and back, so the connection has one user at a time without a
//! lock.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::backlog::Backlog;
use super::disk::{Disk, Plan};
use super::medium::Medium;
use super::{Read, StoreError};
use crate::limits;

/// What travels into the blocking call and back.
pub(super) struct Bench {
    plan: Plan,
    /// Absent while no database can be had.
    disk: Option<Disk>,
    pub(super) backlog: Backlog,
    /// Size of the log at which it is folded at the next pause.
    fold_at_bytes: u64,
}

/// What a blocking call is asked beyond committing the backlog.
#[derive(Default)]
pub(super) struct Round {
    pub(super) reads: Vec<Read>,
    pub(super) flushes: Vec<oneshot::Sender<Result<(), StoreError>>>,
    pub(super) fold: bool,
}

/// What a blocking call reports.
pub(super) struct Report {
    pub(super) outcome: Result<(), StoreError>,
    pub(super) committed: usize,
    pub(super) lost: u64,
    pub(super) tried_to_fold: bool,
    pub(super) folded: bool,
    /// Whether the log is large enough to be folded at the next pause.
    pub(super) fold_at_pause: bool,
}

impl Bench {
    /// What its calls go through.
    pub(super) fn medium(&self) -> Arc<dyn Medium> {
        Arc::clone(&self.plan.medium)
    }

    /// Without a database yet.
    pub(super) fn new(plan: Plan) -> Self {
        let backlog = Backlog::default();
        Self { plan, disk: None, backlog, fold_at_bytes: limits::WAL_BYTES_MAX }
    }

    /// Opens the database if it is not open.
    pub(super) fn open(&mut self) -> Result<(), StoreError> {
        if self.disk.is_none() {
            self.disk = Some(self.plan.open()?);
        }
        Ok(())
    }

    /// Folds the log and closes the database.
    pub(super) fn close(self) -> Result<(), StoreError> {
        self.disk.map_or(Ok(()), Disk::close)
    }

    fn replace(&mut self, detail: &str) -> Result<(), StoreError> {
        match self.disk.take() {
            Some(disk) => self.disk = Some(self.plan.replace(disk, detail)?),
            None => self.open()?,
        }
        Ok(())
    }

    fn wal_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(0, Disk::wal_bytes)
    }

    /// Commits, then folds the log if it is time, then answers the reads.
    pub(super) fn work(&mut self, round: Round) -> Report {
        let mut report = Report {
            outcome: Ok(()),
            committed: 0,
            lost: 0,
            tried_to_fold: false,
            folded: false,
            fold_at_pause: false,
        };
        report.outcome = self.commit_all(&mut report.committed);
        if let Err(error) = &report.outcome {
            report.lost = self.backlog.keep(error);
        }
        for read in round.reads {
            let connection = self.disk.as_ref().map(Disk::connection);
            let without = || report.outcome.clone().err().unwrap_or(StoreError::Closed);
            if let Err(detail) = read(connection.ok_or_else(without))
                && let Err(error) = self.replace(&detail)
            {
                report.outcome = Err(error);
            }
        }
        let overdue = self.fold_at_bytes + limits::WAL_BYTES_WITHOUT_PAUSE;
        if round.fold || !round.flushes.is_empty() || self.wal_bytes() > overdue {
            let folded = self.fold(&mut report);
            let answer = report.outcome.clone().and(folded);
            for flush in round.flushes {
                // Whoever asked may have gone.
                let _ = flush.send(answer.clone());
            }
        }
        report.fold_at_pause = self.wal_bytes() > self.fold_at_bytes;
        report
    }

    /// Folds the log into the database. A program that reads the file meanwhile only delays it; a
    /// failing disk is an outage.
    fn fold(&mut self, report: &mut Report) -> Result<(), StoreError> {
        report.tried_to_fold = true;
        let Some(disk) = &self.disk else { return report.outcome.clone() };
        match self.plan.medium.verdict().and_then(|()| disk.checkpoint()) {
            Ok(true) => {
                report.folded = true;
                self.fold_at_bytes = limits::WAL_BYTES_MAX;
                Ok(())
            }
            Ok(false) => {
                self.fold_at_bytes = self.wal_bytes() + limits::WAL_BYTES_MAX;
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
        self.open()?;
        let mut replaced = false;
        while !self.backlog.pending.is_empty() {
            let count = self.backlog.slice();
            let slice = self.backlog.pending.iter().take(count).map(|p| &p.write);
            let Some(disk) = &mut self.disk else { return Err(StoreError::Closed) };
            match disk.commit(slice, self.plan.medium.as_ref()) {
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
                    self.replace(&detail)?;
                }
                Err((_, StoreError::Corrupt(detail))) => return Err(StoreError::Io(detail)),
                Err((_, error)) => return Err(error),
            }
        }
        Ok(())
    }
}
