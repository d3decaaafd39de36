//! The slot of one backend, leased by priority.
//!
//! A model server decodes one answer at a time, and a second request sent to hailo-ollama gets
//! not even a status line until the first one ends. So requests wait here, where the wait can be
//! seen, ordered and ended. The owner goes first; background work starts only when the owner has
//! been quiet, and gives way at once.
//!
//! Continuation awareness: the server's cache holds one conversation. Among waiters of one
//! priority the one that continues it goes first, because anybody else would make it pay its
//! whole prefill again; but nobody is passed over more than `PASSED_OVER_MAX` times.
//!
//! Not here: what a job does with the slot, and whether the server is well (`gate`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::limits;

/// How often a waiter may be passed over by one that continues the cached conversation: twice
/// saves most prefills of a chat beside another one, and delays nobody by more than two answers.
const PASSED_OVER_MAX: u32 = 2;

/// Who wants the slot, most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// A person waits.
    Owner,
    /// A person's scheduled work.
    OwnersJob,
    /// The agent's critique of its own answers.
    Reflection,
    /// The agent's own questions.
    Curiosity,
}

impl Priority {
    /// Background work starts only when the owner is quiet, and is preempted.
    #[must_use]
    pub fn is_background(self) -> bool {
        matches!(self, Self::Reflection | Self::Curiosity)
    }

    /// Whether a holder of this priority gives way to `other` before it is done.
    fn gives_way_to(self, other: Self) -> bool {
        other < self && self != Self::Owner
    }
}

/// A wish for the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Who asks.
    pub priority: Priority,
    /// Which conversation it would continue.
    pub conversation: u64,
    /// How long it will hold the slot, at most, as far as is known.
    pub expected: Duration,
}

/// Why somebody is not even let into the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The line is full.
    #[error("too many jobs wait for this backend")]
    Overloaded,
    /// No background work is allowed now.
    #[error("background work rests")]
    Resting,
}

/// The slot of one backend.
#[derive(Debug)]
pub struct Lease {
    inner: Mutex<Inner>,
    changed: Notify,
    /// How long the owner must have been quiet before background work may start.
    background_quiet: Duration,
}

/// The slot, held. Dropping it frees the slot.
#[derive(Debug)]
pub struct Slot {
    lease: Arc<Lease>,
    id: u64,
    preempted: CancellationToken,
}

#[derive(Debug, Default)]
struct Inner {
    next_id: u64,
    holder: Option<Holder>,
    waiters: Vec<Waiter>,
    /// The server is busy with the rest of a dropped request until then.
    busy_until: Option<Instant>,
    /// When an owner last held the slot.
    owner_seen: Option<Instant>,
    /// The conversation in the server's cache.
    resident: Option<u64>,
    /// Background work is not let in.
    rests: bool,
}

#[derive(Debug)]
struct Holder {
    id: u64,
    ask: Ask,
    expected_end: Instant,
    preempted: CancellationToken,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    ask: Ask,
    passed_over: u32,
}

/// Takes a waiter out of the line when its future is dropped.
struct Place<'a> {
    lease: &'a Lease,
    id: u64,
}

