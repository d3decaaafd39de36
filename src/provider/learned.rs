//! What a backend has learned about its server: how fast it prefills, decodes and loads, how long
//! a prompt it survives, whether the model is in memory, and which prompt it saw last.
//!
//! Published figures are where learning starts. Token counts are the pessimistic estimates of the
//! budget throughout, so a rate learned in them predicts in them.
//!
//! # Invariants
//! - The longest prompt shrinks by a quarter at each prefill timeout, never below
//!   `PREFILL_TOKENS_MIN`, and grows back only in small steps on success.
//! - The lock is held for arithmetic only, never across an await.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::backend::{ChatRequest, Message};
use super::fault::{Class, Field};
use super::pace::{self, Pace};
use crate::limits::{IDENTITY_TOKENS_MAX, VOLATILE_TOKENS_MAX};

mod measured;
mod refused;

pub use measured::Measured;

/// The longest prompt never shrinks below this, in tokens: the identity block, the date and a
/// short question must fit, or nothing is ever sent that could let it grow again. The slowest
/// published model does this much in 6 s; a device that cannot is faulty, not slow.
pub const PREFILL_TOKENS_MIN: u32 = 320;

const _: () = assert!(IDENTITY_TOKENS_MAX + VOLATILE_TOKENS_MAX + 32 < PREFILL_TOKENS_MIN);

/// Prefill timeouts of short prompts in a row that make a fault of the device.
const STALLS_MAX: u32 = 3;

/// Weight of the newest measurement: three of four show after five answers, one outlier does not.
const NEWEST: f64 = 0.25;

/// Fewest tokens from which a decode rate is measured; fewer are mostly jitter.
const RATE_TOKENS_MIN: u32 = 8;

/// Fewest tokens from which a prefill rate without chunks is measured; below, latency dominates.
const PREFILL_MEASURED_MIN: u32 = 64;

/// Fewest chunks from which it is learned that a chunk takes less than believed. Counts are
/// estimates: of two chunks by the estimate one may be real, and a figure that is half of the truth
/// would end the hold on a slot while the server is still busy. Of four at least three are real.
const CHUNKS_MEASURED_MIN: u32 = 4;

/// Slowest decode rate believed, tokens a second; keeps estimates finite.
const RATE_MIN: f64 = 0.1;

/// Fastest rate believed, tokens a second; simulators answer at once.
const RATE_MAX: f64 = 100_000.0;

/// An answer decoded at less than this share of the known rate is slow. On a healthy device rates
/// vary by less than a hundredth; a heat-throttled one loses half.
const SLOW: f64 = 0.6;

/// Slow answers in a row that make a backend degraded.
const SLOW_ANSWERS_MAX: u32 = 3;

/// Weight of a newest rate below the known one. The known rate must not follow a device down
/// before anybody has noticed.
const NEWEST_SLOWER: f64 = 0.02;

/// Measured time for a chunk over planned time, below which the plan is needlessly short. Token
/// counts are pessimistic by about a third, so a long prompt looks that much quicker than it is.
const PLAN_TOO_SLOW: f64 = 0.6;

/// The same ratio above which the plan is too long: 8 s times this is within the server's 10 s.
const PLAN_TOO_FAST: f64 = 1.15;

/// Shortest load that teaches anything: a loaded model answers a load request at once.
const LOAD_MEASURED_MIN: Duration = Duration::from_millis(500);

/// Where learning starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seed {
    /// Context of the model, in tokens.
    pub context_tokens: u32,
    /// Tokens that are prefilled together; a part of them costs as much as all.
    pub chunk_tokens: u32,
    /// Time for one such chunk.
    pub chunk: Duration,
    /// Decoding, tokens a second.
    pub tokens_per_s: f64,
    /// Loading the model.
    pub load: Duration,
    /// Time for prefill after which the server gives up, less a margin; absent if it never does.
    pub prefill_max: Option<Duration>,
    /// Whether the server reuses any common beginning (Ollama) or only a literal continuation of
    /// the whole last conversation (hailo-ollama).
    pub prefix_cache: bool,
}

/// Learned figures of one backend.
#[derive(Debug)]
pub struct Learned(Mutex<Figures>);

/// Whether the model is in the server's memory, as far as can be known from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loaded {
    No,
    Until(Instant),
    Always,
}

