//! The models of hailo-ollama as data: names by release, sizes, and the speeds Hailo publishes.
//!
//! Source: Hailo's model table for 5.1.1 and for the 5.3/5.4 line. All are A8W4 with a context of
//! [`CONTEXT_TOKENS`]. That the published time to first token is the time of one prefill chunk is
//! our reading, supported by first-hand reports of 0.38 s for one chunk and 1.1 s for three.

use std::str::FromStr;

/// Context of every model in tokens, prompt and answer together; fixed in the compiled model.
pub const CONTEXT_TOKENS: u32 = 2048;

/// Tokens which prefill processes at once; a last partial chunk costs a whole one.
pub const PREFILL_CHUNK_TOKENS: u32 = 96;

/// The server gives up when no token came 10 s after prefill began. We plan for 8 s, so that a
/// slow device has a fifth in hand.
const PREFILL_BUDGET_MS: u32 = 8_000;

/// A release of hailo-ollama whose behaviour is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// What the Raspberry Pi documentation installs.
    V5_1_1,
    /// April 2026.
    V5_3,
    /// August 2026.
    V5_4,
}

impl Release {
    /// All of them, the oldest first.
    pub const ALL: [Self; 3] = [Self::V5_1_1, Self::V5_3, Self::V5_4];

    /// The name used on command lines and in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V5_1_1 => "v5_1_1",
            Self::V5_3 => "v5_3",
            Self::V5_4 => "v5_4",
        }
    }
}

impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|release| release.name() == text);
        known.ok_or(format!("{text:?} is none of: v5_1_1, v5_3, v5_4"))
    }
}

/// How a model shows its thinking in `content`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// It answers at once.
    None,
    /// The template opens `<think>` in the prompt: the output has only `</think>`.
    StartsInside,
    /// The output may begin with `<think>…</think>`.
    Tagged,
}

/// One model of one release.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The exact name the server knows.
    pub name: &'static str,
    /// Family as `/api/tags` gives it.
    pub family: &'static str,
    /// Size in parameters as `/api/tags` gives it.
    pub parameter_size: &'static str,
    /// Size of the compiled model in bytes.
    pub size_bytes: u64,
    /// Time to load it into the device, in ms.
    pub load_ms: u32,
    /// Time of one prefill chunk, in ms.
    pub chunk_ms: u32,
    /// Decoding rate in thousandths of a token per second.
    pub tokens_per_1000_s: u32,
    /// How it shows its thinking.
    pub thinking: Thinking,
}

impl Model {
    /// Decoding rate in tokens per second.
    #[must_use]
    pub fn tokens_per_s(&self) -> f64 {
        f64::from(self.tokens_per_1000_s) / 1000.0
    }

    /// Time of one decoded token in µs.
    #[must_use]
    pub fn token_us(&self) -> u64 {
        1_000_000_000 / u64::from(self.tokens_per_1000_s)
    }

    /// Time in ms to prefill `tokens`: whole chunks, at least one.
    #[must_use]
    pub fn prefill_ms(&self, tokens: u32) -> u64 {
        u64::from(tokens.div_ceil(PREFILL_CHUNK_TOKENS).max(1)) * u64::from(self.chunk_ms)
    }

    /// Longest prompt in tokens which prefill finishes within the planned 8 s.
    #[must_use]
    pub fn max_prefill_tokens(&self) -> u32 {
        (PREFILL_BUDGET_MS / self.chunk_ms * PREFILL_CHUNK_TOKENS).min(CONTEXT_TOKENS)
    }
}

macro_rules! model {
    ($name:literal, $family:literal, $parameters:literal, $size:literal, $load:literal,
     $chunk:literal, $rate:literal, $thinking:ident) => {
        Model {
            name: $name,
            family: $family,
            parameter_size: $parameters,
            size_bytes: $size,
            load_ms: $load,
            chunk_ms: $chunk,
            tokens_per_1000_s: $rate,
            thinking: Thinking::$thinking,
        }
    };
}

/// 5.1.1. Its table gives DeepSeek and the 3B model the same load and first token; the former is
/// probably a slip of theirs and kept as published.
const V5_1_1: [Model; 5] = [
    model!("qwen2:1.5b", "qwen2", "1.5B", 1_678_181_695, 7_370, 320, 8_180, None),
    model!("qwen2.5-instruct:1.5b", "qwen2", "1.5B", 1_760_936_591, 8_450, 370, 6_950, None),
    model!("qwen2.5-coder:1.5b", "qwen2", "1.5B", 1_760_936_591, 7_600, 320, 8_150, None),
    model!(
        "deepseek_r1_distill_qwen:1.5b",
        "qwen2",
        "1.5B",
        2_544_768_123,
        12_610,
        1_470,
        7_030,
        StartsInside
    ),
    model!("llama3.2:3b", "llama", "3B", 3_360_812_005, 12_610, 1_470, 2_670, None),
];

