//! Token counts, estimated pessimistically (pure).

use super::backend::Message;

/// Tokens of one message.
#[must_use]
pub fn message_tokens(content: &str) -> u32 {
    u32::try_from(content.len().div_ceil(3)).unwrap_or(u32::MAX).saturating_add(8)
}

/// Tokens of a prompt.
#[must_use]
pub fn prompt_tokens(messages: &[Message]) -> u32 {
    messages.iter().map(|m| message_tokens(&m.content)).fold(0, u32::saturating_add)
}
