//! A prompt before it is fitted to a backend, and the arithmetic of fitting (pure).
//!
//! The provider never cuts a conversation. It asks whoever owns it to fit it to the budget of the
//! backend that is about to be tried, and asks again when it falls back to another one.

use std::sync::Arc;

use super::backend::{Capacity, ChatRequest, Message};
use super::budget;
use crate::limits;

/// Share of the context that an answer may take at most: a question needs room too.
const ANSWER_SHARE: u32 = 2;

/// A conversation that can be fitted to a budget, again and again.
pub trait Prompt: Send + Sync {
    /// Messages whose estimate is at most `prompt_tokens_max`: system first, newest question
    /// last, whole old turns left out, the newest message clipped only if it alone is too long.
    ///
    /// # Errors
    /// `NoRoom` if not even a clipped message fits beside what must stand in every prompt.
    fn fit(&self, prompt_tokens_max: u32) -> Result<Fitted, NoRoom>;
}

/// A backend's context is too small for the conversation's fixed part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoRoom(pub String);

/// A fitted conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The messages.
    pub messages: Vec<Message>,
    /// The newest message as it is sent, if it had to be clipped.
    pub clipped: Option<String>,
    /// The backends whose complete answers are among the messages, as far as is known: what one
    /// of them was asked last may be something that another one answered in the end.
    pub voices: Vec<Arc<str>>,
}

/// How a context is divided for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Tokens for the prompt.
    pub prompt_tokens_max: u32,
    /// Tokens for the answer.
    pub num_predict: u32,
}

impl Share {
    /// Divides a context. `answer_tokens` is the wish; small contexts give at most half of it.
    #[must_use]
    pub fn of(capacity: Capacity, answer_tokens: u32) -> Self {
        let usable = capacity.context_tokens.saturating_sub(limits::CONTEXT_MARGIN_TOKENS);
        let num_predict = answer_tokens.min(usable / ANSWER_SHARE).max(1);
        let prompt_tokens_max = usable.saturating_sub(num_predict).min(capacity.prefill_tokens_max);
        Self { prompt_tokens_max, num_predict }
    }
}

/// The proof that goes with every request: prompt + answer <= context - margin, and the prompt
/// is one the server can prefill before it gives up.
#[must_use]
pub fn fits(request: &ChatRequest, capacity: Capacity) -> bool {
    let prompt = budget::prompt_tokens(&request.messages);
    prompt == request.prompt_tokens
        && prompt <= capacity.prefill_tokens_max
        && prompt.saturating_add(request.num_predict)
            <= capacity.context_tokens.saturating_sub(limits::CONTEXT_MARGIN_TOKENS)
        && request.num_predict >= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_share_never_exceeds_the_context(
            context_tokens in 0_u32..200_000,
            prefill_tokens_max in 0_u32..200_000,
            answer_tokens in 0_u32..10_000,
        ) {
            let capacity = Capacity { context_tokens, prefill_tokens_max };
            let share = Share::of(capacity, answer_tokens);
            prop_assert!(share.num_predict >= 1);
            if context_tokens > limits::CONTEXT_TOKENS_MIN {
                let sum = share.prompt_tokens_max + share.num_predict;
                prop_assert!(sum <= context_tokens - limits::CONTEXT_MARGIN_TOKENS);
                prop_assert!(share.prompt_tokens_max <= prefill_tokens_max);
            }
        }
    }
}
