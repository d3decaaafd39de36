//! What the doors may ask of the agent, answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::audience::Audience;
use super::service::{Agent, Incoming, Shared};
use super::{Converse, Refused, Submission, Turn};
use crate::limits;
use crate::provider::sanitise;
use crate::session;
use crate::session::list::ChangeError;
use crate::session::log::Line;
use crate::session::wire::SessionInfo;
use crate::store::{SessionRow, StoreError};

impl Converse for Agent {
    fn submit(&self, submission: Submission) -> BoxFuture<'_, Result<Turn, Refused>> {
        async move {
            let submission = check(&self.shared, submission)?;
            let (reply, answer) = oneshot::channel();
            match self.inbox.try_send(Incoming::Message(submission, reply)) {
                Ok(()) => answer.await.unwrap_or(Err(Refused::Stopping)),
                Err(mpsc::error::TrySendError::Full(_)) => Err(Refused::Overloaded),
                Err(mpsc::error::TrySendError::Closed(_)) => Err(Refused::Stopping),
            }
        }
        .boxed()
    }

    fn cancel(&self, session: Option<&str>) -> bool {
        let session = session.unwrap_or(session::MAIN);
        let running = self.shared.running();
        let Some(turns) = running.get(session) else { return false };
        for (_, cancel) in turns {
            cancel.cancel();
        }
        !turns.is_empty()
    }

    fn history(
        &self,
        session: Option<&str>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Line>, Refused>> {
        let session = session::resolve(session).map(str::to_owned);
        async move {
            let session = session.map_err(|_| Refused::BadSession)?;
            let lines = self.shared.sessions.history(&session, limit).await;
            lines.map_err(|error| Refused::NotStored(error.to_string()))
        }
        .boxed()
    }

    fn earlier<'a>(
        &'a self,
        session: Option<&'a str>,
        before: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Line>, Refused>> {
        async move {
            let session = session::resolve(session).map_err(|_| Refused::BadSession)?;
            let lines = self.shared.sessions.earlier(session, before, limit).await;
            lines.map_err(|error| Refused::NotStored(error.to_string()))
        }
        .boxed()
    }

    fn audience(&self) -> &Arc<Audience> {
        &self.shared.audience
    }

    fn sessions(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Refused>> {
        async move {
            let rows = self.shared.sessions.list(limits::SESSIONS_LISTED_MAX).await;
            Ok(rows.map_err(not_stored)?.into_iter().map(info).collect())
        }
        .boxed()
    }

    fn rename<'a>(
        &'a self,
        session: &'a str,
        title: &'a str,
    ) -> BoxFuture<'a, Result<SessionInfo, Refused>> {
        async move {
            let session = session::resolve(Some(session)).map_err(|_| Refused::BadSession)?;
            let clean = sanitise::untrusted(title);
            let title = clean.split_whitespace().collect::<Vec<_>>().join(" ");
            if !(1..=limits::SESSION_TITLE_CHARS_MAX).contains(&title.chars().count()) {
                return Err(Refused::BadTitle { max: limits::SESSION_TITLE_CHARS_MAX });
            }
            let row = self.shared.sessions.rename(session, &title).await.map_err(unchanged)?;
            self.shared.audience.titled(session, &title, row.updated_ms);
            Ok(info(row))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), Refused>> {
        async move {
            let session = session::resolve(Some(session)).map_err(|_| Refused::BadSession)?;
            if self.shared.running().contains_key(session) {
                return Err(Refused::Running);
            }
            self.shared.sessions.delete(session).await.map_err(unchanged)?;
            self.shared.audience.deleted(session);
            Ok(())
        }
        .boxed()
    }
}

fn unchanged(error: ChangeError) -> Refused {
    match error {
        ChangeError::NoSuchSession => Refused::NoSuchSession,
        ChangeError::Running => Refused::Running,
        ChangeError::Store(error) => not_stored(error),
    }
}

/// What a store's error means for whoever asked.
pub(super) fn not_stored(error: StoreError) -> Refused {
    match error {
        StoreError::Overloaded => Refused::Overloaded,
        StoreError::Closed => Refused::Stopping,
        other => Refused::NotStored(other.to_string()),
    }
}

fn info(row: SessionRow) -> SessionInfo {
    let at = Timestamp::from_millisecond(row.updated_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    SessionInfo { chat_id: row.id, title: row.title, updated_at: at.to_string() }
}

/// Refuses what cannot be taken on, before anything is stored.
fn check(shared: &Shared, submission: Submission) -> Result<Submission, Refused> {
    if shared.stopping.load(Ordering::SeqCst) {
        return Err(Refused::Stopping);
    }
    let bytes = submission.text.len();
    if bytes > limits::MESSAGE_BYTES_MAX {
        return Err(Refused::TooLong { bytes, max: limits::MESSAGE_BYTES_MAX });
    }
    if sanitise::untrusted(&submission.text).trim().is_empty() {
        return Err(Refused::Empty);
    }
    let session = session::resolve(submission.session.as_deref());
    let session = session.map_err(|_| Refused::BadSession)?;
    if let Some(name) = &submission.backend
        && !shared.provider.has(name)
    {
        return Err(Refused::NoSuchBackend(name.clone()));
    }
    let running = shared.running();
    let waiting = running.get(session).map_or(0, Vec::len);
    let all: usize = running.values().map(Vec::len).sum();
    if waiting > limits::TURNS_WAITING_MAX || all >= limits::TURNS_MAX {
        return Err(Refused::Overloaded);
    }
    let session = Some(session.to_owned());
    drop(running);
    Ok(Submission { session, ..submission })
}
