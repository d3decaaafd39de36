//! Text of a model made safe for a terminal (pure).
//!
//! A model repeats what it read. An escape sequence in it could rewrite what is on the screen or
//! fill the clipboard, and a bidirectional override can make a command read as another.

/// Longest terminal string (title, clipboard) that is swallowed. One without an end must not eat
/// the rest of the answer.
const STRING_MAX: u16 = 512;

/// Takes characters in any portions and keeps those that only show.
#[derive(Debug, Clone, Default)]
pub(super) struct Clean(State);

#[derive(Debug, Clone, Default)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// Inside a control sequence.
    Control,
    /// Inside a string for the terminal, after so many characters.
    String(u16),
    /// After an ESC inside such a string.
    StringEscape,
}

impl Clean {
    /// The character, if it may be shown.
    pub(super) fn keep(&mut self, c: char) -> Option<char> {
        if c == '\n' {
            self.0 = State::Text;
            return Some(c);
        }
        let (next, kept) = match (&self.0, c) {
            (State::Text, _) => return self.plain(c),
            (State::Escape, '[') => (State::Control, None),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => (State::String(0), None),
            (State::Escape, ' '..='/' | '\u{1b}') => (State::Escape, None),
            (State::Control, ' '..='?') => (State::Control, None),
            (State::Control, '\u{1b}') => (State::Escape, None),
            (State::Escape, '0'..='~') | (State::Control, '@'..='~') => (State::Text, None),
            // What cannot continue a sequence ended it.
            (State::Escape | State::Control, _) => {
                self.0 = State::Text;
                return self.plain(c);
            }
            (State::String(_), '\u{7}' | '\u{9c}') => (State::Text, None),
            (State::String(_), '\u{1b}') => (State::StringEscape, None),
            (State::String(STRING_MAX..), _) => (State::Text, None),
            (State::String(count), _) => (State::String(count + 1), None),
            (State::StringEscape, '\\') => (State::Text, None),
            (State::StringEscape, _) => (State::String(0), None),
        };
        self.0 = next;
        kept
    }

    fn plain(&mut self, c: char) -> Option<char> {
        match c {
            '\u{1b}' => self.0 = State::Escape,
            '\u{9b}' => self.0 = State::Control,
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.0 = State::String(0),
            '\t' => return Some(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            _ if c.is_control() => {}
            _ => return Some(c),
        }
        None
    }

    /// A whole text.
    pub(super) fn text(text: &str) -> String {
        let mut clean = Self::default();
        text.chars().filter_map(|c| clean.keep(c)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_vanish_and_text_stays() {
        let table = [
            ("plain, é 🦞\ttab\nline", "plain, é 🦞\ttab\nline"),
            ("a\u{1b}[31mred\u{1b}[0m", "ared"),
            ("a\u{1b}[2J\u{1b}[1;1Hb", "ab"),
            ("a\u{9b}31mb", "ab"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]52;c;AAAA\u{1b}\\b", "ab"),
            ("a\u{9d}0;title\u{9c}b", "ab"),
            ("a\u{1b}Pq#0\u{1b}\\b", "ab"),
            ("a\u{1b}(Bb", "ab"),
            ("a\u{1b}cb", "ab"),
            ("a\u{1b}[31\nb", "a\nb"),
            ("a\u{1b}]0;no end\nb", "a\nb"),
            ("a\u{1b}[1éb", "aéb"),
            ("a\r\nb\u{0}\u{7}\u{8}\u{7f}\u{85}c", "a\nbc"),
            ("rm \u{202e}fdp.exe", "rm fdp.exe"),
        ];
        for (dirty, expected) in table {
            assert_eq!(Clean::text(dirty), expected, "{dirty:?}");
        }
    }

    #[test]
    fn a_string_without_an_end_does_not_eat_the_answer() {
        let text = format!("\u{1b}]0;{}the end", "x".repeat(2000));
        assert!(Clean::text(&text).ends_with("the end"));
    }

    proptest! {
        #[test]
        fn nothing_that_controls_a_terminal_is_kept(text in any::<String>()) {
            let shown = Clean::text(&text);
            prop_assert!(shown.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
        }
    }
}
