//! Proof of life: critical tasks tick, and the beat asks whether all of them did.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::{Policy, Shared};

/// A task's proof that it gets on. A critical task ticks at least once per beat of the heart:
/// after each piece of work, and while it waits for work by waiting inside `idle`.
#[derive(Debug, Clone)]
pub struct Progress {
    ticks: Arc<AtomicU64>,
    beat: watch::Receiver<u64>,
}

impl Progress {
    pub(super) fn new(ticks: Arc<AtomicU64>, beat: watch::Receiver<u64>) -> Self {
        Self { ticks, beat }
    }

    /// Says that work was done.
    pub fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the beat asks for a proof of life. For tasks whose proof is work of its own:
    /// whoever serves a queue is proven alive by an answer out of that queue.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn asked(&mut self) {
        if self.beat.changed().await.is_err() {
            // The supervisor is gone, and with it everybody who could ask.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for `work`, and says at each beat that the task is awake. Costs no timer of its own.
    ///
    /// # Cancel safety
    /// That of `work`.
    pub async fn idle<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = pin!(work);
        self.tick();
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.tick();
                    return done;
                }
                beat = self.beat.changed() => match beat {
                    Ok(()) => self.tick(),
                    Err(_) => return work.await,
                },
            }
        }
    }
}

/// Tells whether the critical tasks get on.
#[derive(Debug)]
pub struct Liveness {
    shared: Arc<Shared>,
    seen: BTreeMap<u64, u64>,
}

impl Liveness {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, seen: BTreeMap::new() }
    }

    /// Whether every critical task ticked since the last call; names those that did not. Pings
    /// the idle ones for the next call. A task is first judged at the second call that sees it,
    /// and no more once it was asked to stop.
    ///
    /// # Errors
    /// The names of the tasks that stand still.
    pub fn all_moved(&mut self) -> Result<(), Vec<&'static str>> {
        let mut stuck = Vec::new();
        let mut seen = BTreeMap::new();
        for (id, entry) in &self.shared.table().entries {
            if entry.spec.policy != Policy::ExitProcess || entry.stop.is_cancelled() {
                continue;
            }
            let ticks = entry.ticks.load(Ordering::Relaxed);
            if self.seen.get(id) == Some(&ticks) {
                stuck.push(entry.spec.name);
            }
            seen.insert(*id, ticks);
        }
        self.seen = seen;
        self.shared.beat.send_modify(|beat| *beat = beat.wrapping_add(1));
        if stuck.is_empty() { Ok(()) } else { Err(stuck) }
    }
}
