//! A language's words for feelings, their negation and haste, read from a data file (pure).
//!
//! The format is described in `lexicons/FORMAT.txt`.

use std::collections::BTreeMap;

use super::fold;
use crate::limits::{LEXICON_ENTRY_CHARS_MAX, LEXICON_ENTRY_WORDS_MAX};

/// What an entry means; some mean several things at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Roles(u8);

impl Roles {
    pub(super) const POSITIVE: Self = Self(1);
    pub(super) const NEGATIVE: Self = Self(1 << 1);
    pub(super) const URGENT: Self = Self(1 << 2);
    /// Negates what follows.
    pub(super) const BEFORE: Self = Self(1 << 3);
    /// Negates what stands before it.
    pub(super) const AFTER: Self = Self(1 << 4);
    /// Begins a new clause.
    pub(super) const BREAK: Self = Self(1 << 5);
    /// Means nothing, and hides the words inside.
    pub(super) const PLAIN: Self = Self(1 << 6);
    /// Negates what follows if there is something, else what stands before it.
    const AROUND: Self = Self(1 << 3 | 1 << 4);

    pub(super) fn has(self, role: Self) -> bool {
        self.0 & role.0 == role.0
    }

    /// Whether it negates, whatever stands where.
    pub(super) fn negates(self) -> bool {
        self.has(Self::BEFORE) || self.has(Self::AFTER)
    }

    fn with(self, role: Self) -> Self {
        Self(self.0 | role.0)
    }
}

/// How entries are found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Match {
    /// Whole words, or their beginnings where an entry says so.
    #[default]
    Words,
    /// Anywhere in a run of letters.
    Letters,
}

/// An entry found in a text. Places count words or letters, as the lexicon matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) roles: Roles,
    /// Place of its first word or letter.
    pub(super) first: usize,
    /// Place after its last.
    pub(super) end: usize,
    /// Clauses that ended before it.
    pub(super) clause: usize,
    /// Whether it begins with a negator itself ("not bad"): then no other negates it again.
    pub(super) settled: bool,
}

/// A language's lexicon.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    pub(super) matches: Match,
    exact: BTreeMap<String, Roles>,
    stems: BTreeMap<String, Roles>,
    prefixes: Vec<String>,
    markers: Vec<String>,
    letters: Vec<char>,
}

/// The section of a file that is being read.
enum Section {
    Entries(Roles),
    Prefix,
    Marker,
    Letters,
    Unknown,
}

impl Lexicon {
    /// Reads a file. A head that is not known hides its entries; a test looks for such.
    pub(super) fn read(file: &str) -> Self {
        let mut lexicon = Self::default();
        let mut section = Section::Unknown;
        for line in file.lines().filter(|line| !line.starts_with('#')) {
            match line.trim() {
                "match letters" => lexicon.matches = Match::Letters,
                "match words" => lexicon.matches = Match::Words,
                head if head.starts_with('[') => section = Section::named(head),
                entries => {
                    for raw in entries.split_whitespace() {
                        lexicon.add(&section, raw);
                    }
                }
            }
        }
        // Longest first: of two particles that fit the longer one was written.
        lexicon.prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        lexicon
    }

    fn add(&mut self, section: &Section, raw: &str) {
        match section {
            Section::Entries(roles) => {
                let (map, raw) = match raw.strip_suffix('*') {
                    Some(stem) => (&mut self.stems, stem),
                    None => (&mut self.exact, raw),
                };
                let known = map.entry(fold::entry(raw)).or_default();
                *known = known.with(*roles);
            }
            Section::Prefix => self.prefixes.push(fold::entry(raw)),
            Section::Marker => self.markers.push(fold::entry(raw).trim_end().to_owned()),
            Section::Letters => self.letters.extend(raw.chars()),
            Section::Unknown => {}
        }
    }

    /// Everything found in a folded text, in its order.
    pub(super) fn find(&self, folded: &str) -> Vec<Found> {
        match self.matches {
            Match::Words => self.find_words(folded),
            Match::Letters => self.find_letters(folded),
        }
    }

    /// How much a text looks like this language, among those of its script.
    pub(super) fn likeness(&self, raw: &str, folded: &str) -> usize {
        let words = folded.split(' ');
        let markers = words.filter(|word| self.markers.iter().any(|known| known == word)).count();
        let letters = raw.chars().filter(|letter| self.letters.contains(letter)).count();
        let known = self.find(folded).iter().filter(|found| found.roles != Roles::PLAIN).count();
        2 * markers + 3 * letters + known
    }

