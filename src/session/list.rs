//! The sessions as a list: found, renamed, taken away.

use super::Sessions;
use crate::limits;
use crate::store::{Ack, SessionRow, StoreError, Stored, Write};

/// Why a session was not taken away or renamed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// There is none of that name.
    #[error("there is no such session")]
    NoSuchSession,
    /// A turn runs or waits in it; cancel it first.
    #[error("a turn runs in this session")]
    Running,
    /// As the store answers.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Sessions {
    /// The sessions, the most recently used first.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn list(&self, limit: usize) -> Result<Vec<SessionRow>, StoreError> {
        self.store.sessions(limit).await
    }

    /// One session, if there is one of that name.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn find(&self, session: &str) -> Result<Option<SessionRow>, StoreError> {
        self.store.session(session).await
    }

    /// Gives a session another title; it is not touched otherwise, and keeps its place in the
    /// list.
    ///
    /// # Errors
    /// `NoSuchSession`, and as the store answers. A write that the store keeps for later is an
    /// error too: it is not on the disk.
    pub async fn rename(&self, session: &str, title: &str) -> Result<SessionRow, ChangeError> {
        let row = self.find(session).await?.ok_or(ChangeError::NoSuchSession)?;
        let write = Write::Rename { session: session.into(), title: title.to_owned() };
        settled(self.store.submit(write).map_err(|(error, _)| error)?).await?;
        Ok(SessionRow { title: title.to_owned(), ..row })
    }

    /// Takes a session away: from memory at once, and with all its rows in one transaction from
    /// the log. A message that comes later begins a new session of that name, from turn 1.
    ///
    /// # Errors
    /// `NoSuchSession`, `Running`, and as the store answers.
    pub async fn delete(&self, session: &str) -> Result<(), ChangeError> {
        self.recover().await?;
        if self.find(session).await?.is_none() {
            return Err(ChangeError::NoSuchSession);
        }
        let ack = {
            let mut open = self.locked();
            if open.sessions.get(session).is_some_and(|recent| !recent.running.is_empty()) {
                return Err(ChangeError::Running);
            }
            let write = Write::Delete { session: session.into() };
            // Queued under the lock: a turn that begins from now on comes after it.
            let ack = self.store.submit(write).map_err(|(error, _)| error)?;
            open.sessions.remove(session);
            // Whoever reads the session now read what it was.
            open.evictions += 1;
            ack
        };
        Ok(settled(ack).await?)
    }
}

async fn settled(ack: Ack) -> Result<(), StoreError> {
    match ack.within(limits::STORE_BUSY_MAX).await {
        // It is queued and will be done.
        Stored::Yes | Stored::Late => Ok(()),
        Stored::No(error) => Err(error),
    }
}
