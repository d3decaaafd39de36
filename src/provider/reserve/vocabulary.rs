//! Text to tokens and back: byte-pair encoding as the GGUF file describes it (pure).
//!
//! The file spells bytes as printable characters (the table of GPT-2). Texts are split as the
//! model's pre-tokeniser demands before pairs are merged: digits stand alone, for the rest
//! GPT-2's rule holds (that is what files call `smollm`). Tokens stay in the file's bytes; only
//! sorted indices are built, 1.5 MB for 49,152 tokens.
//!
//! Text never becomes a control token, whatever it says: a message cannot end itself.

use std::ops::Range;

use super::gguf::{Head, ModelError};

/// Characters of a word that are merged together. Words are shorter; what is longer is noise, on
/// which merging would take time with the square of its length.
const WORD_MAX: usize = 128;

/// Tokens of a model and how pairs of them merge.
pub(crate) struct Vocabulary {
    tokens: Vec<Range<u32>>,
    /// Tokens in the order of their bytes.
    sorted: Vec<u32>,
    /// Sorted by the pair.
    merges: Vec<Merge>,
    /// The token of each byte.
    bytes: Vec<u32>,
    /// Opens a message of the chat format.
    pub(crate) open: u32,
    /// Closes a message of the chat format, and so ends an answer.
    pub(crate) close: u32,
    /// Ends a text.
    pub(crate) end: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Merge {
    left: u32,
    right: u32,
    rank: u32,
    into: u32,
}

impl Vocabulary {
    /// Reads the vocabulary of a file.
    pub(crate) fn read(head: &Head, file: &[u8]) -> Result<Self, ModelError> {
        let model = head.text("tokenizer.ggml.model", file);
        let split = head.text("tokenizer.ggml.pre", file);
        if (model, split) != ("gpt2", "smollm") {
            let says =
                format!("its tokeniser is {model:?}/{split:?}, \"gpt2\"/\"smollm\" is known");
            return Err(ModelError::Unsupported(says));
        }
        let tokens = head.texts("tokenizer.ggml.tokens", file)?;
        let mut sorted: Vec<u32> = (0..).take(tokens.len()).collect();
        sorted.sort_unstable_by_key(|token| bytes_of(&tokens, file, *token));
        let mut vocabulary = Self {
            tokens,
            sorted,
            merges: Vec::new(),
            bytes: Vec::new(),
            open: 0,
            close: 0,
            end: 0,
        };
        let missing = || ModelError::Unsupported("its chat format is not ChatML".to_owned());
        vocabulary.open = vocabulary.find(file, b"<|im_start|>").ok_or_else(missing)?;
        vocabulary.close = vocabulary.find(file, b"<|im_end|>").ok_or_else(missing)?;
        vocabulary.end = vocabulary.find(file, b"<|endoftext|>").unwrap_or(vocabulary.close);
        for byte in 0..=u8::MAX {
            let spelled = letter(byte).to_string();
            let token = vocabulary.find(file, spelled.as_bytes());
            // A few bytes never occur in UTF-8, and some vocabularies leave them out.
            vocabulary.bytes.push(token.unwrap_or(vocabulary.end));
        }
        vocabulary.read_merges(head, file)?;
        Ok(vocabulary)
    }

    fn read_merges(&mut self, head: &Head, file: &[u8]) -> Result<(), ModelError> {
        let damaged = ModelError::Damaged("a merge names no token");
        for (rank, place) in (0..).zip(head.texts("tokenizer.ggml.merges", file)?) {
            let text = &file[place.start as usize..place.end as usize];
            let Some(space) = text.iter().position(|byte| *byte == b' ') else {
                return Err(damaged);
            };
            let (left, right) = (&text[..space], &text[space + 1..]);
            let into = [left, right].concat();
            let merge =
                self.find(file, left).zip(self.find(file, right)).zip(self.find(file, &into));
            let Some(((left, right), into)) = merge else { return Err(damaged) };
            self.merges.push(Merge { left, right, rank, into });
        }
        self.merges.sort_unstable();
        Ok(())
    }

    /// How many tokens there are.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    fn find(&self, file: &[u8], spelled: &[u8]) -> Option<u32> {
        let found = self
            .sorted
            .binary_search_by_key(&spelled, |token| bytes_of(&self.tokens, file, *token))
            .ok()?;
        self.sorted.get(found).copied()
    }

