//! Who hears what is said in a session: any number of readers, none of which a turn waits for.
//!
//! A turn's text is kept once, while it runs, and every reader has a place in it. A reader that is
//! slow finds at its next look all that came meanwhile as one piece: nothing is queued for it, so
//! nothing can overflow and nothing is lost.
//!
//! # Invariants
//! - Each reader is told a turn's pieces in order, and its end exactly once, after its last piece.
//! - The pieces a reader was told, after what its [`Snap`] had, are the text of the turn.
//! - A turn that nobody ends is ended when its `Telling` goes.

mod hall;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::TurnEvent;
use hall::{Feed, Hall};
pub use hall::{Happening, Snap};

/// All readers of all sessions.
#[derive(Debug, Default)]
pub struct Audience {
    hall: Mutex<Hall>,
}

/// One reader's place. It is given up when dropped.
#[derive(Debug)]
pub struct Seat {
    audience: Arc<Audience>,
    number: u64,
    wake: Arc<Notify>,
}

/// What happens in one turn, for whoever asked for it.
#[derive(Debug)]
pub struct TurnEvents {
    seat: Seat,
    ended: bool,
}

/// A person's message, as those who follow its session are told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// What was typed.
    pub text: String,
    /// The id that its client gave it.
    pub id: Option<String>,
}

impl From<&str> for Said {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), id: None }
    }
}

/// The right to tell one turn to its readers. Clones tell the same turn.
#[derive(Debug, Clone)]
pub(super) struct Telling(Arc<Told>);

#[derive(Debug)]
struct Told {
    audience: Arc<Audience>,
    feed: u64,
}

impl Audience {
    /// A place that hears nothing yet.
    #[must_use]
    pub fn seat(self: &Arc<Self>) -> Seat {
        let wake = Arc::new(Notify::new());
        let number = self.hall().enter(Arc::clone(&wake));
        Seat { audience: Arc::clone(self), number, wake }
    }

    /// How many readers there are.
    #[cfg(test)]
    pub(crate) fn readers(&self) -> usize {
        self.hall().readers()
    }

    /// Opens a turn: everybody who follows its session hears of it, but for the seat `by`, which
    /// knows what it said.
    pub(super) fn begin(
        self: &Arc<Self>,
        session: &str,
        turn: u64,
        said: impl Into<Said>,
        by: Option<u64>,
    ) -> (Telling, TurnEvents) {
        let seat = self.seat();
        let feed = self.hall().begin(session, turn, said.into(), by);
        self.hall().hear(seat.number, feed);
        let told = Told { audience: Arc::clone(self), feed };
        (Telling(Arc::new(told)), TurnEvents { seat, ended: false })
    }

    /// Hears a turn that runs or waits, from its beginning; `None` if there is none.
    pub(super) fn join(self: &Arc<Self>, session: &str, turn: u64) -> Option<TurnEvents> {
        let seat = self.seat();
        let joined = self.hall().join(seat.number, session, turn);
        joined.then_some(TurnEvents { seat, ended: false })
    }

    /// Hears a turn that has ended: what was shown, then its end. Nobody else hears of it.
    pub(super) fn retell(
        self: &Arc<Self>,
        session: &str,
        turn: u64,
        text: String,
        end: TurnEvent,
    ) -> TurnEvents {
        let seat = self.seat();
        self.hall().retell(seat.number, Feed::ended(session, turn, text, end));
        TurnEvents { seat, ended: false }
    }

    /// Tells the followers of a session that it has another title.
    pub(super) fn titled(&self, session: &str, title: &str, updated_ms: i64) {
        self.hall().note(&Happening::Titled {
            session: session.to_owned(),
            title: title.to_owned(),
            updated_ms,
        });
    }

    /// Tells the followers of a session that it is no more.
    pub(super) fn deleted(&self, session: &str) {
        self.hall().note(&Happening::Deleted { session: session.to_owned() });
    }

    fn hall(&self) -> MutexGuard<'_, Hall> {
        // Nothing in a critical section leaves the hall half changed.
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// The number that names this reader in a `Submission`.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// From now on hears what happens in a session. Returns its unfinished turns as they are now;
    /// what is told of them from here on continues these texts.
    pub fn follow(&self, session: &str) -> Vec<Snap> {
        self.audience.hall().follow(self.number, session)
    }

    /// Whether a session is followed.
    #[must_use]
    pub fn follows(&self, session: &str) -> bool {
        self.audience.hall().follows(self.number, session)
    }

    /// The oldest turn of a session of which something is still to be told, or was to be told
    /// when this was asked.
    #[must_use]
    pub fn untold_from(&self, session: &str) -> Option<u64> {
        self.audience.hall().untold_from(self.number, session)
    }

    /// Hears from now on what the other was to hear of its turn, if it does not already.
    pub fn adopt(&self, turn: TurnEvents) {
        self.audience.hall().adopt(self.number, turn.seat.number);
        drop(turn);
    }

    /// Whether every turn that was heard of has been told to its end.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.audience.hall().is_idle(self.number)
    }

    /// The next happening.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn next(&mut self) -> Happening {
        loop {
            let next = self.audience.hall().next(self.number);
            if let Some(happening) = next {
                return happening;
            }
            // A wake-up between the look and the wait is kept by the `Notify`.
            self.wake.notified().await;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.audience.hall().leave(self.number);
    }
}

impl TurnEvents {
    /// Whether all there is to hear is there already.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended || self.seat.audience.hall().is_over(self.seat.number)
    }

    /// What happens next in the turn; `None` after its end.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn recv(&mut self) -> Option<TurnEvent> {
        while !self.ended {
            match self.seat.next().await {
                Happening::Turn { event, .. } => {
                    self.ended = event.is_end();
                    return Some(event);
                }
                // One turn is never too far behind, and nothing else is heard here.
                Happening::Behind => self.ended = true,
                _ => {}
            }
        }
        None
    }
}

impl Telling {
    /// Tells the wait.
    pub(super) fn waiting(&self, about_s: u32) {
        self.0.audience.hall().waiting(self.0.feed, about_s);
    }

    /// Tells words.
    pub(super) fn text(&self, text: &str) {
        self.0.audience.hall().text(self.0.feed, text);
    }

    /// Tells the end. Only the first one counts.
    pub(super) fn end(&self, end: TurnEvent) {
        self.0.audience.hall().end(self.0.feed, end);
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let words = "the turn ended without an answer".to_owned();
        self.audience.hall().end(self.feed, TurnEvent::Failed { words, code: "internal" });
    }
}

#[cfg(test)]
mod tests;
