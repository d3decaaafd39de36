//! Writes happenings into the database, several at once if they come fast, and lets old ones go.
//!
//! # Invariants
//! - A happening is in the database before any reader of the feed hears of it, so a reader that
//!   was away finds the same as one that was there.
//! - What could not be written is kept by the store and written when it can be; if there is too
//!   much of it, words of conversations are worth more.

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::clock::WallClock;
use crate::config::sections::events::EventsKept;
use crate::event::{Event, Events, Group};
use crate::limits::{EVENTS_BATCH_MAX, EVENTS_FORGET_EVERY};
use crate::store::{Keep, NewHappening, Store, Write};

const DAY_MS: i64 = 86_400_000;

/// What the recorder needs.
#[derive(Clone)]
pub(super) struct Recorder {
    pub(super) events: Events,
    pub(super) store: Store,
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) kept: EventsKept,
}

/// Records until `stop`, then writes what was told before. `happenings` listens since before the
/// first happening.
pub(super) async fn run(
    recorder: Recorder,
    mut happenings: Receiver<Event>,
    stop: CancellationToken,
) {
    let mut forget_at = Instant::now();
    loop {
        let first = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            first = happenings.recv() => first,
            () = sleep_until(forget_at) => {
                forget_at = Instant::now() + EVENTS_FORGET_EVERY;
                let keep = recorder.keep();
                recorder.write(Write::Forget { keep }, &stop).await;
                continue;
            }
        };
        let first = match first {
            Ok(event) => event,
            Err(RecvError::Lagged(count)) => Event::EventsMissed { count },
            Err(RecvError::Closed) => break,
        };
        recorder.batch(Some(first), &mut happenings, &stop).await;
    }
    // The store commits what is queued when its own turn to stop has come.
    recorder.batch(None, &mut happenings, &stop).await;
}

impl Recorder {
    /// Writes `first` and what has come meanwhile.
    async fn batch(
        &self,
        first: Option<Event>,
        happenings: &mut Receiver<Event>,
        stop: &CancellationToken,
    ) {
        let mut rows: Vec<_> = first.iter().map(|event| self.row(event)).collect();
        while rows.len() < EVENTS_BATCH_MAX {
            match happenings.try_recv() {
                Ok(event) => rows.push(self.row(&event)),
                Err(TryRecvError::Lagged(count)) => {
                    rows.push(self.row(&Event::EventsMissed { count }));
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        if rows.is_empty() {
            return;
        }
        if self.write(Write::Tell { rows }, stop).await {
            self.events.mark_stored();
        }
    }

    /// True if it was committed. At the stop it is queued and nobody waits for the disk.
    async fn write(&self, write: Write, stop: &CancellationToken) -> bool {
        match self.store.submit(write) {
            Ok(ack) => tokio::select! {
                biased;
                () = stop.cancelled() => false,
                stored = ack.wait() => stored.is_ok(),
            },
            Err((error, _)) => {
                tracing::warn!(%error, "happenings could not be recorded");
                false
            }
        }
    }

    fn row(&self, event: &Event) -> NewHappening {
        let mut body = Vec::new();
        // Strings, numbers and lists: writing them into memory cannot fail.
        if ciborium::into_writer(event, &mut body).is_err() {
            body.clear();
        }
        NewHappening {
            at_ms: self.clock.now().as_millisecond(),
            group: event.group().as_str(),
            severity: event.severity(),
            kind: event.name(),
            body,
        }
    }

    fn keep(&self) -> Vec<Keep> {
        let now_ms = self.clock.is_set().then(|| self.clock.now().as_millisecond());
        let keep = Group::ALL.map(|group| {
            let days = match group {
                Group::Fault => self.kept.fault_days,
                Group::Body => self.kept.body_days,
                Group::Turn => self.kept.turn_days,
                Group::Beat => self.kept.beat_days,
            };
            Keep {
                group: group.as_str(),
                since_ms: now_ms.map(|now_ms| now_ms - i64::from(days) * DAY_MS),
                rows_max: self.kept.rows_max,
            }
        });
        keep.to_vec()
    }
}
