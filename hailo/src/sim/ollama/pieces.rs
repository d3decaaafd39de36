//! Text cut into the pieces that stand for tokens (pure).
//!
//! As many as the shared rule counts, 1.3 for each whitespace word and rounded up, and such that
//! the pieces of a text are the first pieces of every text that continues it with a new word.
//! JSON has few words, so what is written under a schema is cut at its punctuation instead.

/// Pieces of prose; joined they are the text again.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut words = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let start = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
        let length = rest[start..].find(char::is_whitespace).unwrap_or(rest.len() - start);
        let (word, after) = rest.split_at(start + length);
        rest = after;
        if length == 0 {
            // White space at the very end belongs to the last piece.
            match pieces.last_mut() {
                Some(last) => String::push_str(last, word),
                None => pieces.push(word.to_owned()),
            }
            break;
        }
        words += 1;
        let wanted = tokens_of_words(words) - pieces.len();
        push_word(&mut pieces, word, start, wanted);
    }
    pieces
}

/// The shared rule: 1.3 tokens a word, rounded up.
fn tokens_of_words(words: usize) -> usize {
    (words * 13).div_ceil(10)
}

/// One word, with the white space before it, as `wanted` (1 or 2) pieces. A word of one letter
/// cannot be halved; its second piece is empty, as a model's half of an emoji is.
fn push_word(pieces: &mut Vec<String>, word: &str, start: usize, wanted: usize) {
    if wanted < 2 {
        pieces.push(word.to_owned());
        return;
    }
    let letters = word[start..].char_indices().count();
    let half = word[start..]
        .char_indices()
        .nth(letters.div_ceil(2))
        .map_or(word.len(), |(at, _)| start + at);
    pieces.push(word[..half].to_owned());
    pieces.push(word[half..].to_owned());
}

/// Pieces of JSON text.
pub(super) fn json_pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in text.chars() {
        let word = c.is_alphanumeric();
        match pieces.last_mut() {
            Some(last) if in_word && word => last.push(c),
            _ => pieces.push(c.to_string()),
        }
        in_word = word;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_to_the_text_and_are_counted_by_the_rule() {
        let table = [
            "",
            " ",
            "Hello",
            "Hello there",
            "a b c d e f g h i j",
            "  lead",
            "trail \n",
            "né à ü 🙂 x",
            "line\nline\r\n\r\nline",
        ];
        for text in table {
            let cut = pieces(text);
            assert_eq!(cut.concat(), text);
            let words = text.split_whitespace().count();
            if words > 0 {
                assert_eq!(cut.len(), tokens_of_words(words), "{text:?}");
            }
        }
    }

    #[test]
    fn the_pieces_of_a_text_begin_every_continuation() {
        let text = "one two three four five six seven eight nine ten eleven";
        let long = pieces(&format!("{text} twelve thirteen"));
        let short = pieces(text);
        assert_eq!(long[..short.len()], short[..]);
    }

    #[test]
    fn json_is_cut_at_its_punctuation() {
        assert_eq!(json_pieces("{\"a1\":[2,30]}").len(), 11);
        assert_eq!(json_pieces("{\"a1\":[2,30]}").concat(), "{\"a1\":[2,30]}");
    }
}
