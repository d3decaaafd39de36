//! What the small model says: words from a list, so that every answer is another one.

use super::super::options::Flaw;

const WORDS: [&str; 28] = [
    "the",
    "river",
    "is",
    "cold",
    "today",
    "and",
    "a",
    "crab",
    "walks",
    "slowly",
    "under",
    "stones",
    "while",
    "you",
    "sleep",
    "\u{1f99e}",
    "水",
    "很",
    "冷",
    "<b",
    "5 < 6",
    "`code`",
    "na\u{ef}ve",
    "[link]",
    "I",
    "think",
    "so",
    "\u{1f44d}\u{1f3fd}",
];

/// An answer before it is spoken.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    /// Pieces, each with whether a person may see it.
    pub(super) tokens: Vec<(String, bool)>,
    /// Whether it is known what a person sees of it.
    pub(super) known: bool,
    /// It was cut at the token bound.
    pub(super) cut: bool,
}

impl Script {
    /// An answer of at most `most` tokens.
    pub(super) fn of(
        random: &mut fastrand::Rng,
        flaw: Option<Flaw>,
        thinks: bool,
        most: u32,
    ) -> Self {
        let mut script = Self { known: true, ..Self::default() };
        match flaw {
            Some(Flaw::Empty) => return script,
            Some(Flaw::Loops) => {
                script.known = false;
                for _ in 0..60 {
                    script.tokens.push(("again and again ".to_owned(), true));
                    script.tokens.push(("once more, ".to_owned(), true));
                }
            }
            Some(Flaw::Garbage) => {
                script.known = false;
                for _ in 0..40 {
                    script.tokens.push(("\u{fffd}\u{1}x".to_owned(), true));
                }
            }
            Some(Flaw::ThinkOverrun) => {
                script.think(random, 200);
            }
            _ => {
                if thinks {
                    let length = random.u32(1..6);
                    script.think(random, length);
                    script.tokens.push(("</think>".to_owned(), false));
                    script.tokens.push(("\n\n".to_owned(), false));
                }
                script.speak(random);
            }
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        script.cut = script.tokens.len() > most;
        script.tokens.truncate(most);
        script
    }

    fn think(&mut self, random: &mut fastrand::Rng, length: u32) {
        self.tokens.push(("<think>".to_owned(), false));
        for _ in 0..length {
            self.tokens.push((format!("{} ", word(random)), false));
        }
    }

    fn speak(&mut self, random: &mut fastrand::Rng) {
        let length = if random.u32(0..10) == 0 { random.u32(20..60) } else { random.u32(2..16) };
        for at in 0..length {
            let gap = if at == 0 { "" } else { " " };
            self.tokens.push((format!("{gap}{}", word(random)), true));
        }
    }
}

fn word(random: &mut fastrand::Rng) -> &'static str {
    WORDS.get(random.usize(0..WORDS.len())).copied().unwrap_or("so")
}