    fn find_words(&self, folded: &str) -> Vec<Found> {
        let words: Vec<(usize, usize)> = spans(folded).collect();
        let mut found = Vec::new();
        let (mut at, mut clause) = (0, 0);
        while let Some(&(start, _)) = words.get(at) {
            if folded[start..].starts_with(fold::CLAUSE_END) {
                clause += 1;
                at += 1;
                continue;
            }
            let longest = (at + LEXICON_ENTRY_WORDS_MAX).min(words.len());
            let hit = (at..longest)
                .rev()
                .find_map(|last| Some((last + 1, self.phrase(folded, start, words[last])?)));
            let (end, roles) = hit.unwrap_or((at + 1, Roles::default()));
            if roles != Roles::default() {
                let first = &folded[start..words[at].1];
                let settled = end > at + 1 && self.exact.get(first).is_some_and(|it| it.negates());
                found.push(Found { roles, first: at, end, clause, settled });
            }
            at = end;
        }
        found
    }

    /// The entry from `start` to the end of the word `last`, or the word behind a particle.
    fn phrase(&self, folded: &str, start: usize, last: (usize, usize)) -> Option<Roles> {
        let whole = &folded[start..last.1];
        if let Some(roles) = self.entry(whole, last.0 - start) {
            return Some(roles);
        }
        let behind = self.prefixes.iter().filter_map(|prefix| whole.strip_prefix(prefix.as_str()));
        // Behind a particle a word of one or two letters is more likely a part of another word.
        behind.filter(|rest| rest.chars().count() > 2).find_map(|rest| {
            self.entry(rest, (last.0 - start).saturating_sub(whole.len() - rest.len()))
        })
    }

    /// The entry that is `phrase`, or that its last word, from `last` on, begins with.
    fn entry(&self, phrase: &str, last: usize) -> Option<Roles> {
        if let Some(roles) = self.exact.get(phrase) {
            return Some(*roles);
        }
        let ends = phrase.char_indices().rev().map(|(at, letter)| at + letter.len_utf8());
        ends.take_while(|end| *end > last).find_map(|end| self.stems.get(&phrase[..end])).copied()
    }

    fn find_letters(&self, folded: &str) -> Vec<Found> {
        let starts: Vec<usize> =
            folded.char_indices().map(|(at, _)| at).chain([folded.len()]).collect();
        let mut found = Vec::new();
        let (mut at, mut clause) = (0, 0);
        while at + 1 < starts.len() {
            if folded[starts[at]..].starts_with(fold::CLAUSE_END) {
                clause += 1;
                at += 1;
                continue;
            }
            let longest = (at + LEXICON_ENTRY_CHARS_MAX).min(starts.len() - 1);
            let hit = (at + 1..=longest)
                .rev()
                .find_map(|end| Some((end, *self.exact.get(&folded[starts[at]..starts[end]])?)));
            let Some((end, roles)) = hit else {
                at += 1;
                continue;
            };
            found.push(Found { roles, first: at, end, clause, settled: false });
            at = end;
        }
        found
    }

    /// Entries, for the tests that look at the files.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, Roles)> {
        self.exact.iter().chain(&self.stems).map(|(entry, roles)| (entry, *roles))
    }
}

impl Section {
    fn named(head: &str) -> Self {
        Self::Entries(match head {
            "[positive]" => Roles::POSITIVE,
            "[negative]" => Roles::NEGATIVE,
            "[urgent]" => Roles::URGENT,
            "[before]" => Roles::BEFORE,
            "[after]" => Roles::AFTER,
            "[around]" => Roles::AROUND,
            "[break]" => Roles::BREAK,
            "[plain]" => Roles::PLAIN,
            "[prefix]" => return Self::Prefix,
            "[marker]" => return Self::Marker,
            "[letters]" => return Self::Letters,
            _ => return Self::Unknown,
        })
    }
}

/// First byte and end of each word.
fn spans(folded: &str) -> impl Iterator<Item = (usize, usize)> {
    folded
        .split(' ')
        .scan(0, |at, word| {
            let start = *at;
            *at += word.len() + 1;
            Some((start, start + word.len()))
        })
        .filter(|(start, end)| end > start)
}
