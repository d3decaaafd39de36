//! What a message sounds like: glad, upset, both or neither, and whether it is in a hurry (pure).
//!
//! Words are looked up in a lexicon for each language (`lexicon`); a word that is negated counts
//! for the other side. It costs well under a millisecond and needs no model. Of sentences it was
//! not tuned on it reads about six in ten as people label them; nearly all the others it takes
//! for neutral, because people tell of trouble without a word of feeling. So it may colour an
//! answer but must never decide what is done.
//!
//! # Absences
//! - No irony, no grammar. What has no word of feeling in it is neutral.

mod fold;
mod lexicon;

use self::lexicon::{Found, Lexicon, Match, Roles};
use crate::limits::SENTIMENT_CHARS_MAX;

/// Words between a negator and what it negates: "not a very good". Further away it is about
/// something else.
const REACH_WORDS: usize = 4;

/// The same in letters of scripts without spaces, where a word has two or three.
const REACH_LETTERS: usize = 6;

/// The same for negators at the end, as Japanese and Korean have them, with particles between.
const REACH_BACK_LETTERS: usize = 9;

/// One side prevails if it has at least this many times the clauses of the other.
const PREVAILS: usize = 2;

/// What a message sounds like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sentiment {
    /// Glad, grateful, proud.
    Positive,
    /// Sad, angry, afraid, in pain.
    Negative,
    /// Both.
    Mixed,
    /// No words of feeling.
    #[default]
    Neutral,
}

/// What was read out of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Reading {
    /// What it sounds like.
    pub sentiment: Sentiment,
    /// Whether it cannot wait.
    pub urgent: bool,
}

/// Reads messages. Built once: it holds the lexicons, some 200 KB of memory.
pub struct Analyst {
    latin: [Lexicon; 4],
    chinese: Lexicon,
    japanese: Lexicon,
    korean: Lexicon,
    hindi: Lexicon,
    arabic: Lexicon,
    emoji: Lexicon,
}

/// Clauses on each side.
#[derive(Default)]
struct Count {
    positive: usize,
    negative: usize,
    urgent: bool,
}

/// Scripts that a text has letters of.
#[derive(Default)]
struct Scripts {
    latin: bool,
    han: bool,
    kana: bool,
    hangul: bool,
    devanagari: bool,
    arabic: bool,
}

impl Default for Analyst {
    fn default() -> Self {
        Self::new()
    }
}

impl Analyst {
    /// Reads the lexicons, which are part of the program.
    #[must_use]
    pub fn new() -> Self {
        Self {
            latin: [
                Lexicon::read(include_str!("../lexicons/en.txt")),
                Lexicon::read(include_str!("../lexicons/es.txt")),
                Lexicon::read(include_str!("../lexicons/fr.txt")),
                Lexicon::read(include_str!("../lexicons/de.txt")),
            ],
            chinese: Lexicon::read(include_str!("../lexicons/zh.txt")),
            japanese: Lexicon::read(include_str!("../lexicons/ja.txt")),
            korean: Lexicon::read(include_str!("../lexicons/ko.txt")),
            hindi: Lexicon::read(include_str!("../lexicons/hi.txt")),
            arabic: Lexicon::read(include_str!("../lexicons/ar.txt")),
            emoji: Lexicon::read(include_str!("../lexicons/emoji.txt")),
        }
    }

    /// Reads a message. Of a long one only the beginning counts.
    #[must_use]
    pub fn read(&self, message: &str) -> Reading {
        let end =
            message.char_indices().nth(SENTIMENT_CHARS_MAX).map_or(message.len(), |(at, _)| at);
        let raw = message[..end].to_lowercase();
        let folded = fold::text(&message[..end]);
        let mut count = Count::default();
        let scripts = Scripts::of(&raw);
        for lexicon in self.fitting(&scripts) {
            count.add(lexicon.matches, lexicon.find(&folded));
        }
        if scripts.latin {
            count.add(Match::Words, self.latin(&raw, &folded));
        }
        let sentiment = count.sentiment();
        Reading { sentiment, urgent: count.urgent || exclaims(message, sentiment) }
    }

    /// What the most fitting of the languages with Latin letters finds.
    fn latin(&self, raw: &str, folded: &str) -> Vec<Found> {
        let mut best = (0, Vec::new());
        for lexicon in &self.latin {
            let found = lexicon.find(folded);
            let likeness = lexicon.likeness(raw, &found);
            // The first of those that fit equally, so that a lone "super" is English.
            if likeness > best.0 {
                best = (likeness, found);
            }
        }
        best.1
    }

    /// The lexicons that need no choice: that of faces, and one for each script.
    fn fitting(&self, scripts: &Scripts) -> Vec<&Lexicon> {
        // Japanese is written with Chinese characters too, but never without kana.
        let each = [
            (true, &self.emoji),
            (scripts.kana, &self.japanese),
            (scripts.han && !scripts.kana, &self.chinese),
            (scripts.hangul, &self.korean),
            (scripts.devanagari, &self.hindi),
            (scripts.arabic, &self.arabic),
        ];
        each.into_iter().filter(|(there, _)| *there).map(|(_, lexicon)| lexicon).collect()
    }
}

