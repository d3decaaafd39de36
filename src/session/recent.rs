//! What is kept in memory of one session, so that a turn costs the same at any length (pure).

use std::collections::{BTreeMap, VecDeque};

use super::log::Logged;
use super::window::{self, PastTurn};
use crate::limits;
use crate::session::log::{About, Line};

/// A turn that has begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Its number and the person's message.
    pub(super) begun: Logged,
    /// All that was shown so far.
    pub(super) shown: String,
    /// The end of it that the store's queue had no place for yet.
    pub(super) deferred: String,
}

/// One open session.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Number of the newest turn.
    pub(super) last_turn: u64,
    /// Ended turns that a window may depend on, oldest first.
    past: VecDeque<PastTurn>,
    /// Text in `past`.
    bytes: usize,
    pub(super) running: BTreeMap<u64, Running>,
    /// Ended turns whose commit is not known yet, for people who ask meanwhile. While the disk
    /// is full this is bounded with the store's backlog, which holds the same turns.
    pub(super) uncommitted: BTreeMap<u64, Logged>,
    /// Client ids of the last messages that had one, oldest first, each with its turn.
    ids: VecDeque<(String, u64)>,
    /// When it was last used, in uses.
    pub(super) used: u64,
}

impl Recent {
    /// From the log's newest turns.
    pub(super) fn rebuild(last_turn: u64, logged: &[Logged]) -> Self {
        let mut recent = Self { last_turn, ..Self::default() };
        for turn in logged {
            recent.name(turn.user.id.as_deref(), turn.turn);
            if let Some((_, end)) = &turn.end {
                recent.push(turn.past(end.outcome));
            }
        }
        recent
    }

    /// Remembers the client id of the message that opened a turn.
    pub(super) fn name(&mut self, id: Option<&str>, turn: u64) {
        self.ids.extend(id.map(|id| (id.to_owned(), turn)));
        if self.ids.len() > limits::MESSAGE_IDS_KEPT {
            self.ids.pop_front();
        }
    }

    /// The turn that a message of this client id opened.
    pub(super) fn known(&self, id: &str) -> Option<u64> {
        self.ids.iter().find(|(known, _)| known == id).map(|&(_, turn)| turn)
    }

    /// Lets go of a turn whose beginning was not taken.
    pub(super) fn forget(&mut self, turn: u64) {
        self.running.remove(&turn);
        self.ids.retain(|&(_, named)| named != turn);
    }

    /// Adds a turn that ended and lets go of what no window needs any more.
    pub(super) fn push(&mut self, turn: PastTurn) {
        if !turn.is_answered() {
            return;
        }
        // Turns of a session end in their order; a late one would still find its place.
        let place = self.past.partition_point(|p| p.turn() < turn.turn());
        self.bytes += turn.bytes();
        let oldest = window::oldest_needed(turn.turn());
        self.past.insert(place, turn);
        while self.past.front().is_some_and(|p| p.turn() < oldest) {
            if let Some(gone) = self.past.pop_front() {
                self.bytes -= gone.bytes();
            }
        }
        for past in &mut self.past {
            if self.bytes <= limits::WINDOW_BYTES_MAX {
                break;
            }
            self.bytes -= past.bytes();
            past.let_go();
        }
    }

    /// The ended turns.
    pub(super) fn past(&self) -> Vec<PastTurn> {
        self.past.iter().cloned().collect()
    }

    /// The newest turn's number, and the turns that the log may not have whole, each with the
    /// line of a running answer.
    pub(super) fn unread(&self, now_ms: i64) -> (u64, Vec<(Logged, Option<Line>)>) {
        let ended = self.uncommitted.values().map(|logged| (logged.clone(), None));
        let running = self.running.iter().map(|(turn, running)| {
            let line = (!running.shown.is_empty()).then(|| Line {
                turn: *turn,
                from_person: false,
                text: running.shown.clone(),
                at_ms: now_ms,
                outcome: Some("running"),
                id: None,
                about: About::default(),
            });
            (running.begun.clone(), line)
        });
        (self.last_turn, ended.chain(running).collect())
    }
}
