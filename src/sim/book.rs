//! What the world knows from outside: every question with its fate, and every answer a model gave.
//!
//! Questions carry their number in their first word (`q17`), so that a prompt on a server, a line
//! in the log and a person's screen can be told to belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::model::said::Said;

/// How a question ended, as its asker saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// With an answer.
    Done {
        /// The whole text.
        text: String,
        /// Who spoke.
        backend: String,
    },
    /// With an apology.
    Failed {
        /// The stable word.
        code: &'static str,
        /// The sentence.
        words: String,
    },
    /// The person stopped it.
    Cancelled,
}

/// One question.
#[derive(Debug, Clone, Default)]
pub(super) struct Question {
    /// The session.
    pub(super) session: String,
    /// What was typed.
    pub(super) typed: String,
    /// In which life of the daemon.
    pub(super) life: u32,
    /// When it was accepted.
    pub(super) accepted_at: Option<Duration>,
    /// Its turn.
    pub(super) turn: u64,
    /// It was refused: it must be nowhere.
    pub(super) refused: bool,
    /// What was read of the answer.
    pub(super) shown: String,
    /// How it ended.
    pub(super) end: Option<End>,
    /// When that was read.
    pub(super) ended_at: Option<Duration>,
    /// When the person stopped it.
    pub(super) cancelled_at: Option<Duration>,
    /// The disk was not well while it ran: a crash may lose it.
    pub(super) loose: bool,
    /// The person went away and reads no more.
    pub(super) walked_away: bool,
    /// The person reads slowly.
    pub(super) slow: bool,
}

/// One answer of a model.
#[derive(Debug, Clone)]
pub(super) struct Generation {
    /// `hailo` or `ollama`.
    pub(super) server: &'static str,
    /// Which question it answers.
    pub(super) question: u32,
    /// The prompt.
    pub(super) messages: Vec<Said>,
    /// What was said, byte for byte.
    pub(super) raw: String,
    /// What of it a person may see; absent where that is for the filters to decide.
    pub(super) visible: Option<String>,
    /// The last line was sent.
    pub(super) complete: bool,
}

/// The facts.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) life: u32,
    pub(super) questions: BTreeMap<u32, Question>,
    pub(super) generations: Vec<Generation>,
    /// The identity block, once one was seen.
    pub(super) system: Option<String>,
    /// Servers whose prefill was slower than before, or cut: windows may shrink and grow.
    pub(super) pace_changed: BTreeSet<&'static str>,
    next: u32,
}

/// Holds the facts.
#[derive(Debug, Default)]
pub(super) struct Book(Mutex<Facts>);

impl Book {
    /// The facts, for a moment.
    pub(super) fn open(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    /// A new question; its number.
    pub(super) fn ask(&mut self, session: &str, words: &str, loose: bool) -> u32 {
        self.next += 1;
        let question = Question {
            session: session.to_owned(),
            typed: format!("q{} {words}", self.next),
            life: self.life,
            loose,
            ..Question::default()
        };
        self.questions.insert(self.next, question);
        self.next
    }

    /// The question a text belongs to.
    pub(super) fn question_in(text: &str) -> Option<u32> {
        // The date may stand before the question.
        text.split_whitespace().find_map(|word| word.strip_prefix('q')?.parse().ok())
    }

    /// The complete answer to a question from a server. Others may have been started later, by a
    /// request that nobody waits for any more.
    pub(super) fn answer_from(&self, question: u32, server: &str) -> Option<&Generation> {
        self.generations
            .iter()
            .rev()
            .find(|one| one.question == question && one.server == server && one.complete)
    }

    /// The question of the turn before.
    pub(super) fn before(&self, question: &Question) -> Option<(u32, &Question)> {
        self.questions
            .iter()
            .rev()
            .find(|(_, one)| {
                one.session == question.session
                    && !one.refused
                    && one.accepted_at.is_some()
                    && one.turn + 1 == question.turn
            })
            .map(|(id, one)| (*id, one))
    }

    /// The disk is not well any more: whatever is open may be lost.
    pub(super) fn loosen(&mut self) {
        for question in self.questions.values_mut().filter(|one| one.end.is_none()) {
            question.loose = true;
        }
    }

    /// Whether some text is what a person may have seen of some answer to this question.
    pub(super) fn may_have_shown(&self, question: u32, text: &str) -> bool {
        text.is_empty()
            || self
                .generations
                .iter()
                .filter(|one| one.question == question)
                .any(|one| one.visible.as_ref().is_none_or(|visible| visible.starts_with(text)))
    }
}
