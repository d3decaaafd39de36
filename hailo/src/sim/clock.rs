//! Simulated time: how fast it runs, sleeping in it, and writing it down.
//!
//! A simulator decides everything from planned durations; this clock only turns them into waiting.
//! Sleeps end early when the server halts or when the caller's condition says so.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Longest uninterrupted sleep. A stop or a leaving client is noticed within it.
const SLICE: Duration = Duration::from_millis(4);

/// How fast simulated time runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// One simulated second takes one second.
    Published,
    /// Waiting takes no time; the simulated clock jumps instead.
    Instant,
    /// So many simulated seconds pass in one real second.
    Factor(f64),
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "published" => Ok(Self::Published),
            "instant" => Ok(Self::Instant),
            number => match number.parse::<f64>() {
                Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(Self::Factor(factor)),
                _ => Err(format!("{number:?} is none of: published, instant, a number above 0")),
            },
        }
    }
}

/// Set once when the process that is simulated dies; every sleep of that life ends.
#[derive(Clone, Debug, Default)]
pub struct Halt(Arc<AtomicBool>);

impl Halt {
    /// Ends all sleeps of this life.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether both belong to the same life.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether this life is over.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woke {
    /// The time has come.
    Due,
    /// The simulated process died or the simulator stops.
    Halted,
    /// The caller's condition became true.
    Asked,
}

/// The simulated clock. Cloning gives another hand on the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    pace: Pace,
    /// Simulated µs which [`Pace::Instant`] jumped over.
    skipped_us: Arc<AtomicU64>,
}

impl Clock {
    /// A clock at zero.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { start: Instant::now(), pace, skipped_us: Arc::default() }
    }

    /// Simulated time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        let real = self.start.elapsed();
        match self.pace {
            Pace::Published => real,
            Pace::Factor(factor) => real.mul_f64(factor),
            Pace::Instant => real + Duration::from_micros(self.skipped_us.load(Ordering::SeqCst)),
        }
    }

    /// Real time since the start.
    #[must_use]
    pub fn real(&self) -> Duration {
        self.start.elapsed()
    }

    /// How long `simulated` really takes; zero when nothing is waited for.
    #[must_use]
    pub fn real_of(&self, simulated: Duration) -> Duration {
        match self.pace {
            Pace::Published => simulated,
            Pace::Factor(factor) => simulated.div_f64(factor),
            Pace::Instant => Duration::ZERO,
        }
    }

    /// Sleeps for `simulated` time, or until the life ends.
    pub fn sleep(&self, simulated: Duration, halt: &Halt) -> Woke {
        self.sleep_until(self.now() + simulated, halt, || false)
    }

    /// Sleeps until the simulated time `deadline`, the end of the life, or until `asked` is true.
    /// `asked` is looked at every few real ms.
    pub fn sleep_until(
        &self,
        deadline: Duration,
        halt: &Halt,
        mut asked: impl FnMut() -> bool,
    ) -> Woke {
        loop {
            if halt.is_set() {
                return Woke::Halted;
            }
            if asked() {
                return Woke::Asked;
            }
            let left = deadline.saturating_sub(self.now());
            if left.is_zero() {
                return Woke::Due;
            }
            if self.pace == Pace::Instant {
                let us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
                self.skipped_us.fetch_add(us, Ordering::SeqCst);
                return Woke::Due;
            }
            thread::sleep(self.real_of(left).clamp(Duration::from_micros(1), SLICE));
        }
    }

    /// Sleeps in real time, for ever unless the life ends or `asked` is true. Hangs are real on
    /// every pace: a client must wait them out by its own clock.
    pub fn hang(&self, halt: &Halt, mut asked: impl FnMut() -> bool) -> Woke {
        loop {
            if halt.is_set() {
                return Woke::Halted;
            }
            if asked() {
                return Woke::Asked;
            }
            thread::sleep(SLICE);
        }
    }
}

/// The wall clock as `YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ`, always nine digits.
#[must_use]
pub fn stamp_now() -> String {
    stamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A time since 1970 in UTC as `YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ`.
#[must_use]
pub fn stamp(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let nanos = since_epoch.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Gregorian date of a day counted from 1970-01-01. Years are counted from March, so that the leap
/// day is the last of its year and the months have a regular length of 153 days in five.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_a_word_or_a_positive_number() {
        assert_eq!("published".parse(), Ok(Pace::Published));
        assert_eq!("instant".parse(), Ok(Pace::Instant));
        assert_eq!("12.5".parse(), Ok(Pace::Factor(12.5)));
        for bad in ["", "0", "-1", "NaN", "inf", "fast"] {
            assert!(bad.parse::<Pace>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_instant_clock_jumps_over_its_sleeps() {
        let clock = Clock::new(Pace::Instant);
        assert_eq!(clock.sleep(Duration::from_secs(3600), &Halt::default()), Woke::Due);
        assert!(clock.now() >= Duration::from_secs(3600));
    }

    #[test]
    fn a_halt_or_a_request_ends_a_sleep() {
        let clock = Clock::new(Pace::Published);
        let halt = Halt::default();
        let hour = Duration::from_secs(3600);
        assert_eq!(clock.sleep_until(hour, &halt, || true), Woke::Asked);
        halt.set();
        assert_eq!(clock.sleep(hour, &halt), Woke::Halted);
    }

    #[test]
    fn stamps_have_nine_digits_and_know_leap_years() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, 5, "2000-02-28T23:59:59.000000005Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000000000Z"),
            (1_768_471_200, 123_456_789, "2026-01-15T10:00:00.123456789Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(stamp(Duration::new(seconds, nanos)), text);
        }
    }
}