impl Lease {
    /// A free slot.
    #[must_use]
    pub fn new(background_quiet: Duration) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), changed: Notify::new(), background_quiet })
    }

    /// Waits for the slot. `waiting` is told about how long it will take, at once and whenever
    /// the line changes; it is not called if the slot is free.
    ///
    /// # Errors
    /// `Overloaded` if `limits::LEASE_WAITERS_MAX` wait already, `Resting` for background work
    /// while it is not allowed, also if that begins during the wait.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line.
    pub async fn acquire(
        self: &Arc<Self>,
        ask: Ask,
        mut waiting: impl FnMut(Duration),
    ) -> Result<Slot, Denied> {
        let place = self.enter(ask)?;
        let mut told = None;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that a change between look and wait is not missed.
            changed.as_mut().enable();
            let now = Instant::now();
            let wake_at = match self.try_take(place.id, now) {
                Turn::Yours(preempted) => {
                    let id = place.id;
                    std::mem::drop(place);
                    return Ok(Slot { lease: Arc::clone(self), id, preempted });
                }
                Turn::Never => return Err(Denied::Resting),
                Turn::NotYet { wake_at, about } => {
                    if told != Some(about.as_secs()) {
                        told = Some(about.as_secs());
                        waiting(about);
                    }
                    wake_at
                }
            };
            match wake_at {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = &mut changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Whether somebody holds the slot or the server is still busy with a dropped request.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let inner = self.lock();
        inner.holder.is_some() || inner.busy_until.is_some_and(|until| until > Instant::now())
    }

    /// Lets no background work in, or lets it in again. What runs gives way at once.
    pub fn rest(&self, rests: bool) {
        let mut inner = self.lock();
        inner.rests = rests;
        if rests
            && let Some(holder) = &inner.holder
            && holder.ask.priority.is_background()
        {
            holder.preempted.cancel();
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiters.len()
    }

    fn enter(&self, ask: Ask) -> Result<Place<'_>, Denied> {
        let mut inner = self.lock();
        if inner.rests && ask.priority.is_background() {
            return Err(Denied::Resting);
        }
        if inner.waiters.len() >= limits::LEASE_WAITERS_MAX {
            return Err(Denied::Overloaded);
        }
        inner.next_id += 1;
        let id = inner.next_id;
        if let Some(holder) = &inner.holder
            && holder.ask.priority.gives_way_to(ask.priority)
        {
            holder.preempted.cancel();
        }
        inner.waiters.push(Waiter { id, ask, passed_over: 0 });
        drop(inner);
        Ok(Place { lease: self, id })
    }

    fn try_take(&self, id: u64, now: Instant) -> Turn {
        let mut inner = self.lock();
        let turn = inner.take(id, now, self.background_quiet);
        drop(inner);
        if matches!(turn, Turn::Yours(_)) {
            // The others' estimates have changed.
            self.changed.notify_waiters();
        }
        turn
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Turn {
    Yours(CancellationToken),
    /// No background work is let in any more.
    Never,
    NotYet {
        /// When something changes by itself.
        wake_at: Option<Instant>,
        /// About how long until the slot is ours.
        about: Duration,
    },
}

impl Inner {
    fn take(&mut self, id: u64, now: Instant, quiet: Duration) -> Turn {
        let busy_until = self.busy_until.filter(|until| *until > now);
        let first = self.first_in_line(now, quiet);
        let Some(index) = self.waiters.iter().position(|w| w.id == id) else {
            // Only a waiter asks; without its place it waits for nothing and is woken by drop.
            return Turn::NotYet { wake_at: None, about: Duration::ZERO };
        };
        let ask = self.waiters[index].ask;
        if self.rests && ask.priority.is_background() {
            return Turn::Never;
        }
        if self.holder.is_none() && busy_until.is_none() && first == Some(index) {
            return Turn::Yours(self.grant(index, now));
        }
        let quiet_until = self.quiet_until(ask.priority, quiet).filter(|until| *until > now);
        let wake_at = match (busy_until, quiet_until) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let held = self
            .holder
            .as_ref()
            .map_or(Duration::ZERO, |h| h.expected_end.saturating_duration_since(now));
        let ahead: Duration = self
            .waiters
            .iter()
            .filter(|w| (w.ask.priority, w.id) < (ask.priority, id))
            .map(|w| w.ask.expected)
            .sum();
        let blocked = wake_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        Turn::NotYet { wake_at, about: held.max(blocked) + ahead }
    }

    /// Index of the waiter whose turn it is: best priority that may start, then the one that
    /// continues the cached conversation, then the oldest.
    fn first_in_line(&self, now: Instant, quiet: Duration) -> Option<usize> {
        let may_start =
            |w: &&Waiter| self.quiet_until(w.ask.priority, quiet).is_none_or(|until| until <= now);
        let best = self.waiters.iter().filter(may_start).map(|w| w.ask.priority).min()?;
        let of_best = || self.waiters.iter().enumerate().filter(|(_, w)| w.ask.priority == best);
        if let Some((index, _)) = of_best().find(|(_, w)| w.passed_over >= PASSED_OVER_MAX) {
            return Some(index);
        }
        of_best()
            .find(|(_, w)| Some(w.ask.conversation) == self.resident)
            .or_else(|| of_best().next())
            .map(|(index, _)| index)
    }

    fn grant(&mut self, index: usize, now: Instant) -> CancellationToken {
        let waiter = self.waiters.remove(index);
        for older in &mut self.waiters[..index] {
            if older.ask.priority == waiter.ask.priority {
                older.passed_over += 1;
            }
        }
        let preempted = CancellationToken::new();
        if self.waiters.iter().any(|w| waiter.ask.priority.gives_way_to(w.ask.priority)) {
            preempted.cancel();
        }
        if waiter.ask.priority == Priority::Owner {
            self.owner_seen = Some(now);
        }
        self.resident = Some(waiter.ask.conversation);
        self.busy_until = None;
        self.holder = Some(Holder {
            id: waiter.id,
            ask: waiter.ask,
            expected_end: now + waiter.ask.expected,
            preempted: preempted.clone(),
        });
        preempted
    }

    fn quiet_until(&self, priority: Priority, quiet: Duration) -> Option<Instant> {
        if !priority.is_background() {
            return None;
        }
        self.owner_seen.map(|seen| seen + quiet)
    }
}

impl Slot {
    /// Cancelled when somebody more important waits; the holder must let go at once.
    #[must_use]
    pub fn preempted(&self) -> &CancellationToken {
        &self.preempted
    }

    /// Frees the slot, but lets nobody in for `ghost`: the server is still busy with the rest of
    /// a request that was dropped.
    pub fn release_after(self, ghost: Duration) {
        if ghost > Duration::ZERO {
            self.lease.lock().busy_until = Some(Instant::now() + ghost);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        {
            let mut inner = self.lease.lock();
            if inner.holder.as_ref().is_some_and(|h| h.id == self.id)
                && let Some(holder) = inner.holder.take()
                && holder.ask.priority == Priority::Owner
            {
                inner.owner_seen = Some(Instant::now());
            }
        }
        self.lease.changed.notify_waiters();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let left = {
            let mut inner = self.lease.lock();
            let before = inner.waiters.len();
            inner.waiters.retain(|w| w.id != self.id);
            inner.waiters.len() != before
        };
        if left {
            self.lease.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
