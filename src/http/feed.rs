//! `GET /events`: what happens, as server-sent events, and the state whenever it changes.
//!
//! Happenings are read from the database, never from memory: a client that was away sends the
//! number of the last one it has (`Last-Event-ID`, or `?after=`) and gets the rest, in order, as
//! if it had been there. The state has no number; only its newest value matters.
//!
//! # Invariants
//! - A happening is told once, in the order of its number, and numbers only rise.
//! - At most `limits::FEEDS_MAX` readers; nothing is kept for one that is slow or gone.

use futures_util::stream::{self, Stream};
use hyper::body::Bytes;
use hyper::http::request::Parts;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use super::api::Service;
use super::connection::Work;
use super::reply::{self, Reply};
use super::state;
use crate::agent::{Converse, Refused};
use crate::event::feed::{Told, Wanted};
use crate::limits::{EVENTS_TOLD_FIRST, EVENTS_TOLD_MAX};
use crate::snapshot::Reader;
use std::sync::Arc;

/// How long a browser waits before it connects again, in milliseconds.
const RETRY_MS: u32 = 2000;

/// A reader of the feed.
struct Feed {
    converse: Arc<dyn Converse>,
    snapshot: Reader,
    stored: watch::Receiver<u64>,
    stop: CancellationToken,
    /// The number of the last happening that was told; absent before the first.
    after: Option<u64>,
    /// Beats that were told, counted since the daemon's start.
    pulses: u64,
    stage: Stage,
    _place: OwnedSemaphorePermit,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was told yet.
    New,
    /// There may be more in the database.
    Behind,
    /// The state is not told yet.
    Stale,
    /// All is told.
    Even,
}

/// Opens a feed, or says that there are too many.
pub(super) fn open(service: &Service, work: &Work, head: &Parts) -> Reply {
    let Some(place) = work.feed() else { return reply::too_many_feeds() };
    let feed = Feed {
        converse: Arc::clone(&service.converse),
        snapshot: service.snapshot.clone(),
        stored: service.converse.stored(),
        stop: work.stop(),
        after: last_seen(head),
        pulses: 0,
        stage: Stage::New,
        _place: place,
    };
    reply::events(pieces(feed))
}

/// Where the client stopped; what is not a number is taken for a client that is new.
fn last_seen(head: &Parts) -> Option<u64> {
    let header = head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let query = head.uri.query().unwrap_or_default();
    let asked = query.split('&').find_map(|pair| pair.strip_prefix("after="));
    header.or(asked)?.trim().parse().ok()
}

fn pieces(feed: Feed) -> impl Stream<Item = Bytes> + Send + 'static {
    stream::unfold(feed, |mut feed| async move {
        let text = feed.next().await?;
        Some((Bytes::from(text), feed))
    })
}

impl Feed {
    /// The next piece; none at the stop.
    async fn next(&mut self) -> Option<String> {
        loop {
            match self.stage {
                Stage::New => {
                    self.stage = Stage::Behind;
                    return Some(self.begin().await);
                }
                Stage::Behind => match self.more().await {
                    Some(text) => return Some(text),
                    None => self.stage = Stage::Stale,
                },
                Stage::Stale => {
                    self.stage = Stage::Even;
                    return Some(self.state());
                }
                Stage::Even => {
                    tokio::select! {
                        biased;
                        () = self.stop.cancelled() => return None,
                        told = self.stored.changed() => match told {
                            Ok(()) => self.stage = Stage::Behind,
                            Err(_) => return None,
                        },
                        () = self.snapshot.changed() => self.stage = Stage::Stale,
                    }
                }
            }
        }
    }

    /// The state with the beats that this reader has not seen: at first all that are kept.
    fn state(&mut self) -> String {
        let snapshot = self.snapshot.see();
        let told = std::mem::replace(&mut self.pulses, snapshot.body.counters.pulses);
        named("state", &state::with_beats_after(&snapshot, told))
    }

    /// The greeting. A client that knows a number which is not given yet speaks of another
    /// database; it is told so and starts anew.
    async fn begin(&mut self) -> String {
        let mut text = format!("retry: {RETRY_MS}\n\n");
        let newest = self.ask(Wanted::Last, 1).await.ok().and_then(|told| Some(told.last()?.id));
        if self.after.is_some_and(|after| newest.is_none_or(|newest| after > newest)) {
            text.push_str(&named("reset", &json!({ "newest": newest })));
            self.after = None;
        }
        if self.after.is_none()
            && let Ok(told) = self.ask(Wanted::Last, EVENTS_TOLD_FIRST).await
        {
            text.push_str(&self.tell(&told));
        }
        self.after.get_or_insert(0);
        text
    }

    /// Happenings that were not told yet. A database that cannot be read now is asked again when
    /// it was written.
    async fn more(&mut self) -> Option<String> {
        let after = Wanted::After(self.after.unwrap_or_default());
        let told = self.ask(after, EVENTS_TOLD_MAX).await.ok()?;
        (!told.is_empty()).then(|| self.tell(&told))
    }

    async fn ask(&self, wanted: Wanted, limit: usize) -> Result<Vec<Told>, Refused> {
        self.converse.happenings(wanted, limit).await
    }

    fn tell(&mut self, told: &[Told]) -> String {
        let mut text = String::new();
        for told in told {
            self.after = Some(told.id);
            text.push_str(&format!("id: {}\n", told.id));
            text.push_str(&named("happening", told));
        }
        text
    }
}

/// One event; JSON has no line ends outside its texts, where they are escaped.
fn named<T: Serialize>(event: &str, data: &T) -> String {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    format!("event: {event}\ndata: {data}\n\n")
}
