//! The simulators' token count, and cutting text into that many tokens.
//!
//! The count is a rule, not a tokenizer: **whitespace-separated words × 1.3, rounded up**. It is
//! deterministic, easy to check by hand, and near enough to English in a small model's vocabulary.

/// Tokens of a text: `ceil(words * 1.3)`.
#[must_use]
pub fn count(text: &str) -> u32 {
    let words = u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX);
    u32::try_from(words.saturating_mul(13).div_ceil(10)).unwrap_or(u32::MAX)
}

/// Cuts a text into the tokens that are streamed. Their concatenation is the text and their number
/// is [`count`] of it, with two exceptions: white space alone is one token, and a text whose words
/// are too short to be cut (single letters) has a few tokens less.
#[must_use]
pub fn split(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut pieces = words(text);
    let wanted = usize::try_from(count(text)).unwrap_or(usize::MAX);
    while pieces.len() < wanted {
        // The longest piece is the likeliest to be two tokens; of equals the first.
        let longest = pieces.iter().map(|piece| piece.trim().chars().count()).max().unwrap_or(0);
        if longest < 2 {
            break;
        }
        let Some(at) = pieces.iter().position(|piece| piece.trim().chars().count() == longest)
        else {
            break;
        };
        let middle = cut_point(&pieces[at], longest);
        let tail = pieces[at].split_off(middle);
        pieces.insert(at + 1, tail);
    }
    pieces
}

/// Words, each with the white space before it; what follows the last word belongs to it.
fn words(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut current = String::new();
    let mut in_word = false;
    for c in text.chars() {
        if c.is_whitespace() && in_word {
            pieces.push(std::mem::take(&mut current));
        }
        in_word = !c.is_whitespace();
        current.push(c);
    }
    if !in_word && let Some(last) = pieces.last_mut() {
        last.push_str(&current);
    } else {
        pieces.push(current);
    }
    pieces
}

/// Byte position after the first half of the letters.
fn cut_point(piece: &str, letters: usize) -> usize {
    let lead = piece.len() - piece.trim_start().len();
    let half = letters.div_ceil(2);
    piece[lead..].char_indices().nth(half).map_or(piece.len(), |(at, _)| lead + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_times_one_point_three_rounded_up() {
        for (text, tokens) in
            [("", 0), ("  \n", 0), ("one", 2), ("one two three", 4), ("a b c d e f g h i j", 13)]
        {
            assert_eq!(count(text), tokens, "{text:?}");
        }
    }

    #[test]
    fn pieces_join_to_the_text_and_are_as_many_as_counted() {
        for text in [
            "Hello there, I am listening and I will answer in a moment.",
            "  leading and trailing  \n",
            "Über 🦞 crayfish\n\nnew paragraph",
            "supercalifragilistic",
        ] {
            let pieces = split(text);
            assert_eq!(pieces.concat(), text);
            assert_eq!(u32::try_from(pieces.len()).unwrap(), count(text), "{pieces:?}");
            assert!(pieces.iter().all(|piece| !piece.is_empty()), "{pieces:?}");
        }
    }

    #[test]
    fn white_space_is_one_token_and_single_letters_stay_whole() {
        assert_eq!(split("\n\n"), ["\n\n"]);
        assert_eq!(split("a b"), ["a", " b"]);
        assert!(split("").is_empty());
    }
}