#[derive(Debug)]
struct Figures {
    seed: Seed,
    chunk_s: f64,
    /// The time for a chunk that prompts are planned with; follows `chunk_s` in steps.
    planned_chunk_s: f64,
    tokens_per_s: f64,
    /// The rate of a healthy server, once an answer was measured.
    healthy_per_s: Option<f64>,
    slow_answers: u32,
    load_s: f64,
    prefill_cap: u32,
    stalls: u32,
    loaded: Loaded,
    /// Digests of the messages of the last prompt that was answered completely.
    last: Vec<u64>,
    pace: Pace,
    /// What the model refused, until it is another one.
    refused: Vec<Field>,
}

// === impl Learned ===

impl Learned {
    /// Figures before anything was measured.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self(Mutex::new(Figures::new(seed)))
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Longest prompt, in tokens, that the server is believed to prefill before it gives up.
    #[must_use]
    pub fn prefill_tokens_max(&self) -> u32 {
        self.lock().prefill_tokens_max()
    }

    /// Decoding, tokens a second.
    #[must_use]
    pub fn tokens_per_s(&self) -> f64 {
        self.lock().tokens_per_s
    }

    /// The same, once an answer was long enough to be measured.
    #[must_use]
    pub fn measured_tokens_per_s(&self) -> Option<f64> {
        let figures = self.lock();
        figures.healthy_per_s.map(|_| figures.tokens_per_s)
    }

    /// The rate of a server that is well, once answers were measured.
    #[must_use]
    pub fn healthy_tokens_per_s(&self) -> Option<f64> {
        self.lock().healthy_per_s
    }

    /// How answers arrive.
    #[must_use]
    pub fn pace(&self) -> pace::Figures {
        self.lock().pace.figures()
    }

    /// Notes how an answer arrives.
    pub(super) fn arrives(&self, note: impl FnOnce(&mut Pace)) {
        note(&mut self.lock().pace);
    }

    /// Whether the last answers were all much slower than this server used to be: it is hot, or
    /// shares its device.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.lock().slow_answers >= SLOW_ANSWERS_MAX
    }

    /// Time for a load of the model.
    #[must_use]
    pub fn load_time(&self) -> Duration {
        Duration::from_secs_f64(self.lock().load_s)
    }

    /// From sending to the first token, if `fresh_tokens` of the prompt are not cached.
    #[must_use]
    pub fn first_token_estimate(&self, fresh_tokens: u32, now: Instant) -> Duration {
        let figures = self.lock();
        let load = if figures.is_loaded(now) { 0.0 } else { figures.load_s };
        let chunks = f64::from(figures.chunks(fresh_tokens));
        Duration::from_secs_f64(load + chunks * figures.chunk_s + 1.0 / figures.tokens_per_s)
    }

    /// Whether a request now should find the model in memory.
    #[must_use]
    pub fn is_loaded(&self, now: Instant) -> bool {
        self.lock().is_loaded(now)
    }

    /// The model is in memory; `keep_alive_s` counts from `since`, negative is for ever.
    pub fn loaded(&self, since: Instant, keep_alive_s: i64) {
        self.lock().loaded = match u64::try_from(keep_alive_s) {
            Err(_) => Loaded::Always,
            Ok(seconds) => since
                .checked_add(Duration::from_secs(seconds))
                .map_or(Loaded::Always, Loaded::Until),
        };
    }

    /// A load, or with `loaded` false an unload or a failed load, has ended.
    pub fn load_ended(&self, loaded: bool, began: Instant, keep_alive_s: i64) {
        if loaded {
            self.load_took(began.elapsed());
            self.loaded(began, keep_alive_s);
        } else {
            self.unloaded();
        }
    }

    /// The model is not, or no longer surely, in memory.
    pub fn unloaded(&self) {
        let mut figures = self.lock();
        figures.loaded = Loaded::No;
        figures.last.clear();
    }

    /// A load took this long.
    pub fn load_took(&self, time: Duration) {
        if time >= LOAD_MEASURED_MIN {
            let mut figures = self.lock();
            figures.load_s = blend(figures.load_s, time.as_secs_f64());
        }
    }

    /// A prompt is about to be sent: how many of its tokens the server has to prefill. Until
    /// `answered` the server's cache counts as unknown.
    #[must_use]
    pub fn sending(&self, request: &ChatRequest) -> u32 {
        let mut figures = self.lock();
        let last = std::mem::take(&mut figures.last);
        if !figures.is_loaded(Instant::now()) {
            return request.prompt_tokens;
        }
        let same = request
            .messages
            .iter()
            .zip(&last)
            .take_while(|(message, digest)| digest_of(message) == **digest)
            .count();
        let whole = same == last.len() && same > 0;
        // The answer to the last prompt is in the cache too.
        let cached = if whole { same + 1 } else { same };
        if !whole && !figures.seed.prefix_cache {
            return request.prompt_tokens;
        }
        let cached_tokens: u32 = request.messages.iter().take(cached).map(tokens_of).sum();
        request.prompt_tokens.saturating_sub(cached_tokens).max(1)
    }

    /// The first token of a prompt with `fresh_tokens` came `after` prefill began.
    pub fn first_token(&self, fresh_tokens: u32, after: Duration) {
        let mut figures = self.lock();
        figures.stalls = 0;
        if figures.seed.chunk_tokens == 1 && fresh_tokens < PREFILL_MEASURED_MIN {
            return;
        }
        // The first token's own decoding is no prefill; after one chunk it would be a third of it.
        let prefill_s = (after.as_secs_f64() - 1.0 / figures.tokens_per_s).max(0.0);
        let chunks = figures.chunks(fresh_tokens);
        let chunk_s = prefill_s / f64::from(chunks);
        let measured = figures.seed.chunk_tokens == 1 || chunks >= CHUNKS_MEASURED_MIN;
        // That it is slower shows on short prompts too.
        if measured || chunk_s > figures.chunk_s {
            figures.chunk_s = blend(figures.chunk_s, chunk_s);
            figures.plan();
        }
        if figures.seed.prefill_max.is_some_and(|max| after < max / 2) {
            let grown = figures.prefill_cap.saturating_add(figures.prefill_cap / 20);
            figures.prefill_cap = grown.min(figures.seed.context_tokens);
        }
    }

    /// An answer of `tokens` tokens is complete; the first and the last were `span` apart.
    pub fn answered(&self, request: &[Message], tokens: u32, span: Duration) {
        let mut figures = self.lock();
        figures.last = request.iter().map(digest_of).collect();
        if tokens >= RATE_TOKENS_MIN && !span.is_zero() {
            let rate = f64::from(tokens - 1) / span.as_secs_f64();
            figures.decoded_at(rate.clamp(RATE_MIN, RATE_MAX));
        }
    }

    /// The server gave up on prefill. Returns the class of the fault: short prompts that fail
    /// again and again are the device's fault, not the prompt's.
    pub fn prefill_timed_out(&self, prompt_tokens: u32) -> Class {
        let mut figures = self.lock();
        let mut failed = figures.prefill_tokens_max();
        if prompt_tokens < PREFILL_TOKENS_MIN {
            figures.stalls += 1;
        } else {
            figures.stalls = 0;
            failed = failed.min(prompt_tokens);
        }
        figures.prefill_cap = (failed - failed / 4).max(PREFILL_TOKENS_MIN);
        if figures.stalls >= STALLS_MAX { Class::DeviceFault } else { Class::PrefillTimeout }
    }
}

