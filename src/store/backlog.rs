//! Writes that are not committed yet, in their order, and what happens when they become too many
//! (pure).

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::{StoreError, Write};
use crate::limits;

/// Stands where shown text of an unfinished turn was given up.
const LOST_MARK: &str = "[…]";

/// What one row costs beyond its text, in bytes; keeps many empty writes from being free.
const ROW_BYTES: usize = 128;

/// A write and whoever waits for it. Once a write has failed nobody waits any more.
pub(super) struct Pending {
    pub(super) write: Write,
    pub(super) answer: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl Pending {
    /// Tells whoever waits.
    pub(super) fn answer(&mut self, result: Result<(), StoreError>) {
        if let Some(answer) = self.answer.take() {
            // Whoever asked may have gone.
            let _ = answer.send(result);
        }
    }
}

/// Uncommitted writes, oldest first.
#[derive(Default)]
pub(super) struct Backlog {
    pub(super) pending: VecDeque<Pending>,
}

impl Backlog {
    /// How many of the oldest writes make the next transaction.
    pub(super) fn slice(&self) -> usize {
        let mut bytes = 0;
        let count = self.pending.iter().take_while(|p| {
            bytes += bytes_of(&p.write);
            bytes <= limits::STORE_SLICE_BYTES
        });
        count.count().max(1).min(self.pending.len())
    }

    /// Called after the disk refused: answers everybody, keeps what fits. Returns how many shown
    /// deltas were given up.
    pub(super) fn keep(&mut self, error: &StoreError) -> u64 {
        self.compact(error);
        let mut bytes: usize = self.pending.iter().map(|p| bytes_of(&p.write)).sum();
        // A message that has just come can still be refused; its person is told.
        while bytes > limits::STORE_BACKLOG_BYTES_MAX {
            let Some(index) = self
                .pending
                .iter()
                .rposition(|p| matches!(p.write, Write::Begin { .. }) && p.answer.is_some())
            else {
                break;
            };
            if let Some(mut refused) = self.pending.remove(index) {
                bytes -= bytes_of(&refused.write);
                refused.answer(Err(StoreError::Overloaded));
            }
        }
        let mut lost = 0;
        for pending in &mut self.pending {
            if bytes <= limits::STORE_BACKLOG_BYTES_MAX {
                break;
            }
            if let Write::Partial { text, .. } = &mut pending.write
                && text.len() > LOST_MARK.len()
            {
                bytes -= text.len() - LOST_MARK.len();
                LOST_MARK.clone_into(text);
                lost += 1;
            }
        }
        for pending in &mut self.pending {
            pending.answer(Err(error.clone()));
        }
        lost
    }

