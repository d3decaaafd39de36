//! A language's words for feelings, their negation and haste, read from a data file (pure).
//!
//! The format is described in `lexicons/FORMAT.txt`.

use std::borrow::Cow;

use super::fold;
use crate::limits::{LEXICON_ENTRY_CHARS_MAX, LEXICON_ENTRY_WORDS_MAX};

/// What an entry means; some mean several things at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Roles(u16);

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
    /// A frequent word of the language.
    pub(super) const MARKER: Self = Self(1 << 7);
    /// First word of a longer entry.
    const HEAD: Self = Self(1 << 8);
    /// Negates what follows if there is something, else what stands before it.
    const AROUND: Self = Self(1 << 3 | 1 << 4);

    pub(super) fn has(self, role: Self) -> bool {
        self.0 & role.0 == role.0
    }

    /// Whether it negates, whatever stands where.
    pub(super) fn negates(self) -> bool {
        self.has(Self::BEFORE) || self.has(Self::AFTER)
    }

    fn without_head(self) -> Self {
        Self(self.0 & !Self::HEAD.0)
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
    exact: Entries,
    stems: Entries,
    prefixes: Vec<Cow<'static, str>>,
    letters: Vec<char>,
}

/// Entries in order, each once.
#[derive(Debug, Default)]
struct Entries(Vec<(Cow<'static, str>, Roles)>);

/// The section of a file that is being read.
enum Section {
    Entries(Roles),
    Prefix,
    Letters,
    Unknown,
}

impl Lexicon {
    /// Reads a file. A head that is not known hides its entries; a test looks for such.
    pub(super) fn read(file: &'static str) -> Self {
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
        lexicon.exact.settle();
        lexicon.stems.settle();
        // Longest first: of two particles that fit the longer one was written.
        lexicon.prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        lexicon
    }

    fn add(&mut self, section: &Section, raw: &'static str) {
        match section {
            Section::Entries(roles) => {
                let (entries, raw) = match raw.strip_suffix('*') {
                    Some(stem) => (&mut self.stems, stem),
                    None => (&mut self.exact, raw),
                };
                let entry = fold::entry(raw);
                let head = entry.split_once(' ').map(|(head, _)| head.to_owned());
                entries.0.push((entry, *roles));
                if self.matches == Match::Words
                    && let Some(head) = head
                {
                    self.exact.0.push((head.into(), Roles::HEAD));
                }
            }
            Section::Prefix => self.prefixes.push(fold::entry(raw)),
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

    /// How much a text looks like this language, among those of its script: by its letters, and by
    /// what was found in it.
    pub(super) fn likeness(&self, raw: &str, found: &[Found]) -> usize {
        let letters = match self.letters.is_empty() {
            true => 0,
            false => raw.chars().filter(|letter| self.letters.contains(letter)).count(),
        };
        let of = |found: &Found| match (found.roles.has(Roles::MARKER), found.roles) {
            (_, Roles::PLAIN) => 0,
            (true, Roles::MARKER) => 2,
            (true, _) => 2 + found.end - found.first,
            (false, _) => found.end - found.first,
        };
        3 * letters + found.iter().map(of).sum::<usize>()
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
            let first = &folded[start..words[at].1];
            let alone = self.exact.get(first).unwrap_or_default();
            let longest = if alone.has(Roles::HEAD) { LEXICON_ENTRY_WORDS_MAX } else { 1 };
            let hit = (at..(at + longest).min(words.len()))
                .rev()
                .find_map(|last| Some((last + 1, self.phrase(folded, start, words[last])?)));
            let (end, roles) = hit.unwrap_or((at + 1, Roles::default()));
            if roles != Roles::default() {
                let settled = end > at + 1 && alone.negates();
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
        let behind = self.prefixes.iter().filter_map(|prefix| whole.strip_prefix(&**prefix));
        // Behind a particle a word of one or two letters is more likely a part of another word.
        behind.filter(|rest| rest.chars().count() > 2).find_map(|rest| {
            self.entry(rest, (last.0 - start).saturating_sub(whole.len() - rest.len()))
        })
    }

    /// The entry that is `phrase`, or that its last word, from `last` on, begins with.
    fn entry(&self, phrase: &str, last: usize) -> Option<Roles> {
        if let Some(roles) = self.exact.get(phrase).map(Roles::without_head)
            && roles != Roles::default()
        {
            return Some(roles);
        }
        self.stems
            .longest_start(phrase)
            .filter(|(stem, _)| stem.len() > last)
            .map(|(_, roles)| roles)
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
                .find_map(|end| Some((end, self.exact.get(&folded[starts[at]..starts[end]])?)));
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
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, Roles)> {
        let all = self.exact.0.iter().chain(&self.stems.0);
        all.map(|(entry, roles)| (&**entry, roles.without_head()))
    }
}

impl Entries {
    /// Puts entries in order and joins those that came more than once.
    fn settle(&mut self) {
        self.0.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        self.0.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = kept.1.with(later.1);
            }
            same
        });
    }

    fn get(&self, entry: &str) -> Option<Roles> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(entry)).ok()?;
        Some(self.0[at].1)
    }

    /// The longest entry that `text` begins with.
    fn longest_start(&self, text: &str) -> Option<(&str, Roles)> {
        let mut shorter = text;
        loop {
            let above = self.0.partition_point(|(known, _)| **known <= *shorter);
            let (entry, roles) = self.0.get(above.checked_sub(1)?)?;
            if shorter.starts_with(&**entry) {
                return Some((entry, *roles));
            }
            // Only what both begin with can lead to an entry that is shorter still.
            let both = shorter.char_indices().zip(entry.chars());
            let differ = both.into_iter().find(|((_, one), other)| one != other);
            shorter = &shorter[..differ.map_or(shorter.len().min(entry.len()), |((at, _), _)| at)];
        }
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
            "[marker]" => Roles::MARKER,
            "[prefix]" => return Self::Prefix,
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
