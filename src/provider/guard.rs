//! A guard on an answer while it streams (pure): stops loops and garbage, drops control
//! characters.
//!
//! A small model that has lost its thread repeats a sentence until the token bound, a minute and
//! a half of the slot. A broken device sends replacement and control characters. Both are seen
//! here within some tens of tokens.

use super::fault::{Class, Fault, Phase};

/// The same token this often in a row is a loop; Ollama's own bound.
const SAME_TOKENS_MAX: u32 = 30;

/// Shortest repeated block, in bytes. Shorter ones ("ha ha ha") are someone's style until they
/// have filled `BLOCK_MIN * REPEATS_MAX` bytes.
const BLOCK_MIN: usize = 12;

/// Longest repeated block looked for, in bytes: a long sentence or two. Looking costs one
/// comparison a byte for each length.
const BLOCK_MAX: usize = 400;

/// A block this often in a row is a loop.
const REPEATS_MAX: usize = 6;

/// A repeated block without a letter or digit may be a ruler or the line of a table; it is a loop
/// when it has filled this many bytes.
const RULER_BYTES_MAX: usize = 600;

/// Garbage characters tolerated among the last `GARBAGE_WINDOW`.
const GARBAGE_MAX: u32 = 8;

/// Characters over which garbage is counted.
const GARBAGE_WINDOW: u32 = 64;

/// The guard's state over one answer.
#[derive(Debug)]
pub struct Guard {
    last: String,
    same: u32,
    /// The newest bytes, as a ring.
    ring: Vec<u8>,
    at: usize,
    /// For each block length: how many bytes in a row equal the byte one block before.
    runs: Vec<usize>,
    /// Bytes since the last letter or digit.
    unworded: usize,
    /// One bit for each of the last characters: whether it was garbage.
    garbage: u64,
}

// === impl Guard ===

impl Default for Guard {
    fn default() -> Self {
        Self {
            last: String::new(),
            same: 0,
            ring: vec![0; BLOCK_MAX],
            at: 0,
            runs: vec![0; BLOCK_MAX + 1],
            unworded: 0,
            garbage: 0,
        }
    }
}

impl Guard {
    /// Takes the next token and gives it back without control characters but LF and TAB.
    ///
    /// # Errors
    /// `BadOutput` when the answer loops or is garbage.
    pub fn push(&mut self, text: &str) -> Result<String, Fault> {
        self.count_same(text)?;
        let mut clean = String::with_capacity(text.len());
        for letter in text.chars() {
            let control = letter.is_control() && !matches!(letter, '\n' | '\t' | '\r');
            let bad = control || letter == char::REPLACEMENT_CHARACTER;
            self.garbage = (self.garbage << 1) | u64::from(bad);
            if self.garbage.count_ones() > GARBAGE_MAX {
                return Err(bad_output("control and replacement characters"));
            }
            if letter.is_control() && !matches!(letter, '\n' | '\t') {
                continue;
            }
            clean.push(letter);
            let mut bytes = [0; 4];
            let bytes = letter.encode_utf8(&mut bytes).as_bytes();
            self.unworded = if letter.is_alphanumeric() { 0 } else { self.unworded + bytes.len() };
            for byte in bytes {
                self.byte(*byte)?;
            }
        }
        Ok(clean)
    }

    fn count_same(&mut self, text: &str) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }
        if text == self.last {
            self.same += 1;
        } else {
            text.clone_into(&mut self.last);
            self.same = 1;
        }
        if self.same > SAME_TOKENS_MAX {
            return Err(bad_output(&format!("the token {text:?} {} times in a row", self.same)));
        }
        Ok(())
    }

    fn byte(&mut self, byte: u8) -> Result<(), Fault> {
        for length in BLOCK_MIN..=BLOCK_MAX {
            let before = (self.at + BLOCK_MAX - length) % BLOCK_MAX;
            let run = &mut self.runs[length];
            *run = if self.ring[before] == byte { *run + 1 } else { 0 };
            // The first block itself is not counted in the run.
            let filled = *run + length;
            let worded = self.unworded < length;
            if filled >= REPEATS_MAX * length && (worded || filled >= RULER_BYTES_MAX) {
                return Err(bad_output(&format!("a block of {length} bytes again and again")));
            }
        }
        self.ring[self.at] = byte;
        self.at = (self.at + 1) % BLOCK_MAX;
        Ok(())
    }
}

