//! The end of a turn, as a happening.

use serde::Serialize;

/// How a turn ended and what it came to. Figures are absent where nothing was answered or the
/// server does not count.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TurnEnd {
    /// Its session.
    pub session: String,
    /// Its number.
    pub turn: u64,
    /// `done`, `error`, `cancelled` or `interrupted`.
    pub outcome: &'static str,
    /// Which backend answered.
    pub backend: Option<String>,
    /// Tokens of the prompt, as the server counted.
    pub prompt_tokens: Option<u32>,
    /// Tokens decoded, as the server counted.
    pub tokens: Option<u32>,
    /// From acceptance to the first word, in milliseconds; absent if none was shown.
    pub first_word_ms: Option<u64>,
    /// From acceptance to the end, in milliseconds.
    pub elapsed_ms: Option<u64>,
}
