//! Choosing the next token (pure): the usual filters, from a seed.

use crate::provider::backend::Sampling;

/// How many of the latest tokens are discouraged from coming again: without it a small model
/// says one sentence for ever.
const REPEAT_WINDOW: usize = 64;

/// By how much: the customary value, weak enough for names and numbers to be repeated.
const REPEAT_PENALTY: f32 = 1.1;

/// Where nothing is asked for: a small model wanders off above this.
const TEMPERATURE: f32 = 0.3;

/// Where nothing is asked for.
const TOP_P: f32 = 0.9;

/// Where nothing is asked for; also the most that is ever sorted.
const TOP_K: usize = 40;

/// A chooser for one answer.
pub(crate) struct Chooser {
    temperature: f32,
    top_p: f32,
    top_k: usize,
    repeat_penalty: f32,
    random: fastrand::Rng,
}

impl Chooser {
    /// As asked; structured answers are greedy and may repeat what they must.
    pub(crate) fn new(sampling: Sampling, structured: bool) -> Self {
        let random = sampling
            .seed
            .map_or_else(fastrand::Rng::new, |seed| fastrand::Rng::with_seed(u64::from(seed)));
        let top_k = sampling.top_k.and_then(|k| usize::try_from(k).ok()).unwrap_or(TOP_K);
        Self {
            temperature: if structured { 0.0 } else { sampling.temperature.unwrap_or(TEMPERATURE) },
            top_p: sampling.top_p.unwrap_or(TOP_P),
            top_k: top_k.max(1),
            repeat_penalty: if structured { 1.0 } else { REPEAT_PENALTY },
            random,
        }
    }

    /// Chooses by what may come and what came. Impossible tokens have negative infinity.
    pub(crate) fn choose(&mut self, logits: &mut [f32], came: &[u32]) -> u32 {
        let mut recent = came[came.len().saturating_sub(REPEAT_WINDOW)..].to_vec();
        recent.sort_unstable();
        recent.dedup();
        for token in recent {
            if let Some(logit) = logits.get_mut(token as usize) {
                let penalty = self.repeat_penalty;
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
        let mut best: Vec<(f32, u32)> = logits.iter().copied().zip(0..).collect();
        let by_logit = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if self.temperature <= 0.0 {
            return best.into_iter().min_by(by_logit).map_or(0, |(_, token)| token);
        }
        if best.len() > self.top_k {
            best.select_nth_unstable_by(self.top_k, by_logit);
            best.truncate(self.top_k);
        }
        best.sort_unstable_by(by_logit);
        let largest = best.first().map_or(0.0, |(logit, _)| *logit);
        let mut total = 0.0;
        for (logit, _) in &mut best {
            *logit = ((*logit - largest) / self.temperature).exp();
            total += *logit;
        }
        let mut kept = 0.0;
        let enough = self.top_p * total;
        let nucleus = best.iter().position(|(weight, _)| {
            kept += weight;
            kept >= enough
        });
        best.truncate(nucleus.map_or(best.len(), |last| last + 1));
        let mut point = self.random.f32() * kept.min(total);
        for (weight, token) in &best {
            point -= weight;
            if point <= 0.0 {
                return *token;
            }
        }
        best.last().map_or(0, |(_, token)| *token)
    }
}
