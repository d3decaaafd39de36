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
        self.compact();
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
    fn compact(&mut self) {
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
                        next.answer(Err(StoreError::Full));
                        continue;
                    }
                }
                Write::Finish { session, turn, .. } => out.retain(|p| {
                    !matches!(&p.write,
                        Write::Partial { session: s, turn: t, .. } if s == session && t == turn)
                }),
                Write::Begin { .. } => {}
            }
            out.push_back(next);
        }
        self.pending = out;
    }
}

fn bytes_of(write: &Write) -> usize {
    ROW_BYTES
        + match write {
            Write::Partial { text, .. } => text.len(),
            Write::Begin { events, .. } | Write::Finish { events, .. } => {
                events.iter().map(|e| ROW_BYTES + e.body.len()).sum()
            }
        }
}