    fn merge(&self, left: u32, right: u32) -> Option<Merge> {
        let found = self.merges.binary_search_by_key(&(left, right), |m| (m.left, m.right)).ok()?;
        self.merges.get(found).copied()
    }

    /// The tokens of a text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        for word in words(text) {
            let start = out.len();
            out.extend(word.bytes().map(|byte| self.bytes[usize::from(byte)]));
            loop {
                let pairs = (start..out.len().saturating_sub(1))
                    .filter_map(|at| Some((self.merge(out[at], out[at + 1])?, at)));
                let Some((merge, at)) = pairs.min_by_key(|(merge, at)| (merge.rank, *at)) else {
                    break;
                };
                out[at] = merge.into;
                out.remove(at + 1);
            }
        }
        out
    }

    /// The bytes of a token; none for the control tokens.
    pub(crate) fn decode<'a>(
        &self,
        file: &'a [u8],
        token: u32,
    ) -> impl Iterator<Item = u8> + use<'a> {
        let is_control = [self.open, self.close, self.end].contains(&token);
        let spelled = if is_control { &[] } else { bytes_of(&self.tokens, file, token) };
        std::str::from_utf8(spelled).unwrap_or("").chars().filter_map(byte_of)
    }
}

fn bytes_of<'a>(tokens: &[Range<u32>], file: &'a [u8], token: u32) -> &'a [u8] {
    let place = tokens.get(token as usize).cloned().unwrap_or_default();
    file.get(place.start as usize..place.end as usize).unwrap_or(&[])
}

/// Whether a byte is spelled as the character of its number.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The character that spells a byte: itself where it is printable, else one above 255, counted in
/// the order of the bytes.
pub(crate) fn letter(byte: u8) -> char {
    if is_plain(byte) {
        return char::from(byte);
    }
    let nth = HIDDEN.iter().position(|hidden| *hidden == byte).unwrap_or(0);
    u32::try_from(nth).ok().and_then(|nth| char::from_u32(256 + nth)).unwrap_or(' ')
}

fn byte_of(letter: char) -> Option<u8> {
    match u8::try_from(u32::from(letter)) {
        Ok(byte) => Some(byte),
        Err(_) => {
            let nth = u32::from(letter).checked_sub(256)?;
            HIDDEN.get(usize::try_from(nth).ok()?).copied()
        }
    }
}

/// The bytes that are spelled as other characters, in their order.
const HIDDEN: [u8; 68] = {
    let (mut hidden, mut count, mut byte) = ([0; 68], 0, 0u8);
    loop {
        if !is_plain(byte) {
            hidden[count] = byte;
            count += 1;
        }
        if byte == u8::MAX {
            break hidden;
        }
        byte += 1;
    }
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Letter,
    Digit,
    Space,
    Other,
}

fn sort(c: char) -> Sort {
    match c {
        c if c.is_numeric() => Sort::Digit,
        c if c.is_alphabetic() => Sort::Letter,
        c if c.is_whitespace() => Sort::Space,
        _ => Sort::Other,
    }
}

/// Splits a text into what is merged on its own.
fn words(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let length = word(rest);
        let capped = rest.char_indices().nth(WORD_MAX).map_or(length, |(at, _)| at.min(length));
        let (word, after) = rest.split_at(capped);
        found.push(word);
        rest = after;
    }
    found
}

/// Bytes of the first word.
fn word(text: &str) -> usize {
    const ENDINGS: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];
    if let Some(ending) = ENDINGS.iter().find(|ending| text.starts_with(**ending)) {
        return ending.len();
    }
    let run = |from: usize, kind: Sort| {
        let rest = &text[from..];
        from + rest.find(|c| sort(c) != kind).unwrap_or(rest.len())
    };
    let mut characters = text.chars();
    let first = characters.next().unwrap_or(' ');
    match sort(first) {
        Sort::Digit => first.len_utf8(),
        kind @ (Sort::Letter | Sort::Other) => run(0, kind),
        Sort::Space => {
            let next = characters.next().map(sort);
            if first == ' '
                && let Some(kind @ (Sort::Letter | Sort::Other)) = next
            {
                return run(1, kind);
            }
            let end = run(0, Sort::Space);
            let is_last = text[end..].chars().next().is_none_or(|c| sort(c) == Sort::Digit);
            if is_last {
                return end;
            }
            // The last one belongs to the word that follows, unless there is no other.
            let last = text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
            if last == 0 { end } else { last }
        }
    }
}
