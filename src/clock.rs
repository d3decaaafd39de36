//! The wall clock: the only place that asks what date it is.
//!
//! Intervals and timeouts use `tokio::time::Instant`, never this: a Pi has no battery clock, boots
//! in 1970, and jumps when the network time arrives.

pub mod duty;

use jiff::Timestamp;

/// Earliest time taken for real, in seconds since 1970 (2025-01-01): this program is younger, so
/// an earlier clock has not been set yet.
const EARLIEST_PLAUSIBLE_S: i64 = 1_735_689_600;

/// The date and time of day. Implemented by the system's clock and by test clocks.
pub trait WallClock: Send + Sync {
    /// Now, as the machine believes.
    fn now(&self) -> Timestamp;

    /// Whether the clock has been set since the machine started. Until then nothing may be
    /// scheduled or expired by date.
    fn is_set(&self) -> bool {
        self.now().as_second() >= EARLIEST_PLAUSIBLE_S
    }
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl WallClock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the date")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands where it is put, for tests.
#[derive(Debug)]
pub struct SteppedClock(std::sync::atomic::AtomicI64);

impl SteppedClock {
    /// A clock that stands at `at_ms` milliseconds since 1970.
    #[must_use]
    pub fn new(at_ms: i64) -> Self {
        Self(std::sync::atomic::AtomicI64::new(at_ms))
    }

    /// Puts the clock to `at_ms`, forwards or backwards.
    pub fn set(&self, at_ms: i64) {
        self.0.store(at_ms, std::sync::atomic::Ordering::SeqCst);
    }
}

impl WallClock for SteppedClock {
    fn now(&self) -> Timestamp {
        let at_ms = self.0.load(std::sync::atomic::Ordering::SeqCst);
        Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}
