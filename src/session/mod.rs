//! Conversations: an append-only log in the database, and the recent turns in memory.
//!
//! [`Sessions`] is the one handle. It gives turns their numbers and queues every write in the
//! order in which it was called; what the model sees of a session is `window`'s decision.
//!
//! # Invariants
//! - A turn has one `user` event, at most one `assistant` event and exactly one `end`.
//! - What was shown is in the log, at the latest when the turn ends or the next process starts.
//! - The turns in memory are those the log has: rebuilt after a restart they are the same.
//!
//! # Absences
//! Running a turn (`agent`), and whether two may run at once: that is the agent's queue.

#[cfg(any(test, feature = "sim"))]
pub mod foreign;
mod history;
pub mod list;
pub mod log;
mod recent;
mod recover;
#[cfg(test)]
mod tests;
pub mod window;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::WallClock;
use crate::limits;
use crate::store::{Store, StoreError, Stored, Write};
use log::{Assistant, End, Logged, User};
use recent::{Recent, Running};
use window::PastTurn;

/// The session of a person who names none.
pub const MAIN: &str = "main";

/// The only profile so far.
const PROFILE: &str = "companion";

/// Conversations. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    store: Store,
    clock: Arc<dyn WallClock>,
    open: Arc<Mutex<Open>>,
}

/// A turn that was written to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// Its number within its session, from 1.
    pub turn: u64,
    /// False if the database cannot be written now: the message is in memory only.
    pub stored: bool,
}

/// Not 1 to 64 of `[A-Za-z0-9_:-]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a session name")]
pub struct BadId;

/// Sessions in memory.
#[derive(Default)]
struct Open {
    sessions: BTreeMap<Arc<str>, Recent>,
    uses: u64,
    /// Whether the turns that a crash left open have been closed.
    recovered: bool,
    /// Rises when a session is let go: what was read before may be older than what it had.
    evictions: u64,
}