fn bad_output(what: &str) -> Fault {
    Fault::new(Class::BadOutput, Phase::Stream, what)
}

const _: () = assert!(GARBAGE_WINDOW == u64::BITS);
const _: () = assert!(BLOCK_MIN < BLOCK_MAX);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The cleaned text, or how many tokens it took to see that it is bad.
    fn guard<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Result<String, usize> {
        let mut guard = Guard::default();
        let mut clean = String::new();
        for (i, token) in tokens.into_iter().enumerate() {
            clean.push_str(&guard.push(token).map_err(|_| i + 1)?);
        }
        Ok(clean)
    }

    #[test]
    fn equal_tokens_are_counted_in_a_row() {
        let ok: Vec<&str> = std::iter::repeat_n("a", 30).collect();
        assert!(guard(ok.clone()).is_ok());
        assert_eq!(guard(std::iter::repeat_n("a", 99)), Err(31));
        assert!(guard(ok.iter().copied().chain(["b"]).chain(ok.clone())).is_ok());
        assert!(guard(std::iter::repeat_n("", 99)).is_ok(), "empty ones are no tokens");
    }

    #[test]
    fn a_repeated_block_is_seen_at_its_sixth_time() {
        let block = "The answer is 42. ";
        assert!(guard([block.repeat(5).as_str()]).is_ok());
        assert_eq!(guard([block.repeat(6).as_str()]), Err(1));
        let words: Vec<&str> = block.split_inclusive(' ').cycle().take(400).collect();
        assert_eq!(guard(words), Err(24), "four words six times");
        assert_eq!(guard(["你好，我是一只小龙虾。".repeat(6).as_str()]), Err(1));
        let long = "A rather long sentence about nothing at all, my friend. ".repeat(6);
        assert_eq!(guard([long.as_str()]), Err(1));
        assert_eq!(guard([format!("Intro. {}", block.repeat(6)).as_str()]), Err(1));
    }

    #[test]
    fn rulers_tables_lists_and_code_pass() {
        let table = "| a | b |\n".to_owned() + &"|---".repeat(20) + "|\n";
        let list: String = (1..60).map(|i| format!("{i}. item number {i}\n")).collect();
        for text in ["-".repeat(120), "=".repeat(80), "* ".repeat(60), table, list] {
            let half = text.len() / 2;
            assert_eq!(guard([&text[..half], &text[half..]]).as_deref(), Ok(text.as_str()));
        }
        assert_eq!(guard(["-".repeat(2000).as_str()]), Err(1), "but not without end");
    }

    #[test]
    fn control_characters_are_dropped_and_many_of_them_are_garbage() {
        assert_eq!(guard(["a\u{0}b\u{85}c\r\nd\te\u{1b}"]), Ok("abc\nd\te".into()));
        assert_eq!(guard(["ok \u{fffd}\u{fffd} ok"]), Ok("ok \u{fffd}\u{fffd} ok".into()));
        assert_eq!(guard(["\u{fffd}\u{1}\u{fffd}\u{2}\u{fffd}\u{3}\u{fffd}\u{4}\u{fffd}"]), Err(1));
        let sparse = "\u{fffd}0123456789".to_owned();
        assert!(guard((0..5).map(|_| sparse.as_str())).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn clean_text_holds_no_control_character_and_loses_nothing_else(
            text in "\\PC{0,60}[\u{0}-\u{1f}]{0,4}\\PC{0,20}",
        ) {
            if let Ok(clean) = guard([text.as_str()]) {
                let kept = |letter: &char| !letter.is_control() || "\n\t".contains(*letter);
                let want: String = text.chars().filter(kept).collect();
                prop_assert_eq!(clean, want);
            }
        }

        #[test]
        fn any_repeated_block_is_stopped(block in "[a-z][a-zé天 ]{11,120}") {
            prop_assert!(guard([block.repeat(REPEATS_MAX).as_str()]).is_err());
        }
    }
}
