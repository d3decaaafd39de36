//! How answers arrive, by our own clock (pure): to the head, to the first token, and from token to
//! token.
//!
//! The newest gaps stand in a ring, and percentiles are exact over it. An estimator without memory
//! would never forget a hot afternoon, and neither its 99th percentile nor a histogram's could be
//! told to within the 15 ms that matter on a device whose gaps vary by less than a hundredth.

use std::time::Duration;

use crate::limits::TOKEN_GAPS_KEPT;

/// Fewest gaps from which percentiles are told: of fewer each is one gap's accident.
const GAPS_MIN: usize = 8;

/// How the answers of one backend arrive.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pace {
    head: Option<Duration>,
    first_token: Option<Duration>,
    /// Microseconds; as a ring once it is full, `next` being the oldest.
    gaps: Vec<u32>,
    next: usize,
}

/// The same in figures. Absent is not measured yet.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// From sending to the response head, in the newest answer.
    pub head: Option<Duration>,
    /// From sending to the first token, in the newest answer.
    pub first_token: Option<Duration>,
    /// Half of the newest gaps between tokens are no longer.
    pub gap_p50: Option<Duration>,
    /// 99 of 100 of the newest gaps between tokens are no longer.
    pub gap_p99: Option<Duration>,
}

impl Pace {
    /// The head of an answer came this long after it was asked for.
    pub fn head(&mut self, after: Duration) {
        self.head = Some(after);
    }

    /// The first token of an answer came this long after it was asked for.
    pub fn first_token(&mut self, after: Duration) {
        self.first_token = Some(after);
    }

    /// A token came this long after the one before it.
    pub fn gap(&mut self, gap: Duration) {
        let micros = u32::try_from(gap.as_micros()).unwrap_or(u32::MAX);
        match self.gaps.get_mut(self.next) {
            Some(oldest) => *oldest = micros,
            None => self.gaps.push(micros),
        }
        self.next = (self.next + 1) % TOKEN_GAPS_KEPT;
    }

    /// What was measured.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut sorted = self.gaps.clone();
        sorted.sort_unstable();
        // The smallest gap that is not exceeded by more than the rest of the hundred.
        let percentile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            let told = sorted.len() >= GAPS_MIN;
            let micros = sorted.get(rank.saturating_sub(1)).filter(|_| told)?;
            Some(Duration::from_micros(u64::from(*micros)))
        };
        Figures {
            head: self.head,
            first_token: self.first_token,
            gap_p50: percentile(50),
            gap_p99: percentile(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn after(gaps: impl Iterator<Item = u64>) -> Figures {
        let mut pace = Pace::default();
        gaps.for_each(|gap| pace.gap(millis(gap)));
        pace.figures()
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_gaps_in_any_order() {
        for gaps in [(1..=100).collect::<Vec<u64>>(), (1..=100).rev().collect()] {
            let figures = after(gaps.into_iter());
            assert_eq!(figures.gap_p50, Some(millis(50)));
            assert_eq!(figures.gap_p99, Some(millis(99)));
        }
        let two_of_a_hundred = (0..100).map(|n| if n % 50 == 0 { 900 } else { 140 });
        let figures = after(two_of_a_hundred);
        assert_eq!((figures.gap_p50, figures.gap_p99), (Some(millis(140)), Some(millis(900))));
    }

    #[test]
    fn too_few_gaps_tell_nothing_and_the_oldest_are_forgotten() {
        assert_eq!(after((0..7).map(|_| 140)).gap_p50, None);
        let slow_then_quick =
            (0..2 * TOKEN_GAPS_KEPT).map(|n| if n < TOKEN_GAPS_KEPT { 900 } else { 140 });
        let mut pace = Pace::default();
        slow_then_quick.for_each(|gap| pace.gap(millis(gap)));
        assert_eq!(pace.figures().gap_p99, Some(millis(140)));
        assert_eq!(pace.gaps.len(), TOKEN_GAPS_KEPT, "fixed memory");
        pace.gap(Duration::MAX);
        assert_eq!(pace.figures().gap_p99, Some(millis(140)), "one in a thousand is no percentile");
    }

    #[test]
    fn the_newest_answer_says_when_its_head_and_first_token_came() {
        let mut pace = Pace::default();
        assert_eq!(pace.figures(), Figures::default());
        pace.head(millis(9000));
        pace.first_token(millis(9400));
        pace.head(millis(3));
        assert_eq!(pace.figures().head, Some(millis(3)));
        assert_eq!(pace.figures().first_token, Some(millis(9400)));
    }
}