impl Figures {
    fn new(seed: Seed) -> Self {
        Self {
            chunk_s: seed.chunk.as_secs_f64(),
            planned_chunk_s: seed.chunk.as_secs_f64(),
            tokens_per_s: seed.tokens_per_s.clamp(RATE_MIN, RATE_MAX),
            healthy_per_s: None,
            slow_answers: 0,
            load_s: seed.load.as_secs_f64(),
            prefill_cap: seed.context_tokens,
            stalls: 0,
            loaded: Loaded::No,
            last: Vec::new(),
            pace: Pace::default(),
            refused: Vec::new(),
            seed,
        }
    }

    fn decoded_at(&mut self, rate: f64) {
        self.tokens_per_s = blend(self.tokens_per_s, rate);
        let healthy = self.healthy_per_s.unwrap_or(rate);
        let slow = rate < SLOW * healthy;
        self.slow_answers = if slow { self.slow_answers.saturating_add(1) } else { 0 };
        let weight = if rate < healthy { NEWEST_SLOWER } else { NEWEST };
        self.healthy_per_s = Some(healthy + weight * (rate - healthy));
    }

    fn is_loaded(&self, now: Instant) -> bool {
        match self.loaded {
            Loaded::No => false,
            Loaded::Until(end) => now < end,
            Loaded::Always => true,
        }
    }

    /// Plans with what was measured, once it is far enough from the plan: a bound that follows
    /// every measurement moves the window of past turns, and each move costs a whole prefill.
    fn plan(&mut self) {
        let ratio = self.chunk_s / self.planned_chunk_s.max(1e-9);
        if !(PLAN_TOO_SLOW..=PLAN_TOO_FAST).contains(&ratio) {
            self.planned_chunk_s = self.chunk_s;
        }
    }

