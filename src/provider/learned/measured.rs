//! Those of the learned figures that are worth keeping over a restart.

use serde::{Deserialize, Serialize};

use super::{Figures, Learned, PREFILL_TOKENS_MIN, RATE_MAX, RATE_MIN};
use crate::provider::pace::Pace;

/// Longest time believed of a kept figure, in seconds; nothing here takes so long.
const HOUR_S: f64 = 3600.0;

/// What is kept over a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    chunk_s: f64,
    planned_chunk_s: f64,
    tokens_per_s: f64,
    healthy_per_s: Option<f64>,
    load_s: f64,
    prefill_cap: u32,
}

impl Learned {
    /// What is worth keeping, once anything was measured.
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        let figures = self.lock();
        let now = figures.measured();
        (now != Figures::new(figures.seed).measured()).then_some(now)
    }

    /// Begins with kept figures, unless there are newer ones. Figures that no server has are left.
    pub fn take_up(&self, kept: &Measured) {
        let mut figures = self.lock();
        if figures.measured() == Figures::new(figures.seed).measured() && kept.is_sound() {
            figures.set(kept);
        }
    }

    /// Forgets all that was measured and refused: another server, or another model.
    pub fn start_over(&self) {
        let mut figures = self.lock();
        let fresh = Figures::new(figures.seed).measured();
        figures.set(&fresh);
        (figures.slow_answers, figures.stalls) = (0, 0);
        figures.pace = Pace::default();
        figures.refused.clear();
        figures.last.clear();
    }
}

impl Measured {
    /// Whether a server may have such figures at all.
    fn is_sound(&self) -> bool {
        let times = [self.chunk_s, self.planned_chunk_s, self.load_s];
        let rates = [Some(self.tokens_per_s), self.healthy_per_s];
        times.iter().all(|time| (0.0..=HOUR_S).contains(time))
            && rates.iter().flatten().all(|rate| (RATE_MIN..=RATE_MAX).contains(rate))
    }
}

impl Figures {
    fn measured(&self) -> Measured {
        Measured {
            chunk_s: self.chunk_s,
            planned_chunk_s: self.planned_chunk_s,
            tokens_per_s: self.tokens_per_s,
            healthy_per_s: self.healthy_per_s,
            load_s: self.load_s,
            prefill_cap: self.prefill_cap,
        }
    }

    fn set(&mut self, measured: &Measured) {
        self.chunk_s = measured.chunk_s;
        self.planned_chunk_s = measured.planned_chunk_s;
        self.tokens_per_s = measured.tokens_per_s;
        self.healthy_per_s = measured.healthy_per_s;
        self.load_s = measured.load_s;
        self.prefill_cap = measured.prefill_cap.clamp(PREFILL_TOKENS_MIN, self.seed.context_tokens);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::provider::fake::SEED;
    use crate::provider::fault::Field;

    #[tokio::test(start_paused = true)]
    async fn figures_are_taken_up_by_a_fresh_start_and_dropped_for_another_model() {
        let learned = Learned::new(SEED);
        assert_eq!(learned.measured(), None, "nothing is worth keeping yet");
        learned.answered(&[], 31, Duration::from_secs(10));
        learned.prefill_timed_out(1000);
        learned.load_took(Duration::from_secs(4));
        learned.refuses(Field::Tools);
        let kept = learned.measured().unwrap();
        let text = serde_json::to_vec(&kept).unwrap();
        let kept: Measured = serde_json::from_slice(&text).unwrap();

        let next = Learned::new(SEED);
        next.take_up(&kept);
        assert_eq!(next.measured(), Some(kept.clone()));
        assert_eq!(next.prefill_tokens_max(), 750, "the limit is not found out again");
        assert_eq!(next.measured_tokens_per_s(), learned.measured_tokens_per_s());
        assert!(!next.is_loaded(Instant::now()));
        let newer = Learned::new(SEED);
        newer.answered(&[], 101, Duration::from_secs(10));
        let newest = newer.measured();
        newer.take_up(&kept);
        assert_eq!(newer.measured(), newest, "what was just measured is newer");

        learned.start_over();
        assert_eq!((learned.measured(), learned.has_refused(Field::Tools)), (None, false));
    }

    #[test]
    fn figures_that_no_server_has_are_not_taken_up() {
        let good = Learned::new(SEED).lock().measured();
        let odd = [
            Measured { chunk_s: -1.0, ..good.clone() },
            Measured { planned_chunk_s: f64::NAN, ..good.clone() },
            Measured { load_s: f64::INFINITY, ..good.clone() },
            Measured { tokens_per_s: 0.0, ..good.clone() },
            Measured { healthy_per_s: Some(1e9), ..good.clone() },
        ];
        for odd in odd {
            let learned = Learned::new(SEED);
            learned.take_up(&odd);
            assert_eq!(learned.measured(), None, "{odd:?}");
        }
        let learned = Learned::new(SEED);
        learned.take_up(&Measured { prefill_cap: 1, ..good });
        assert_eq!(learned.prefill_tokens_max(), PREFILL_TOKENS_MIN, "within its bounds");
    }
}
