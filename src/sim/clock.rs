//! The wall clock of the simulated world: it runs with the world's time and jumps when it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

use super::journal::Journal;
use crate::clock::WallClock;

/// A clock with an error of its own.
#[derive(Debug)]
pub(super) struct SimClock {
    journal: Arc<Journal>,
    /// What the clock shows at the beginning of the world, in milliseconds since 1970.
    start_ms: AtomicI64,
}

impl SimClock {
    /// A clock that begins at `start_ms`.
    pub(super) fn new(journal: Arc<Journal>, start_ms: i64) -> Self {
        Self { journal, start_ms: AtomicI64::new(start_ms) }
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.journal.now().as_millis()).unwrap_or(i64::MAX)
    }

    /// Puts the clock to a moment.
    pub(super) fn set(&self, at_ms: i64) {
        self.start_ms.store(at_ms - self.elapsed_ms(), Ordering::SeqCst);
    }

    /// Moves the clock by so much.
    pub(super) fn step(&self, by_ms: i64) {
        self.start_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl WallClock for SimClock {
    fn now(&self) -> Timestamp {
        let at_ms = self.start_ms.load(Ordering::SeqCst).saturating_add(self.elapsed_ms());
        Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}
