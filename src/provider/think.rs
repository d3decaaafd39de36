//! Thinking removed from an answer while it streams (pure).
//!
//! Small reasoning models put `<think>...</think>` into their text, in any case, split over
//! tokens, nested, or never closed. DeepSeek on hailo-ollama begins inside, because the template
//! has already opened the tag. Only what is outside goes on to a person.
//!
//! # Invariants
//! - What is given out does not depend on how the text was divided into pieces.
//! - No part of a tag is given out, unless the answer ends in the middle of what might become one.

use super::fault::{Class, Fault, Phase};

/// Names of the tags: `think` is the usual one, the others come from fine-tunes.
const NAMES: [&str; 3] = ["think", "thinking", "thought"];

/// White space tolerated before the closing bracket, in characters; bounds what is held back.
const SPACES_MAX: usize = 4;

/// Where an answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkMode {
    /// Outside; a tag may open anywhere.
    MayOpen,
    /// Inside: the template opened the tag (DeepSeek on hailo-ollama).
    StartsInside,
}

/// The filter's state over one answer.
#[derive(Debug)]
pub struct ThinkFilter {
    depth: u32,
    /// What might be the beginning of a tag.
    held: String,
    /// Pieces that were thinking since it was last closed; a piece is a token.
    thoughts: u32,
    thoughts_max: u32,
    /// Nothing but white space since the thinking began.
    untouched: bool,
    /// Something was given out; before that, white space after a closing tag is left out.
    shown: bool,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Opens(usize),
    Closes(usize),
    /// More text decides.
    Unclear,
    No,
}

// === impl ThinkFilter ===

impl ThinkFilter {
    /// A filter for an answer of at most `num_predict` tokens. Thinking for more than half of
    /// them without an end leaves no room for an answer worth having.
    #[must_use]
    pub fn new(mode: ThinkMode, num_predict: u32) -> Self {
        Self {
            depth: u32::from(mode == ThinkMode::StartsInside),
            held: String::new(),
            thoughts: 0,
            thoughts_max: (num_predict / 2).max(1),
            untouched: true,
            shown: false,
            closed: false,
        }
    }

    /// Whether the answer is inside its thinking now.
    #[must_use]
    pub fn is_thinking(&self) -> bool {
        self.depth > 0
    }

    /// Takes the next token and gives out what is visible of it, often nothing.
    ///
    /// # Errors
    /// `ThinkOverrun` when the thinking has taken half of the answer's tokens.
    pub fn push(&mut self, text: &str) -> Result<String, Fault> {
        let mut held = std::mem::take(&mut self.held);
        held.push_str(text);
        let mut rest = held.as_str();
        let mut visible = String::new();
        while let Some(at) = rest.find('<') {
            self.plain(&rest[..at], &mut visible);
            rest = &rest[at..];
            let taken = match tag(rest) {
                Tag::Opens(length) => {
                    self.open();
                    length
                }
                Tag::Closes(length) => {
                    self.close();
                    length
                }
                Tag::Unclear => {
                    self.held = rest.to_owned();
                    rest = "";
                    break;
                }
                Tag::No => {
                    self.plain("<", &mut visible);
                    1
                }
            };
            rest = &rest[taken..];
        }
        self.plain(rest, &mut visible);
        if self.is_thinking() && !text.is_empty() {
            self.thought()?;
        }
        Ok(visible)
    }

    /// A token of thinking that the server itself kept apart.
    ///
    /// # Errors
    /// As `push`.
    pub fn thought(&mut self) -> Result<(), Fault> {
        self.thoughts = self.thoughts.saturating_add(1);
        if self.thoughts > self.thoughts_max {
            let text = format!("{} tokens of thinking without an end", self.thoughts);
            return Err(Fault::new(Class::ThinkOverrun, Phase::Stream, text));
        }
        Ok(())
    }

    /// Ends the answer and gives out what was held back.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        let mut visible = String::new();
        self.plain(&held, &mut visible);
        visible
    }

    fn plain(&mut self, text: &str, visible: &mut String) {
        if self.is_thinking() {
            self.untouched &= text.trim().is_empty();
            return;
        }
        let text = if self.closed && !self.shown { text.trim_start() } else { text };
        self.shown |= !text.is_empty();
        visible.push_str(text);
    }

    /// A model that starts inside may open the tag once more; that is the same thinking.
    fn open(&mut self) {
        if self.depth == 0 {
            self.untouched = true;
            self.depth = 1;
        } else if !self.untouched {
            self.depth = self.depth.saturating_add(1);
        }
        self.untouched &= self.depth == 0;
    }

    /// A closing tag without an open one is left out all the same.
    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.closed = true;
        if self.depth == 0 {
            self.thoughts = 0;
        }
    }
}