    fn chunks(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.seed.chunk_tokens.max(1)).max(1)
    }

    /// floor(budget / time of a chunk) chunks. A chunk never counts as less than half of what is
    /// published: a continuation that we did not recognise looks like a miracle of speed.
    fn prefill_tokens_max(&self) -> u32 {
        let by_time = self.seed.prefill_max.map_or(u32::MAX, |budget| {
            let chunk_s = self.planned_chunk_s.max(self.seed.chunk.as_secs_f64() / 2.0).max(1e-6);
            let chunks = (budget.as_secs_f64() / chunk_s).floor();
            // A float cast saturates; no prompt has that many chunks.
            (chunks as u32).saturating_mul(self.seed.chunk_tokens)
        });
        by_time.min(self.prefill_cap).clamp(PREFILL_TOKENS_MIN, u32::MAX)
    }
}

/// Pessimistic tokens of one message, as the budget counts them.
fn tokens_of(message: &Message) -> u32 {
    u32::try_from(message.content.len() / 3 + 8).unwrap_or(u32::MAX)
}

fn digest_of(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.role.as_str().hash(&mut hasher);
    message.content.hash(&mut hasher);
    hasher.finish()
}

fn blend(old: f64, new: f64) -> f64 {
    old + NEWEST * (new - old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::backend::{Role, Sampling};
    use crate::provider::fake::SEED;

    fn request(texts: &[&str]) -> ChatRequest {
        let roles = [Role::System, Role::User, Role::Assistant];
        let messages: Vec<Message> = texts
            .iter()
            .enumerate()
            .map(|(i, text)| {
                let role = roles[if i == 0 { 0 } else { 2 - i % 2 }];
                Message { role, content: (*text).to_owned() }
            })
            .collect();
        ChatRequest {
            prompt_tokens: messages.iter().map(tokens_of).sum(),
            messages,
            num_predict: 1,
            sampling: Sampling::default(),
            schema: None,
            tools: vec![],
        }
    }

    #[test]
    fn the_longest_prompt_follows_from_the_ten_second_rule() {
        // floor(8 / 0.37) = 21 chunks of 96, within the context.
        assert_eq!(Learned::new(SEED).prefill_tokens_max(), 2016);
        let slow = Seed { chunk: Duration::from_millis(1470), ..SEED };
        assert_eq!(Learned::new(slow).prefill_tokens_max(), 5 * 96);
        let never = Seed { prefill_max: None, context_tokens: 4096, ..SEED };
        assert_eq!(Learned::new(never).prefill_tokens_max(), 4096);
    }

    #[test]
    fn a_prefill_timeout_shrinks_the_longest_prompt_by_a_quarter_but_not_for_ever() {
        let learned = Learned::new(SEED);
        assert_eq!(learned.prefill_timed_out(1000), Class::PrefillTimeout);
        assert_eq!(learned.prefill_tokens_max(), 750);
        for _ in 0..20 {
            learned.prefill_timed_out(1000);
        }
        assert_eq!(learned.prefill_tokens_max(), PREFILL_TOKENS_MIN);
        learned.first_token(96, Duration::from_millis(370));
        assert_eq!(learned.prefill_tokens_max(), 336, "success gives a little back");
    }

    /// The first token's own decoding, at the seed's rate.
    const FIRST_DECODED: Duration = Duration::from_millis(144);

    #[test]
    fn the_longest_prompt_does_not_follow_every_measurement() {
        let learned = Learned::new(Seed { chunk: Duration::from_millis(620), ..SEED });
        for turn in 0..40 {
            // A whole prompt looks a third quicker than it is, a short one a little slower.
            let (tokens, chunks) = if turn % 8 == 0 { (96 * 12, 8) } else { (96, 1) };
            learned.first_token(tokens, Duration::from_millis(640) * chunks + FIRST_DECODED);
            assert_eq!(learned.prefill_tokens_max(), 12 * 96, "turn {turn}");
        }
        for _ in 0..10 {
            learned.first_token(96, Duration::from_millis(900) + FIRST_DECODED);
        }
        assert!(learned.prefill_tokens_max() <= 10 * 96, "a device that slowed down is believed");
    }

    #[test]
    fn a_short_prompt_teaches_that_the_device_is_slow_and_not_that_it_is_quick() {
        let chunk = Duration::from_millis(370);
        let estimate = |learned: &Learned| learned.first_token_estimate(10 * 96, Instant::now());
        let learned = Learned::new(SEED);
        let published = estimate(&learned);
        for _ in 0..20 {
            // Two chunks by the estimate, one in truth.
            learned.first_token(2 * 96, chunk + FIRST_DECODED);
        }
        assert_eq!(estimate(&learned), published);
        for _ in 0..20 {
            learned.first_token(2 * 96, chunk * 4 + FIRST_DECODED);
        }
        assert!(estimate(&learned) > published + chunk * 9, "twice as slow");
        for _ in 0..40 {
            learned.first_token(10 * 96, chunk * 5 + FIRST_DECODED);
        }
        assert!(estimate(&learned) < published - chunk * 4, "a long prompt teaches both");
    }

    #[test]
    fn three_short_prompts_in_a_row_are_the_devices_fault() {
        let learned = Learned::new(SEED);
        assert_eq!(learned.prefill_timed_out(100), Class::PrefillTimeout);
        assert_eq!(learned.prefill_timed_out(PREFILL_TOKENS_MIN - 1), Class::PrefillTimeout);
        assert_eq!(learned.prefill_timed_out(100), Class::DeviceFault);
        learned.first_token(96, Duration::from_millis(370));
        assert_eq!(learned.prefill_timed_out(100), Class::PrefillTimeout, "success starts anew");
        learned.prefill_timed_out(100);
        learned.prefill_timed_out(PREFILL_TOKENS_MIN);
        assert_eq!(learned.prefill_timed_out(100), Class::PrefillTimeout, "not in a row");
    }

    #[tokio::test(start_paused = true)]
    async fn the_estimate_counts_the_load_only_while_the_model_is_out() {
        let learned = Learned::new(SEED);
        let start = Instant::now();
        let cold = learned.first_token_estimate(100, start);
        learned.loaded(start, 300);
        let warm = learned.first_token_estimate(100, start);
        assert_eq!(cold - warm, Duration::from_secs(8));
        assert_eq!(warm.as_millis(), 2 * 370 + 142);
        assert!(!learned.is_loaded(start + Duration::from_secs(300)));
        learned.loaded(start, -1);
        assert!(learned.is_loaded(start + Duration::from_secs(86_400)));
        learned.unloaded();
        assert!(!learned.is_loaded(start));
    }

    #[test]
    fn rates_move_towards_what_is_measured_and_ignore_short_answers() {
        let learned = Learned::new(SEED);
        for _ in 0..40 {
            learned.answered(&[], 31, Duration::from_secs(10));
            learned.first_token(96 * 4, Duration::from_secs(2));
            learned.load_took(Duration::from_secs(4));
        }
        assert!((learned.tokens_per_s() - 3.0).abs() < 0.01);
        assert!((learned.load_time().as_secs_f64() - 4.0).abs() < 0.01);
        let why = "it stepped down while the first token's decoding was still taken for quick, and \
                   0.417 s a chunk is too near to that for another step";
        assert_eq!(learned.prefill_tokens_max(), 18 * 96, "{why}");
        learned.answered(&[], 2, Duration::from_millis(1));
        learned.answered(&[], 100, Duration::ZERO);
        learned.load_took(Duration::from_millis(2));
        assert!((learned.tokens_per_s() - 3.0).abs() < 0.01);
    }

    #[test]
    fn three_slow_answers_in_a_row_are_a_degraded_server() {
        let learned = Learned::new(SEED);
        let answer = |per_s: u64| {
            learned.answered(&[], 21, Duration::from_millis(20_000 / per_s));
            learned.is_degraded()
        };
        assert_eq!(learned.measured_tokens_per_s(), None);
        assert!(!answer(8), "slower than published is not degraded");
        assert!(learned.measured_tokens_per_s().is_some());
        assert_eq!([answer(4), answer(4), answer(8)], [false; 3], "not in a row");
        assert_eq!([answer(4), answer(4), answer(4), answer(4)], [false, false, true, true]);
        assert!(!answer(8), "and it recovers");
    }

    #[test]
    fn only_a_literal_continuation_is_cached_unless_the_server_reuses_prefixes() {
        for prefix_cache in [false, true] {
            let learned = Learned::new(Seed { prefix_cache, ..SEED });
            learned.loaded(Instant::now(), -1);
            let first = request(&["system", "one"]);
            assert_eq!(learned.sending(&first), first.prompt_tokens);
            learned.answered(&first.messages, 1, Duration::ZERO);
            let next = request(&["system", "one", "answer", "two"]);
            assert_eq!(learned.sending(&next), 9, "the newest message alone");
            assert_eq!(learned.sending(&next), next.prompt_tokens, "unknown until answered");
            learned.answered(&next.messages, 1, Duration::ZERO);
            let other = request(&["system", "three"]);
            let want = if prefix_cache { 9 } else { other.prompt_tokens };
            assert_eq!(learned.sending(&other), want);
        }
    }
}
