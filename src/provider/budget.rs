//! Pessimistic token counts, so that no request ever exceeds a context (pure).
//!
//! The tokenizers of the servers are not asked: a byte-pair vocabulary spends at least about three
//! bytes of text on a token, and a chat template adds a few tokens around each message. The
//! formula, bytes / 3 + 8 for each message, is the provider specification's section 5A.3.

use super::backend::Message;

/// Tokens that a chat template adds around one message.
const TEMPLATE_TOKENS: u32 = 8;

/// Bytes of text that become at least one token.
const BYTES_PER_TOKEN: usize = 3;

/// Tokens of a piece of text without a message around it, rounded up.
#[must_use]
pub fn estimate_tokens(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

/// Tokens of a message with this content.
#[must_use]
pub fn message_tokens(content: &str) -> u32 {
    estimate_tokens(content).saturating_add(TEMPLATE_TOKENS)
}

/// Tokens of a whole prompt.
#[must_use]
pub fn prompt_tokens(messages: &[Message]) -> u32 {
    messages.iter().fold(0, |sum: u32, m| sum.saturating_add(message_tokens(&m.content)))
}

/// Bytes of content a message may have to be counted as at most `tokens`. Inverse of
/// [`message_tokens`]; 0 also when not even an empty message fits.
#[must_use]
pub fn content_bytes(tokens: u32) -> usize {
    usize::try_from(tokens.saturating_sub(TEMPLATE_TOKENS))
        .unwrap_or(usize::MAX)
        .saturating_mul(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::backend::Role;

    #[test]
    fn estimates_round_up_and_count_the_template() {
        for (text, alone, message) in
            [("", 0, 8), ("a", 1, 9), ("abc", 1, 9), ("abcd", 2, 10), ("ü你", 2, 10)]
        {
            assert_eq!(estimate_tokens(text), alone, "{text:?}");
            assert_eq!(message_tokens(text), message, "{text:?}");
        }
        let one = Message { role: Role::User, content: "abcd".into() };
        assert_eq!(prompt_tokens(&[one.clone(), one]), 20);
    }

    #[test]
    fn content_bytes_is_the_largest_that_fits() {
        for tokens in 8..200 {
            let bytes = content_bytes(tokens);
            assert!(message_tokens(&"x".repeat(bytes)) <= tokens);
            assert!(message_tokens(&"x".repeat(bytes + 1)) > tokens);
        }
        assert_eq!(content_bytes(3), 0);
    }
}
