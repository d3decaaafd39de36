//! Pessimistic token counts, so that no request ever exceeds a context (pure).
//!
//! The tokenizers of the servers are not asked. A byte-pair vocabulary spends at least about three
//! bytes of prose on a token, and a chat template adds a few tokens around each message: bytes / 3
//! and 8 for each message is the provider specification's section 5A.3. That is not pessimistic for
//! text that is no prose (digits are a token each in the Qwen family, one-letter words one each,
//! an emoji several), so text is also counted by what its characters cost at least, and the larger
//! count stands.

use super::backend::Message;

/// Tokens that a chat template adds around one message.
const TEMPLATE_TOKENS: u32 = 8;

/// Bytes of prose that become at least one token.
const BYTES_PER_TOKEN: usize = 3;

/// Words cost at least this on average, in tenths of a token: some are split. The simulators count
/// the same.
const WORD_TENTHS: usize = 13;

/// Tokens of a piece of text without a message around it, rounded up.
#[must_use]
pub fn estimate_tokens(text: &str) -> u32 {
    let prose = text.len().saturating_mul(10).div_ceil(BYTES_PER_TOKEN);
    let words = text.split_whitespace().count().saturating_mul(WORD_TENTHS);
    let tenths = prose.max(words).max(character_tenths(text));
    u32::try_from(tenths.div_ceil(10)).unwrap_or(u32::MAX)
}

/// What the characters cost, in tenths of a token.
fn character_tenths(text: &str) -> usize {
    let mut tenths = 0_usize;
    let mut letters = 0_usize;
    let mut after_space = true;
    for letter in text.chars() {
        if letter.is_ascii_alphabetic() {
            letters += 1;
            after_space = false;
            continue;
        }
        tenths += word_tenths(std::mem::take(&mut letters));
        let space = letter == ' ';
        tenths += match letter {
            // A space belongs to the word behind it; only runs of them cost.
            ' ' if !after_space => 0,
            ' ' => 4,
            _ if letter.is_ascii() => 10,
            // Letters of alphabets beyond ASCII, in pairs and more.
            '\u{80}'..='\u{7ff}' => 7,
            // Scripts of India and South-East Asia, which most vocabularies spell in bytes.
            '\u{800}'..='\u{1fff}' => 20,
            '\u{2000}'..='\u{ffff}' => 12,
            _ => 30,
        };
        after_space = space;
    }
    tenths + word_tenths(letters)
}

fn word_tenths(letters: usize) -> usize {
    if letters == 0 { 0 } else { (letters * 10).div_ceil(BYTES_PER_TOKEN).max(10) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::backend::Role;

    #[test]
    fn estimates_round_up_and_count_the_template() {
        for (text, alone) in [
            ("", 0),
            ("a", 2),
            ("abc", 2),
            ("abcdef", 2),
            ("internationalisation", 7),
            ("ordinary prose is counted by its bytes", 13),
            ("ü你", 2),
        ] {
            assert_eq!(estimate_tokens(text), alone, "{text:?}");
            assert_eq!(message_tokens(text), alone + 8, "{text:?}");
        }
        let one = Message { role: Role::User, content: "abcdef".into() };
        assert_eq!(prompt_tokens(&[one.clone(), one]), 20);
    }

    /// Counts of the Qwen 2.5 tokenizer's rules: a digit is a token, so is a letter that stands
    /// alone; an emoji outside the common ones takes up to three.
    #[test]
    fn text_that_is_no_prose_is_not_underestimated() {
        for (text, real) in [
            ("1234567890".repeat(20), 200),
            ("a b c d e f g h ".repeat(10), 80),
            ("{}[]();:,.".repeat(10), 100),
            ("🦞🫠".repeat(20), 120),
            ("今天天气很好".repeat(10), 60),
            ("\n".repeat(50), 50),
        ] {
            assert!(estimate_tokens(&text) >= real, "{text:?}: {}", estimate_tokens(&text));
        }
    }

    proptest::proptest! {
        #[test]
        fn an_estimate_is_never_below_the_specification_and_grows_with_the_text(
            head in ".{0,200}", tail in ".{0,50}",
        ) {
            let specified = u32::try_from(head.len().div_ceil(3)).unwrap_or(u32::MAX);
            proptest::prop_assert!(estimate_tokens(&head) >= specified);
            let longer = [head.as_str(), " ", tail.as_str()].concat();
            proptest::prop_assert!(estimate_tokens(&longer) >= estimate_tokens(&head));
        }
    }
}