/// 5.3 and 5.4.
const V5_3: [Model; 6] = [
    model!("qwen2:1.5b", "qwen2", "1.5B", 1_678_181_695, 3_660, 320, 8_060, None),
    model!("qwen2.5:1.5b", "qwen2", "1.5B", 1_760_936_591, 5_170, 370, 7_350, None),
    model!("qwen2.5-coder:1.5b", "qwen2", "1.5B", 1_760_936_591, 4_750, 320, 8_130, None),
    model!("deepseek_r1:1.5b", "qwen2", "1.5B", 2_544_768_123, 4_990, 730, 7_960, StartsInside),
    model!("llama3.2:1b", "llama", "1B", 1_922_047_869, 3_470, 350, 9_890, None),
    model!("qwen3:1.7b", "qwen3", "1.7B", 1_922_047_869, 6_750, 620, 4_780, Tagged),
];

/// Names of the same weights in hailo-ollama's releases and in Ollama, one group a line.
const ALIASES: [&[&str]; 7] = [
    &["qwen2.5:1.5b", "qwen2.5-instruct:1.5b", "qwen2.5:1.5b-instruct"],
    &["qwen2:1.5b", "qwen2:1.5b-instruct"],
    &["qwen2.5-coder:1.5b", "qwen2.5-coder:1.5b-instruct"],
    &["deepseek_r1:1.5b", "deepseek_r1_distill_qwen:1.5b", "deepseek-r1:1.5b"],
    &["llama3.2:1b", "llama3.2:1b-instruct"],
    &["llama3.2:3b", "llama3.2:3b-instruct"],
    &["qwen3:1.7b"],
];

/// The models of a release, in the order of Hailo's table.
#[must_use]
pub fn table(release: Release) -> &'static [Model] {
    match release {
        Release::V5_1_1 => &V5_1_1,
        Release::V5_3 | Release::V5_4 => &V5_3,
    }
}

/// All names of the model called `name`, itself included; empty when the name is unknown.
#[must_use]
pub fn aliases(name: &str) -> &'static [&'static str] {
    ALIASES.iter().copied().find(|group| group.contains(&name)).unwrap_or_default()
}

/// The published row of a model under any of its names, the newest release first.
#[must_use]
pub fn published(name: &str) -> Option<&'static Model> {
    let rows = || V5_3.iter().chain(&V5_1_1);
    rows().find(|row| row.name == name).or_else(|| {
        let names = aliases(name);
        rows().find(|row| names.contains(&row.name))
    })
}

/// Longest prompt in tokens that can be sent without running into the server's 10 s rule:
/// `floor(8 s / chunk) * 96`, at most the context. A name nobody published gets the smallest
/// limit of all, because too short a prompt is answered and too long a one is cut off.
#[must_use]
pub fn max_prefill_tokens(name: &str) -> u32 {
    published(name).map_or_else(
        || {
            let all = V5_3.iter().chain(&V5_1_1).map(Model::max_prefill_tokens);
            all.min().unwrap_or(PREFILL_CHUNK_TOKENS)
        },
        Model::max_prefill_tokens,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_name_belongs_to_one_alias_group_and_finds_its_row() {
        for row in V5_3.iter().chain(&V5_1_1) {
            let groups = ALIASES.iter().filter(|group| group.contains(&row.name)).count();
            assert_eq!(groups, 1, "{}", row.name);
            assert_eq!(published(row.name).unwrap().name, row.name);
        }
    }

    #[test]
    fn prefill_limits_follow_the_published_chunk() {
        for (name, tokens) in [
            ("qwen2:1.5b", 2048),
            ("qwen2.5:1.5b", 2016),
            ("qwen2.5:1.5b-instruct", 2016),
            ("qwen3:1.7b", 1152),
            ("deepseek_r1:1.5b", 960),
            ("deepseek_r1_distill_qwen:1.5b", 480),
            ("llama3.2:3b", 480),
            ("a-model-of-tomorrow:9b", 480),
        ] {
            assert_eq!(max_prefill_tokens(name), tokens, "{name}");
        }
    }

    #[test]
    fn a_partial_chunk_costs_a_whole_one() {
        let qwen = published("qwen2.5:1.5b").unwrap();
        for (tokens, ms) in [(0, 370), (1, 370), (96, 370), (97, 740), (288, 1110)] {
            assert_eq!(qwen.prefill_ms(tokens), ms, "{tokens}");
        }
        assert_eq!(qwen.token_us(), 136_054);
    }

    #[test]
    fn an_unknown_name_has_no_aliases() {
        assert!(aliases("nope:1b").is_empty());
        assert!(published("nope:1b").is_none());
        assert!(aliases("qwen2.5-instruct:1.5b").contains(&"qwen2.5:1.5b"));
    }
}
