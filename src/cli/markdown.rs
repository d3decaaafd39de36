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

use super::clean::Clean;

/// Longest span that is held back until its closing mark comes, in characters: about a sentence.
/// Beyond it the mark was none, and the person must not wait longer.
const SPAN_MAX: usize = 160;
/// Deepest indentation under which bullets and headings are looked for, in spaces.
const INDENT_MAX: usize = 12;
/// Fewest marks of a fence, from CommonMark.
const FENCE_MARKS: usize = 3;
/// Deepest heading, from CommonMark.
const HEADING_MAX: usize = 6;
/// Longest line after a fence's marks: a language and some options.
const INFO_MAX: usize = 80;
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

/// What a line's start means.
#[derive(Debug, PartialEq, Eq)]
enum Opening {
    /// Not known yet.
    Unknown,
    Text,
    Table,
    Heading,
    /// So many spaces, then a bullet.
    Bullet(usize),
    /// A fence of these marks.
    Fence(char, usize),
    /// The open block's last line.
    FenceEnd,
    Code,
}

/// What held characters of a line's middle mean.
#[derive(Debug, PartialEq, Eq)]
enum Span {
    Unknown,
    /// The marks are only characters; so many bytes of them.
    Literal(usize),
    /// Bytes of the marks, and where in `held` the closing ones begin.
    Closed {
        marks: usize,
        at: usize,
    },
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

/// Whether a mark at this place may begin a span. Inside a word it may not.
fn may_open(before: Option<char>, c: char) -> bool {
    match c {
        '`' => true,
        '*' | '_' => !before.is_some_and(|b| b.is_ascii_alphanumeric() || b == '\\' || b == c),
        _ => false,
    }
}

/// What the start of a line means.
fn opening(line: &str, fence: Option<(char, usize)>) -> Opening {
    let body = line.trim_start_matches(' ');
    let spaces = line.len() - body.len();
    if let Some((mark, count)) = fence {
        return fence_end(body, spaces, mark, count);
    }
    let Some(first) = body.chars().next() else {
        return if spaces > INDENT_MAX { Opening::Text } else { Opening::Unknown };
    };
    let run = body.chars().take_while(|&c| c == first).count();
    let after = body.chars().nth(run);
    match first {
        '|' => Opening::Table,
        '#' if run <= HEADING_MAX => match after {
            None => Opening::Unknown,
            Some(' ') => Opening::Heading,
            Some(_) => Opening::Text,
        },
        '-' | '*' | '+' if run == 1 => match after {
            None => Opening::Unknown,
            Some(' ') => Opening::Bullet(spaces),
            Some(_) => Opening::Text,
        },
        '`' | '~' => {
            let info = body.get(run..).unwrap_or_default();
            if info.len() > INFO_MAX || (after.is_some() && run < FENCE_MARKS) {
                Opening::Text
            } else if info.contains('`') {
                // A span of code on one line.
                Opening::Text
            } else if info.ends_with('\n') {
                Opening::Fence(first, run)
            } else {
                Opening::Unknown
            }
        }
        _ => Opening::Text,
    }
}

/// Whether a line inside a block ends it.
fn fence_end(body: &str, spaces: usize, mark: char, count: usize) -> Opening {
    let run = body.chars().take_while(|&c| c == mark).count();
    let rest = body.get(run..).unwrap_or_default();
    if spaces > FENCE_MARKS || (!rest.is_empty() && run < count) {
        return Opening::Code;
    }
    match rest.trim_start_matches(' ') {
        "\n" => Opening::FenceEnd,
        "" if rest.len() <= INFO_MAX => Opening::Unknown,
        _ => Opening::Code,
    }
}

/// What held characters mean, the first of which is a mark.
fn span(held: &str, end: bool) -> Span {
    let Some(mark) = held.chars().next() else { return Span::Literal(0) };
    let marks = held.chars().take_while(|&c| c == mark).count();
    let Some(next) = held.chars().nth(marks) else {
        let too_many = marks > FENCE_MARKS && mark != '`';
        return if end || too_many { Span::Literal(marks) } else { Span::Unknown };
    };
    let is_code = mark == '`';
    if !is_code && (next.is_whitespace() || marks > FENCE_MARKS) {
        return Span::Literal(marks);
    }
    if let Some(at) = closing(held, mark, marks, end) {
        return Span::Closed { marks, at };
    }
    if end || held.ends_with('\n') || held.chars().count() > SPAN_MAX {
        return Span::Literal(marks);
    }
    Span::Unknown
}

/// Where the closing marks begin: a run of the same length, at the end of a word. What follows it
/// must be known, because the run might go on.
fn closing(held: &str, mark: char, marks: usize, end: bool) -> Option<usize> {
    let mut at = marks;
    let mut before = ' ';
    let mut rest = held.get(marks..)?;
    while let Some(c) = rest.chars().next() {
        if c != mark {
            before = c;
            at += c.len_utf8();
            rest = rest.get(c.len_utf8()..)?;
            continue;
        }
        let run = rest.chars().take_while(|&c| c == mark).count();
        let after = rest.chars().nth(run);
        let known = end || after.is_some();
        let word_ends = mark == '`'
            || (!before.is_whitespace()
                && (mark == '*' && marks > 1 || !after.is_some_and(|c| c.is_ascii_alphanumeric())));
        if run == marks && known && word_ends {
            return Some(at);
        }
        before = mark;
        at += run;
        rest = rest.get(run..)?;
    }
    None
}

#[cfg(test)]
mod tests;
