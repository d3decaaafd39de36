//! Closing what a crash left open, before the first turn of this process.

use std::collections::BTreeSet;

use super::Sessions;
use super::log::{self, Assistant, End, Outcome};
use crate::store::{OpenTurn, StoreError, Write};

impl Sessions {
    /// Closes every turn that a crash left open as `interrupted`, with what it had shown as its
    /// answer. Done once, before the first turn: here at start, or, if the database cannot be had
    /// then, when the first session is opened. Returns how many were closed.
    ///
    /// Each turn is tried once. One that the database still lists afterwards, or refuses to close,
    /// is left as it is and told in the log of the program: a row that nothing can move must not
    /// keep everybody from talking.
    ///
    /// # Errors
    /// As the store answers; turns that were closed stay closed, and the next call goes on.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let mut tried: BTreeSet<(String, u64)> = BTreeSet::new();
        let mut closed = 0;
        while !self.locked().recovered {
            let mut left = self.store.open_turns().await?;
            let listed = left.len();
            left.retain(|turn| !tried.contains(&(turn.session.clone(), turn.turn)));
            let mut acks = Vec::new();
            {
                let mut open = self.locked();
                // Read before somebody else was done: these may be turns that run.
                if open.recovered {
                    break;
                }
                open.recovered = left.is_empty();
                if open.recovered && listed > 0 {
                    tracing::error!(turns = listed, "turns of a crash cannot be closed");
                }
                for turn in &left {
                    match self.store.submit(interrupted(turn, self.now_ms())) {
                        Ok(ack) => acks.push((turn, ack)),
                        // What found no place is left for the next round.
                        Err((StoreError::Overloaded, _)) if !acks.is_empty() => break,
                        Err((error, _)) => return Err(error),
                    }
                }
            }
            for (turn, ack) in acks {
                tried.insert((turn.session.clone(), turn.turn));
                match ack.wait().await {
                    Ok(()) => closed += 1,
                    // Kept in memory, and before whatever comes later.
                    Err(error) if error.is_kept() => {
                        closed += 1;
                        self.locked().recovered = true;
                    }
                    Err(StoreError::Refused(reason)) => {
                        let (session, turn) = (&turn.session, turn.turn);
                        tracing::error!(session, turn, reason, "a turn cannot be closed");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(closed)
    }
}

/// The end of a turn that a crash left open.
fn interrupted(turn: &OpenTurn, at_ms: i64) -> Write {
    let answer = (!turn.shown.is_empty())
        .then(|| Assistant { raw: turn.shown.clone(), ..Assistant::default() });
    Write::Finish {
        session: turn.session.as_str().into(),
        turn: turn.turn,
        events: log::end_events(at_ms, answer.as_ref(), &End::new(Outcome::Interrupted)),
    }
}
