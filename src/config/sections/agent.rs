//! Sections `agent` and `memory`: how answers are made and what the model sees (pure).

use crate::config::key::{AnyKey, Key};
use crate::config::values::Values;
use crate::limits::{
    CONTEXT_MARGIN_TOKENS, HAILO_CONTEXT_TOKENS, IDENTITY_TOKENS_MAX, VOLATILE_TOKENS_MAX,
};

/// Most tokens an answer may take: half of the NPU's context, so that the other half holds the
/// identity block and some of the conversation.
const ANSWER_TOKENS_MAX: u32 = HAILO_CONTEXT_TOKENS / 2;

const _: () = assert!(
    IDENTITY_TOKENS_MAX + VOLATILE_TOKENS_MAX + CONTEXT_MARGIN_TOKENS
        < HAILO_CONTEXT_TOKENS - ANSWER_TOKENS_MAX
);

/// Length of an answer.
pub const ANSWER_TOKENS: Key<u32> = Key::count(
    "agent.answer_tokens_max",
    320,
    (16, ANSWER_TOKENS_MAX),
    "tokens",
    "Longest answer. The NPU decodes 7 to 8 tokens a second, so 320 take some 40 seconds, and \
     what is kept free for the answer is not there for the conversation.",
)
.live();

/// Randomness.
pub const TEMPERATURE: Key<Option<f64>> = Key::maybe_number(
    "agent.temperature",
    (0.0, 2.0),
    "Randomness of the wording; 0 is none. null: the model's own.",
)
.live();

/// Nucleus sampling.
pub const TOP_P: Key<Option<f64>> = Key::maybe_number(
    "agent.top_p",
    (0.01, 1.0),
    "Share of likely tokens to choose from. null: the model's own.",
)
.live();

/// Number of choices.
pub const TOP_K: Key<Option<u32>> = Key::maybe_count(
    "agent.top_k",
    (1, 1000),
    "tokens",
    "Number of likely tokens to choose from. null: the model's own.",
)
.live();

/// Turns the model sees.
pub const STM_MAX_TURNS: Key<u32> = Key::count(
    "memory.stm_max_turns",
    24,
    (1, 200),
    "turns",
    "Most turns of the conversation that the model sees. It sees fewer when they do not fit \
     into its context. All turns stay in the database.",
)
.live();

/// The section `agent`.
pub const KEYS: &[&dyn AnyKey] = &[&ANSWER_TOKENS, &TEMPERATURE, &TOP_P, &TOP_K];

/// The section `memory`.
pub const MEMORY_KEYS: &[&dyn AnyKey] = &[&STM_MAX_TURNS];

/// Settings of the section `agent`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agent {
    /// Longest answer, in tokens.
    pub answer_tokens_max: u32,
    /// Randomness; absent is the model's own.
    pub temperature: Option<f32>,
    /// Nucleus sampling; absent is the model's own.
    pub top_p: Option<f32>,
    /// Number of choices, at least 1; absent is the model's own.
    pub top_k: Option<u32>,
}

impl Agent {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            answer_tokens_max: values.get(&ANSWER_TOKENS),
            temperature: values.get(&TEMPERATURE).map(|temperature| temperature as f32),
            top_p: values.get(&TOP_P).map(|top_p| top_p as f32),
            top_k: values.get(&TOP_K),
        }
    }
}

/// Settings of the section `memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Most turns the model sees.
    pub stm_max_turns: u32,
}

impl Memory {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self { stm_max_turns: values.get(&STM_MAX_TURNS) }
    }
}
