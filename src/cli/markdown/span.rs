//! What the marks inside a line mean (pure).

use super::block::FENCE_MARKS;

/// Longest span that is held back until its closing mark comes, in characters: about a sentence.
/// Beyond it the mark was none, and the person must not wait longer.
pub(super) const SPAN_MAX: usize = 160;

/// What held characters of a line's middle mean.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Span {
    Unknown,
    /// The marks are only characters; so many bytes of them.
    Literal(usize),
    /// Bytes of the marks, and where in `held` the closing ones begin.
    Closed {
        marks: usize,
        at: usize,
    },
}

/// Whether a mark at this place may begin a span. Inside a word it may not.
pub(super) fn may_open(before: Option<char>, c: char) -> bool {
    match c {
        '`' => true,
        '*' | '_' => !before.is_some_and(|b| b.is_ascii_alphanumeric() || b == '\\' || b == c),
        _ => false,
    }
}

/// What held characters mean, the first of which is a mark.
pub(super) fn span(held: &str, end: bool) -> Span {
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
