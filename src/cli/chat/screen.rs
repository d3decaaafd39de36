//! The terminal as an answer sees it.

use std::io::{self, Write};

use super::super::clean::Clean;
use super::super::exchange::Show;
use super::super::markdown::Markdown;

/// Takes the line away that the cursor is in.
const ERASE: &str = "\r\x1b[K";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// How output may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) struct Look {
    /// A terminal whose cursor moves.
    pub(in crate::cli) moves: bool,
    /// Styles are wanted.
    pub(in crate::cli) styled: bool,
}

impl Look {
    /// For an output that is a terminal or not, with the values of `TERM` and `NO_COLOR`.
    pub(in crate::cli) fn of(tty: bool, term: Option<&str>, no_color: Option<&str>) -> Self {
        let moves = tty && term != Some("dumb");
        Self { moves, styled: moves && no_color.is_none_or(str::is_empty) }
    }
}

/// Shows one answer, and notes around it.
pub(super) struct Screen<'a> {
    out: &'a mut dyn Write,
    look: Look,
    markdown: Markdown,
    waiting: bool,
    /// The cursor is not at a line's start.
    inside_line: bool,
}

impl<'a> Screen<'a> {
    pub(super) fn new(out: &'a mut dyn Write, look: Look) -> Self {
        let markdown = Markdown::new(look.styled);
        Self { out, look, markdown, waiting: false, inside_line: false }
    }

    /// The answer ended: shows what was held back, and leaves the cursor at a line's start.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.erase()?;
        let rest = self.markdown.finish();
        self.put(&rest)?;
        if self.inside_line {
            self.put("\n")?;
        }
        self.out.flush()
    }

    /// Words of ours, told apart from the agent's.
    pub(super) fn note(&mut self, text: &str) -> io::Result<()> {
        let text = Clean::text(text);
        let (on, off) = if self.look.styled { (DIM, PLAIN) } else { ("", "") };
        for line in text.lines() {
            writeln!(self.out, "{on}{line}{off}")?;
        }
        self.out.flush()
    }

    fn erase(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.waiting) {
            self.out.write_all(ERASE.as_bytes())?;
        }
        Ok(())
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        if let Some(last) = text.chars().next_back() {
            self.inside_line = last != '\n';
        }
        self.out.write_all(text.as_bytes())
    }
}

impl Show for Screen<'_> {
    fn waiting(&mut self, about_s: u32) -> io::Result<()> {
        // A file does not want to know; and after the first word nobody has to.
        if !self.look.moves || self.inside_line {
            return Ok(());
        }
        self.waiting = true;
        let (on, off) = if self.look.styled { (DIM, PLAIN) } else { ("", "") };
        write!(self.out, "{ERASE}{on}thinking, about {about_s} s{off}")?;
        self.out.flush()
    }

    fn words(&mut self, text: &str) -> io::Result<()> {
        let shown = self.markdown.push(text);
        if shown.is_empty() {
            return Ok(());
        }
        self.erase()?;
        self.put(&shown)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(look: Look, act: impl FnOnce(&mut Screen<'_>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        act(&mut Screen::new(&mut out, look)).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn answer(screen: &mut Screen<'_>) -> io::Result<()> {
        screen.waiting(9)?;
        screen.waiting(5)?;
        screen.words("**bo")?;
        screen.words("ld** x")?;
        screen.waiting(3)?;
        screen.end()?;
        screen.note("stopped\u{1b}[2J")
    }

    #[test]
    fn the_wait_is_erased_by_the_first_word() {
        let styled = shown(Look { moves: true, styled: true }, answer);
        let wait = |s| format!("{ERASE}{DIM}thinking, about {s} s{PLAIN}");
        let expected = format!(
            "{}{}{ERASE}\u{1b}[1mbold\u{1b}[22m x\n{DIM}stopped{PLAIN}\n",
            wait(9),
            wait(5)
        );
        assert_eq!(styled, expected);
        let plain = shown(Look { moves: false, styled: false }, answer);
        assert_eq!(plain, "**bold** x\nstopped\n");
    }

    #[test]
    fn a_wait_without_words_leaves_nothing() {
        let look = Look { moves: true, styled: false };
        let text = shown(look, |screen| {
            screen.waiting(9)?;
            screen.end()
        });
        assert_eq!(text, format!("{ERASE}thinking, about 9 s{ERASE}"));
    }

    #[test]
    fn a_pipe_a_dumb_terminal_and_no_color_have_no_styles() {
        let look = |moves, styled| Look { moves, styled };
        assert_eq!(Look::of(true, Some("xterm"), None), look(true, true));
        assert_eq!(Look::of(true, Some("xterm"), Some("")), look(true, true));
        assert_eq!(Look::of(true, Some("xterm"), Some("1")), look(true, false));
        assert_eq!(Look::of(true, Some("dumb"), None), look(false, false));
        assert_eq!(Look::of(false, Some("xterm"), None), look(false, false));
    }
}