    /// Joins the deltas of a turn into one row and drops those of turns that end in here, whose
    /// end holds the whole text. Nothing is lost.
    fn compact(&mut self, error: &StoreError) {
        let mut out: VecDeque<Pending> = VecDeque::with_capacity(self.pending.len());
        for mut next in std::mem::take(&mut self.pending) {
            match &mut next.write {
                Write::Partial { session, turn, text } => {
                    let earlier = out.iter_mut().rev().find_map(|p| match &mut p.write {
                        Write::Partial { session: s, turn: t, text }
                            if s == session && t == turn =>
                        {
                            Some(text)
                        }
                        _ => None,
                    });
                    if let Some(earlier) = earlier {
                        earlier.push_str(text);
                        next.answer(Err(error.clone()));
                        continue;
                    }
                }
                Write::Finish { session, turn, .. } => out.retain_mut(|p| {
                    let replaced = matches!(&p.write,
                        Write::Partial { session: s, turn: t, .. } if s == session && t == turn);
                    if replaced {
                        p.answer(Err(error.clone()));
                    }
                    !replaced
                }),
                // What came before for the session goes with it.
                Write::Delete { session } => out.retain_mut(|p| {
                    let gone = session_of(&p.write) == Some(session.as_ref());
                    if gone {
                        p.answer(Err(error.clone()));
                    }
                    !gone
                }),
                Write::Note { name, .. } => out.retain_mut(|p| {
                    let replaced =
                        matches!(&p.write, Write::Note { name: earlier, .. } if earlier == name);
                    if replaced {
                        p.answer(Err(error.clone()));
                    }
                    !replaced
                }),
                Write::Begin { .. } | Write::Rename { .. } => {}
            }
            out.push_back(next);
        }
        self.pending = out;
    }
}

fn session_of(write: &Write) -> Option<&str> {
    match write {
        Write::Note { .. } => None,
        Write::Begin { session, .. }
        | Write::Partial { session, .. }
        | Write::Finish { session, .. }
        | Write::Rename { session, .. }
        | Write::Delete { session } => Some(session),
    }
}

fn bytes_of(write: &Write) -> usize {
    ROW_BYTES
        + match write {
            Write::Partial { text, .. } => text.len(),
            Write::Rename { title, .. } => title.len(),
            Write::Note { name, body } => name.len() + body.len(),
            Write::Delete { .. } => 0,
            Write::Begin { events, .. } | Write::Finish { events, .. } => {
                events.iter().map(|e| ROW_BYTES + e.body.len()).sum()
            }
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NewEvent;

    fn partial(turn: u64, text: &str) -> Write {
        Write::Partial { session: "a".into(), turn, text: text.into() }
    }

    fn begin(turn: u64, bytes: usize) -> Write {
        let events = vec![NewEvent { at_ms: 0, kind: "user", body: vec![0; bytes] }];
        Write::Begin { session: "a".into(), title: String::new(), profile: "p", turn, events }
    }

    fn finish(turn: u64, bytes: usize) -> Write {
        let events = vec![NewEvent { at_ms: 0, kind: "end", body: vec![0; bytes] }];
        Write::Finish { session: "a".into(), turn, events }
    }

    type Answers = Vec<oneshot::Receiver<Result<(), StoreError>>>;

    fn backlog(writes: Vec<Write>) -> (Backlog, Answers) {
        let mut backlog = Backlog::default();
        let mut answers = Vec::new();
        for write in writes {
            let (answer, receiver) = oneshot::channel();
            backlog.pending.push_back(Pending { write, answer: Some(answer) });
            answers.push(receiver);
        }
        (backlog, answers)
    }

    fn writes(backlog: &Backlog) -> Vec<Write> {
        backlog.pending.iter().map(|p| p.write.clone()).collect()
    }

    #[test]
    fn deltas_are_joined_and_those_of_ended_turns_dropped() {
        let (mut backlog, mut answers) = backlog(vec![
            begin(1, 1),
            partial(1, "a"),
            begin(2, 1),
            partial(2, "x"),
            partial(1, "b"),
            partial(2, "y"),
            finish(2, 1),
            partial(1, "c"),
        ]);
        assert_eq!(backlog.keep(&StoreError::Full), 0);
        let expected = [begin(1, 1), partial(1, "abc"), begin(2, 1), finish(2, 1)];
        assert_eq!(writes(&backlog), expected);
        for answer in &mut answers {
            assert_eq!(answer.try_recv(), Ok(Err(StoreError::Full)), "everybody is answered");
        }
    }

    #[test]
    fn beyond_the_bound_new_messages_are_refused_then_the_oldest_deltas_marked() {
        let third = limits::STORE_BACKLOG_BYTES_MAX / 3;
        let (mut backlog, _answers) = backlog(vec![finish(1, third), begin(2, 10)]);
        backlog.keep(&StoreError::Full);
        let (answer, mut refused) = oneshot::channel();
        let deltas = [partial(2, &"o".repeat(third)), partial(3, &"n".repeat(third))];
        for write in deltas {
            backlog.pending.push_back(Pending { write, answer: None });
        }
        backlog.pending.push_back(Pending { write: begin(4, third), answer: Some(answer) });
        assert_eq!(backlog.keep(&StoreError::Full), 1);
        assert_eq!(refused.try_recv(), Ok(Err(StoreError::Overloaded)));
        let expected =
            [finish(1, third), begin(2, 10), partial(2, LOST_MARK), partial(3, &"n".repeat(third))];
        assert_eq!(writes(&backlog), expected);
        assert_eq!(backlog.keep(&StoreError::Full), 0, "a mark is not marked again");
    }

    #[test]
    fn a_slice_is_never_empty_and_never_more_than_there_is() {
        let huge = limits::STORE_SLICE_BYTES * 2;
        for (list, slice) in [
            (vec![], 0),
            (vec![finish(1, huge), finish(2, 1)], 1),
            (vec![finish(1, 1), finish(2, huge)], 1),
            (vec![finish(1, 1), finish(2, 1)], 2),
        ] {
            assert_eq!(backlog(list).0.slice(), slice);
        }
    }

    #[test]
    fn only_the_last_note_of_a_name_is_kept() {
        let note = |name: &str, body: u8| Write::Note { name: name.into(), body: vec![body] };
        let (mut backlog, mut answers) =
            backlog(vec![note("a", 1), note("b", 1), begin(1, 1), note("a", 2)]);
        backlog.keep(&StoreError::Full);
        assert_eq!(writes(&backlog), [note("b", 1), begin(1, 1), note("a", 2)]);
        for answer in &mut answers {
            assert_eq!(answer.try_recv(), Ok(Err(StoreError::Full)));
        }
    }

    #[test]
    fn what_comes_after_a_delete_is_not_joined_with_what_went_with_it() {
        let delete = || Write::Delete { session: "a".into() };
        let (mut backlog, mut answers) =
            backlog(vec![begin(1, 1), partial(1, "old"), delete(), begin(1, 2), partial(1, "new")]);
        backlog.keep(&StoreError::Full);
        assert_eq!(writes(&backlog), [delete(), begin(1, 2), partial(1, "new")]);
        for answer in &mut answers {
            assert_eq!(answer.try_recv(), Ok(Err(StoreError::Full)));
        }
    }
}