/// The session a name stands for.
///
/// # Errors
/// [`BadId`] if it is not a session's name.
pub fn resolve(id: Option<&str>) -> Result<&str, BadId> {
    let id = id.unwrap_or(MAIN);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'-');
    let sound = (1..=limits::SESSION_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(allowed);
    if sound { Ok(id) } else { Err(BadId) }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Over an open store.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn WallClock>) -> Self {
        Self { store, clock, open: Arc::default() }
    }

    /// Brings a session's recent turns into memory, so that the first turn need not wait for it.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn open(&self, session: &str) -> Result<(), StoreError> {
        self.with(session, |_| ()).await
    }

    /// The turn that a message of this client id opened, if it is among the last ones
    /// (`limits::MESSAGE_IDS_KEPT`), after a restart too.
    ///
    /// # Errors
    /// As the store answers, if the session has to be read.
    pub async fn known(&self, session: &str, id: &str) -> Result<Option<u64>, StoreError> {
        self.with(session, |recent| recent.known(id)).await
    }

    /// Opens a turn with the person's message; creates the session with its first. Waits for the
    /// commit, but no longer than for one stalled database call. `id` is the client's name for the
    /// message; whether it came before is [`Sessions::known`]'s question.
    ///
    /// # Errors
    /// `Overloaded`, `Closed` and `Refused`: the message was not taken. While the disk is full or
    /// broken the turn begins all the same, with `stored` false.
    ///
    /// # Cancel safety
    /// Dropping it may leave a turn that never ends; do not.
    pub async fn begin(
        &self,
        session: &str,
        typed: &str,
        sent: &str,
        id: Option<&str>,
    ) -> Result<Begun, StoreError> {
        let at_ms = self.now_ms();
        let sent = (sent != typed).then(|| sent.to_owned());
        let user = User { typed: typed.to_owned(), sent, id: id.map(str::to_owned) };
        let events = vec![log::user_event(at_ms, &user)];
        let queued = self.with(session, |recent| {
            let turn = recent.last_turn + 1;
            // Queued under the lock: the order in the queue is the order of the numbers.
            let ack = self.store.submit(Write::Begin {
                session: session.into(),
                title: title(typed),
                profile: PROFILE,
                turn,
                events: events.clone(),
            });
            if ack.is_ok() {
                recent.last_turn = turn;
                recent.name(id, turn);
                let begun =
                    Logged { turn, user: user.clone(), user_at_ms: at_ms, ..Logged::default() };
                recent.running.insert(turn, Running { begun, ..Running::default() });
            }
            ack.map(|ack| (turn, ack)).map_err(|(error, _)| error)
        });
        let (turn, ack) = queued.await??;
        let stored = match ack.within(limits::STORE_BUSY_MAX).await {
            Stored::Yes => true,
            Stored::Late => false,
            Stored::No(error) if error.is_kept() => false,
            Stored::No(error) => {
                self.locked().act(session, |recent| recent.forget(turn));
                return Err(error);
            }
        };
        Ok(Begun { turn, stored })
    }

    /// Stores a piece of the answer; show it when this resolves. True if it was committed; false
    /// if the disk was slower than `limits::COMMIT_WAIT_MAX` or cannot be written, in which case
    /// the text follows as soon as it can.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn shown(&self, session: &str, turn: u64, text: &str) -> bool {
        let ack = self.locked().act(session, |recent| {
            let running = recent.running.get_mut(&turn)?;
            running.shown.push_str(text);
            running.deferred.push_str(text);
            let text = std::mem::take(&mut running.deferred);
            match self.store.submit(Write::Partial { session: session.into(), turn, text }) {
                Ok(ack) => Some(Some(ack)),
                Err((_, Write::Partial { text, .. })) => {
                    running.deferred = text;
                    Some(None)
                }
                Err(_) => Some(None),
            }
        });
        let stored = match ack.flatten() {
            // Not a running turn.
            None => return false,
            Some(None) => false,
            Some(Some(ack)) => ack.within(limits::COMMIT_WAIT_MAX).await == Stored::Yes,
        };
        if !stored {
            self.store.count_late();
        }
        stored
    }

    /// Ends a turn: its answer, as far as it came, and its end become one transaction. Without an
    /// answer whatever was shown becomes it. True if it was committed; false if the disk is slow,
    /// full or broken, in which case it follows as soon as it can. A second end does nothing.
    ///
    /// # Errors
    /// `Closed`, or `Overloaded` if even the reserved places of the queue are taken.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn finish(
        &self,
        session: &str,
        turn: u64,
        answer: Option<Assistant>,
        end: End,
    ) -> Result<bool, StoreError> {
        let at_ms = self.now_ms();
        let queued = self.locked().act(session, |recent| {
            let running = recent.running.remove(&turn)?;
            let answer = answer.or_else(|| {
                (!running.shown.is_empty())
                    .then(|| Assistant { raw: running.shown.clone(), ..Assistant::default() })
            });
            let events = log::end_events(at_ms, answer.as_ref(), &end);
            let outcome = end.outcome;
            let logged = Logged { assistant: answer, end: Some((at_ms, end)), ..running.begun };
            recent.push(logged.past(outcome));
            if self.store.is_settled() {
                recent.uncommitted.clear();
            }
            recent.uncommitted.insert(turn, logged);
            Some(self.store.submit(Write::Finish { session: session.into(), turn, events }))
        });
        let Some(Some(queued)) = queued else { return Ok(true) };
        let ack = queued.map_err(|(error, _)| error)?;
        match ack.within(limits::STORE_BUSY_MAX).await {
            Stored::Yes => {
                self.locked().act(session, |recent| recent.uncommitted.remove(&turn));
                Ok(true)
            }
            Stored::Late => Ok(false),
            Stored::No(error) if error.is_kept() => Ok(false),
            Stored::No(error) => Err(error),
        }
    }

    /// The ended turns of a session that a window may depend on, oldest first.
    ///
    /// # Errors
    /// As the store answers, if the session has to be read.
    pub async fn turns(&self, session: &str) -> Result<Vec<PastTurn>, StoreError> {
        self.with(session, |recent| recent.past()).await
    }

    /// Does something with a session in memory, reading it first if it is not there.
    async fn with<T>(
        &self,
        session: &str,
        act: impl FnOnce(&mut Recent) -> T,
    ) -> Result<T, StoreError> {
        self.recover().await?;
        loop {
            let evictions = {
                let mut open = self.locked();
                if open.sessions.contains_key(session) {
                    return open.act(session, act).ok_or(StoreError::Closed);
                }
                open.evictions
            };
            let last = self.store.last_turn(session).await?;
            let rows =
                self.store.events_of(session, window::oldest_needed(last + 1)..u64::MAX).await?;
            let recent = Recent::rebuild(last, &log::gather(&rows));
            let mut open = self.locked();
            // Read again if a session was let go meanwhile: it may have been this one.
            if open.evictions == evictions {
                open.make_room(self.store.is_settled())?;
                open.sessions.entry(session.into()).or_insert(recent);
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, Open> {
        // Nothing in a critical section leaves the map half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }
}

impl Open {
    /// Acts on a session that is in memory, counting the use.
    fn act<T>(&mut self, session: &str, act: impl FnOnce(&mut Recent) -> T) -> Option<T> {
        self.uses += 1;
        let recent = self.sessions.get_mut(session)?;
        recent.used = self.uses;
        Some(act(recent))
    }

    /// Lets go of the longest unused session if there are too many. While writes are on their
    /// way nothing is let go, since the log does not have it all; there is an end to that too.
    fn make_room(&mut self, settled: bool) -> Result<(), StoreError> {
        if !settled {
            let full = self.sessions.len() >= limits::SESSIONS_OPEN_MAX + limits::TURNS_MAX;
            return if full { Err(StoreError::Overloaded) } else { Ok(()) };
        }
        while self.sessions.len() >= limits::SESSIONS_OPEN_MAX {
            let idle = self.sessions.iter().filter(|(_, recent)| recent.running.is_empty());
            let Some(id) = idle.min_by_key(|(_, r)| r.used).map(|(id, _)| Arc::clone(id)) else {
                break;
            };
            self.sessions.remove(&id);
            self.evictions += 1;
        }
        Ok(())
    }
}

/// The title a session gets with its first message: the message's beginning, on one line.
#[must_use]
pub fn title(typed: &str) -> String {
    let words = typed.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(limits::SESSION_TITLE_CHARS).collect()
}