impl Scripts {
    fn of(text: &str) -> Self {
        let mut scripts = Self::default();
        for letter in text.chars() {
            match letter {
                'a'..='z' | '\u{df}'..='\u{24f}' => scripts.latin = true,
                '\u{3040}'..='\u{30ff}' => scripts.kana = true,
                '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' => scripts.han = true,
                '\u{ac00}'..='\u{d7a3}' | '\u{3131}'..='\u{318e}' => scripts.hangul = true,
                '\u{900}'..='\u{97f}' => scripts.devanagari = true,
                '\u{620}'..='\u{64a}' => scripts.arabic = true,
                _ => {}
            }
        }
        scripts
    }
}

impl Count {
    fn add(&mut self, matches: Match, found: Vec<Found>) {
        let reach = match matches {
            Match::Words => (REACH_WORDS, REACH_WORDS),
            Match::Letters => (REACH_LETTERS, REACH_BACK_LETTERS),
        };
        let found = clauses(found);
        let negated = negated(&found, reach);
        let hits: Vec<_> = found.iter().zip(negated).collect();
        // A clause has one vote, so that "but" weighs the same on both sides whatever the number
        // of words.
        for clause in hits.chunk_by(|(one, _), (next, _)| one.clause == next.clause) {
            let (mut positive, mut negative) = (0, 0);
            for (hit, negated) in clause {
                let sides = (hit.roles.has(Roles::POSITIVE), hit.roles.has(Roles::NEGATIVE));
                let sides = if *negated { (sides.1, sides.0) } else { sides };
                positive += usize::from(sides.0);
                negative += usize::from(sides.1);
                self.urgent |= hit.roles.has(Roles::URGENT) && !negated;
            }
            self.positive += usize::from(positive > 0 && positive >= negative);
            self.negative += usize::from(negative > 0 && negative >= positive);
        }
    }

    fn sentiment(&self) -> Sentiment {
        let (positive, negative) = (self.positive, self.negative);
        match (positive > 0, negative > 0) {
            (false, false) => Sentiment::Neutral,
            (true, _) if positive >= PREVAILS * negative => Sentiment::Positive,
            (_, true) if negative >= PREVAILS * positive => Sentiment::Negative,
            _ => Sentiment::Mixed,
        }
    }
}

/// Numbers the clauses anew, so that one begins at each word that begins one, and leaves out what
/// means nothing.
fn clauses(found: Vec<Found>) -> Vec<Found> {
    let mut breaks = 0;
    let mut out = Vec::with_capacity(found.len());
    for mut hit in found {
        breaks += usize::from(hit.roles.has(Roles::BREAK));
        hit.clause += breaks;
        if !hit.roles.has(Roles::PLAIN)
            && !hit.roles.has(Roles::BREAK)
            && hit.roles != Roles::MARKER
        {
            out.push(hit);
        }
    }
    out
}

/// For each of `found`, whether something negates it. A negator has one victim, and never outside
/// its clause; two of one victim negate it once ("ne ... pas").
fn negated(found: &[Found], (ahead_of, behind_of): (usize, usize)) -> Vec<bool> {
    let mut negated = vec![false; found.len()];
    let feels = |hit: &Found| {
        hit.roles.has(Roles::POSITIVE)
            || hit.roles.has(Roles::NEGATIVE)
            || hit.roles.has(Roles::URGENT)
    };
    for (at, negator) in found.iter().enumerate() {
        if feels(negator) {
            continue;
        }
        let same = |hit: &Found| hit.clause == negator.clause && feels(hit) && !hit.settled;
        let ahead = || {
            let next = found.iter().enumerate().skip(at + 1).find(|(_, hit)| same(hit));
            next.filter(|(_, hit)| hit.first < negator.end + ahead_of)
        };
        let behind = || {
            let last = found.iter().enumerate().take(at).rfind(|(_, hit)| same(hit));
            last.filter(|(_, hit)| negator.first < hit.end + behind_of)
        };
        let victim = match (negator.roles.has(Roles::BEFORE), negator.roles.has(Roles::AFTER)) {
            (true, true) => ahead().or_else(behind),
            (true, false) => ahead(),
            (false, true) => behind(),
            (false, false) => None,
        };
        if let Some((victim, _)) = victim {
            negated[victim] = true;
        }
    }
    negated
}

/// Whether exclamation marks mean haste. The seed takes each for haste; but people thank and greet
/// with one, so here it takes trouble, or two marks and no joy.
fn exclaims(message: &str, sentiment: Sentiment) -> bool {
    let marks = message.matches(['!', '！']).count();
    // Spanish has one at each end.
    match sentiment {
        Sentiment::Negative => marks > 0,
        Sentiment::Neutral | Sentiment::Mixed => marks > 1 && !message.contains('¡'),
        Sentiment::Positive => false,
    }
}

#[cfg(test)]
mod tests;