/// Which tag stands at the start of `text`, which begins with `<`.
fn tag(text: &str) -> Tag {
    let body = &text[1..];
    let (closing, name_onwards) = match body.strip_prefix('/') {
        Some(rest) => (true, rest),
        None => (false, body),
    };
    let mut found = Tag::No;
    for name in NAMES {
        let (start, after) = match name_onwards.get(..name.len()) {
            Some(start) => (start, &name_onwards[name.len()..]),
            None => (name_onwards, ""),
        };
        if start.len() < name.len() {
            let begins =
                name.get(..start.len()).is_some_and(|part| part.eq_ignore_ascii_case(start));
            found = if begins { Tag::Unclear } else { found };
        } else if start.eq_ignore_ascii_case(name) {
            let bracket = after.trim_start_matches([' ', '\t', '\n']);
            let spaces = after.len() - bracket.len();
            if spaces <= SPACES_MAX && bracket.starts_with('>') {
                let length = text.len() - bracket.len() + 1;
                return if closing { Tag::Closes(length) } else { Tag::Opens(length) };
            }
            found = if spaces <= SPACES_MAX && bracket.is_empty() { Tag::Unclear } else { found };
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(mode: ThinkMode, pieces: &[&str]) -> String {
        let mut filter = ThinkFilter::new(mode, 100_000);
        let mut visible = String::new();
        for piece in pieces {
            visible.push_str(&filter.push(piece).unwrap());
        }
        visible + &filter.finish()
    }

    #[test]
    fn only_what_is_outside_the_thinking_is_visible() {
        use ThinkMode::{MayOpen, StartsInside};
        let table = [
            (MayOpen, "plain text", "plain text"),
            (MayOpen, "<think>hm</think>\n\nHello", "Hello"),
            (MayOpen, "<think>\n\n</think>\n\n  Hello\n", "Hello\n"),
            (MayOpen, "<THINK>hm</Think>Hello", "Hello"),
            (MayOpen, "<thinking>hm</thinking>Hello", "Hello"),
            (MayOpen, "<thought >hm</thought\n>Hello", "Hello"),
            (MayOpen, "<think>a<think>b</think>c</think>Hello", "Hello"),
            (MayOpen, "Before <think>hm</think> after", "Before  after"),
            (MayOpen, "<think>never closed", ""),
            (MayOpen, "stray</think> tag", "stray tag"),
            (MayOpen, "\n\nlead", "\n\nlead"),
            (MayOpen, "a < b, x<y>, <thin, <thinks>, </thi", "a < b, x<y>, <thin, <thinks>, </thi"),
            (MayOpen, "<think>a</think><think>b</think>Hello", "Hello"),
            (MayOpen, "ends with <thin", "ends with <thin"),
            (MayOpen, "<think      >kept", "<think      >kept"),
            (StartsInside, "hm</think>Hello", "Hello"),
            (StartsInside, "\n<think>hm</think>Hello", "Hello"),
            (StartsInside, "a <think>b</think> c</think>Hello", "Hello"),
            (StartsInside, "never closed <thin", ""),
            (MayOpen, "<é>, <think>天</think>气", "<é>, 气"),
        ];
        for (mode, text, want) in table {
            assert_eq!(filter(mode, &[text]), want, "{text:?}");
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(filter(mode, &letters), want, "{text:?} letter by letter");
        }
    }

    #[test]
    fn thinking_beyond_half_of_the_answer_is_an_overrun() {
        let overrun_at = |mode, first: &str| {
            let mut filter = ThinkFilter::new(mode, 20);
            if filter.push(first).is_err() {
                return Some(0);
            }
            (1..40).find(|_| filter.push("hm ").is_err())
        };
        assert_eq!(overrun_at(ThinkMode::StartsInside, ""), Some(11));
        assert_eq!(overrun_at(ThinkMode::MayOpen, "<think>"), Some(10));
        assert_eq!(overrun_at(ThinkMode::MayOpen, "Hello"), None);
        assert_eq!(overrun_at(ThinkMode::StartsInside, "</think>"), None);

        let mut filter = ThinkFilter::new(ThinkMode::MayOpen, 20);
        assert!((0..10).all(|_| filter.thought().is_ok()));
        let fault = filter.thought().unwrap_err();
        assert_eq!(fault.class, Class::ThinkOverrun);
    }

    proptest! {
        #[test]
        fn any_division_gives_the_same_text(
            parts in prop::collection::vec(prop::sample::select(vec![
                "<think>", "</think>", "<THINK", ">", "<", "/", "</thought ", "thi",
                "nk", "é", " ", "\n", "word",
            ]), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            inside in any::<bool>(),
        ) {
            let mode = if inside { ThinkMode::StartsInside } else { ThinkMode::MayOpen };
            let text = parts.concat();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            at.retain(|at| text.is_char_boundary(*at));
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces: Vec<&str> = at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(filter(mode, &pieces), filter(mode, &[&text]));
        }
    }
}
