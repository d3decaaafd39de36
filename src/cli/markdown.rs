//! Markdown as it streams in, for a terminal (pure).
//!
//! What a model of this size writes: bold, italics, code, headings, bullets, numbers, fenced
//! blocks. Tables and everything else pass through as they are.
//!
//! # Invariants
//! - Characters are taken one by one, so any split of a text gives the same output.
//! - Marks that turn out to be no marks are shown: `5 * 3`, `*args`, `snake_case`.
//! - Nothing from the text controls the terminal (`clean`).
//!
//! # Absences
//! - No wrapping: the terminal does it, and a resize would undo ours.

mod block;
mod span;

use self::block::{Opening, opening};
use self::span::{Span, may_open, span};
use super::clean::Clean;

/// Code stands apart by this.
const CODE_INDENT: &str = "  ";

const BOLD: Style = Style { on: "\x1b[1m", off: "\x1b[22m" };
const ITALIC: Style = Style { on: "\x1b[3m", off: "\x1b[23m" };
const CODE: Style = Style { on: "\x1b[36m", off: "\x1b[39m" };
const DIM: Style = Style { on: "\x1b[2m", off: "\x1b[22m" };
const HEADING: Style = Style { on: "\x1b[1;4m", off: "\x1b[22;24m" };

/// Renders an answer.
#[derive(Debug, Clone)]
pub(super) struct Markdown {
    styled: bool,
    clean: Clean,
    place: Place,
    /// Characters whose meaning is not known yet.
    held: String,
    /// The last character shown in this line.
    before: Option<char>,
    heading: bool,
    /// The open block's mark and how many of them opened it.
    fence: Option<(char, usize)>,
}

#[derive(Debug, Clone, Copy)]
struct Style {
    on: &'static str,
    off: &'static str,
}

/// Where in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At its start: `held` is all of it so far.
    Start,
    /// In text with spans.
    Text,
    /// In a table's line.
    Table,
    /// In a line of code.
    Code,
}

impl Markdown {
    /// With styles, or as plain text in which marks stay as they are.
    pub(super) fn new(styled: bool) -> Self {
        Self {
            styled,
            clean: Clean::default(),
            place: Place::Start,
            held: String::new(),
            before: None,
            heading: false,
            fence: None,
        }
    }

    /// What can be shown after more of the answer came.
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match self.clean.keep(c) {
                Some(c) if self.styled => self.take(c, &mut out),
                Some(c) => out.push(c),
                None => {}
            }
        }
        out
    }

    /// What is left when the answer ended. Closes what is open.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        if self.place == Place::Start && !self.held.is_empty() {
            match (self.fence, opening(&format!("{}\n", self.held), self.fence)) {
                (Some(_), Opening::FenceEnd) => self.held.clear(),
                (Some(_), _) => self.code(&mut out),
                (None, _) => self.text(&mut out),
            }
        }
        while !self.held.is_empty() {
            self.settle(true, &mut out);
        }
        if self.place == Place::Code {
            out.push_str(DIM.off);
        } else if self.heading {
            out.push_str(HEADING.off);
        }
        *self = Self::new(self.styled);
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        match self.place {
            Place::Start => {
                self.held.push(c);
                self.open(out);
            }
            Place::Text => self.inline(c, out),
            Place::Table | Place::Code => self.show(c, out),
        }
    }

    /// Looks whether the line's start has a meaning by now.
    fn open(&mut self, out: &mut String) {
        match opening(&self.held, self.fence) {
            Opening::Unknown => {}
            Opening::Text => self.text(out),
            Opening::Code => self.code(out),
            Opening::Table => {
                self.place = Place::Table;
                out.push_str(&std::mem::take(&mut self.held));
            }
            Opening::Heading => {
                self.held.clear();
                self.place = Place::Text;
                self.heading = true;
                out.push_str(HEADING.on);
            }
            Opening::Bullet(spaces) => {
                self.held.clear();
                self.place = Place::Text;
                self.before = Some(' ');
                out.extend(std::iter::repeat_n(' ', spaces));
                out.push_str("• ");
            }
            Opening::Fence(mark, count) => {
                self.held.clear();
                self.fence = Some((mark, count));
            }
            Opening::FenceEnd => {
                self.held.clear();
                self.fence = None;
            }
        }
    }

    /// What is held is text after all.
    fn text(&mut self, out: &mut String) {
        self.place = Place::Text;
        let held = std::mem::take(&mut self.held);
        self.again(&held, out);
    }

    /// What is held is code.
    fn code(&mut self, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        if held == "\n" {
            out.push('\n');
            return;
        }
        self.place = Place::Code;
        out.push_str(CODE_INDENT);
        out.push_str(DIM.on);
        for c in held.chars() {
            self.show(c, out);
        }
    }

    fn again(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            self.take(c, out);
        }
    }

    /// One character of text: shown, or held if a span may begin or end with it.
    fn inline(&mut self, c: char, out: &mut String) {
        if self.held.is_empty() && !may_open(self.before, c) {
            self.show(c, out);
            return;
        }
        self.held.push(c);
        self.settle(false, out);
    }

    /// Looks whether what is held has a meaning by now; at the `end` it has one.
    fn settle(&mut self, end: bool, out: &mut String) {
        match span(&self.held, end) {
            Span::Unknown => {}
            Span::Literal(bytes) => {
                let held = std::mem::take(&mut self.held);
                let (marks, rest) = held.split_at(bytes);
                for c in marks.chars() {
                    self.show(c, out);
                }
                self.again(rest, out);
            }
            Span::Closed { marks, at } => {
                let held = std::mem::take(&mut self.held);
                let inner = held.get(marks..at).unwrap_or_default();
                self.styled(&held, marks, inner, out);
                self.before = held.chars().next();
                self.again(held.get(at + marks..).unwrap_or_default(), out);
            }
        }
    }

    fn styled(&self, held: &str, marks: usize, inner: &str, out: &mut String) {
        if held.starts_with('`') {
            out.push_str(CODE.on);
            out.push_str(inner);
            out.push_str(CODE.off);
            return;
        }
        let styles = match marks {
            1 => &[ITALIC][..],
            2 => &[BOLD][..],
            _ => &[BOLD, ITALIC][..],
        };
        out.extend(styles.iter().map(|style| style.on));
        let mut nested = Self { place: Place::Text, ..Self::new(true) };
        let shown = nested.push(inner);
        out.push_str(&shown);
        out.push_str(&nested.finish());
        out.extend(styles.iter().rev().map(|style| style.off));
        if self.heading {
            out.push_str(HEADING.on);
        }
    }

    fn show(&mut self, c: char, out: &mut String) {
        if c != '\n' {
            self.before = Some(c);
            out.push(c);
            return;
        }
        if self.place == Place::Code {
            out.push_str(DIM.off);
        } else if std::mem::take(&mut self.heading) {
            out.push_str(HEADING.off);
        }
        out.push('\n');
        self.place = Place::Start;
        self.before = None;
    }
}

#[cfg(test)]
mod tests;
