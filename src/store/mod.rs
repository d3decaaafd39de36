//! The database: one SQLite file, one connection, one writer task; the only user of rusqlite.
//!
//! [`Store`] is a cheap handle with a bounded queue; [`StoreTask`] owns the connection. Everything
//! that is queued when the task looks goes into one transaction, and each job is answered after
//! its commit. A write that fails because the disk is full or broken is kept in memory and tried
//! again; the answer says so, and the conversation goes on.
//!
//! # Invariants
//! - Writes are committed in the order in which they were queued, each once.
//! - `seq` of a session's events starts at 1, rises and has no gaps.
//! - A damaged file is set aside, never deleted; a newer program's file is left untouched.
//! - After a commit a crash of the process loses nothing; a power cut loses at most what came
//!   after the last checkpoint, or nothing with `fsync_always`.
//!
//! # Absences
//! What an event means: bodies are bytes here (`session::log` knows them).

mod backlog;
mod bench;
mod classify;
mod disk;
pub mod file;
mod happenings;
pub mod medium;
mod rows;
mod schema;
mod task;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::clock::WallClock;
use crate::event::{Event, Events};
use crate::limits;

use medium::{Medium, Thread};
pub use rows::{EventRow, Keep, NewEvent, NewHappening, OpenTurn, SessionRow, Write};
pub use task::StoreTask;

/// Name of the database in the state directory.
pub const FILE_NAME: &str = "crayfish.db";

/// The kind of the event that ends a turn; the store refuses whatever comes for a turn after it.
pub const KIND_END: &str = "end";

/// Where the database is and how hard it tries.
#[derive(Debug, Clone)]
pub struct Options {
    /// The state directory; created with mode 0700 if it is not there.
    pub state_dir: PathBuf,
    /// True: every commit is on the medium before it is answered (`journal_fsync: always`).
    pub fsync_always: bool,
    /// Quiet time after which everything is brought onto the medium.
    pub idle_flush: Duration,
    /// Largest database in pages of 4 KiB; absent means SQLite's own bound.
    pub pages_max: Option<u32>,
}

/// Why the database did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No space. A write is kept in memory and tried again.
    #[error("the disk is full")]
    Full,
    /// The medium failed or is read-only. A write is kept in memory and tried again.
    #[error("the database cannot be written: {0}")]
    Io(String),
    /// The database was damaged; it has been set aside and a new one started. Only reads get
    /// this: a write is done again on the new one.
    #[error("the database was damaged: {0}")]
    Corrupt(String),
    /// Too much waits already. The job was not taken; try later.
    #[error("too much waits for the disk")]
    Overloaded,
    /// The job contradicts what is stored (a turn that exists or has ended). Not taken.
    #[error("refused: {0}")]
    Refused(String),
    /// The file was written by a newer program. It was left as it is.
    #[error("{path} has format {found}; this program knows up to {known}: use the newer program")]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        found: usize,
        /// The newest version known here.
        known: usize,
    },
    /// The store has shut down.
    #[error("the database is closed")]
    Closed,
}

impl StoreError {
    /// Whether a write that got this answer is kept and will be tried again.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Full | Self::Io(_))
    }
}

/// What became of a write after some wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// It is committed.
    Yes,
    /// Not yet: the disk is slow. It stays queued.
    Late,
    /// See [`StoreError::is_kept`] for whether it will be tried again.
    No(StoreError),
}

/// A write's answer, on its way. Dropping it does not take the write back.
#[derive(Debug)]
#[must_use = "a write is only known to be stored when its answer was awaited"]
pub struct Ack(oneshot::Receiver<Result<(), StoreError>>);

impl Ack {
    /// Waits for the commit without bound.
    ///
    /// # Errors
    /// As the task answers; `Closed` if it ended.
    pub async fn wait(self) -> Result<(), StoreError> {
        self.0.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits for the commit at most this long.
    pub async fn within(self, wait: Duration) -> Stored {
        match tokio::time::timeout(wait, self.wait()).await {
            Ok(Ok(())) => Stored::Yes,
            Ok(Err(error)) => Stored::No(error),
            Err(_) => Stored::Late,
        }
    }
}

/// How the database is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreHealth {
    /// True while writes fail and are kept in memory.
    pub degraded: bool,
    /// Writes kept in memory now.
    pub kept: u64,
    /// Shown deltas that were replaced by a mark because too much was kept, since the start.
    pub lost: u64,
    /// Deltas that were shown before they were committed, since the start.
    pub late: u64,
}

/// Counters shared by handle and task.
#[derive(Debug, Default)]
struct Gauges {
    degraded: AtomicBool,
    kept: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    /// Writes that were queued and neither committed nor given up.
    unsettled: AtomicU64,
}

/// What the task does with the connection for somebody.
type Read = Box<dyn FnOnce(Result<&rusqlite::Connection, StoreError>) -> Asked + Send>;

/// Whether a read found the database damaged.
type Asked = Result<(), String>;

/// One entry of the queue.
enum Job {
    Write(Write, oneshot::Sender<Result<(), StoreError>>),
    Read(Read),
    Flush(oneshot::Sender<Result<(), StoreError>>),
    Ping(oneshot::Sender<()>),
}

/// Handle of the database.
#[derive(Clone)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
    gauges: Arc<Gauges>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("health", &self.health()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database, setting a damaged one aside, and brings it to this program's format.
    /// Blocks for the disk; call it before the doors open. The task must be spawned.
    ///
    /// If no database can be had now (a full disk, a medium that fails) this succeeds all the
    /// same: the task tries again, and meanwhile reads fail and writes are kept.
    ///
    /// # Errors
    /// `Newer` for a newer program's file.
    pub fn open(
        options: Options,
        clock: Arc<dyn WallClock>,
        events: Events,
    ) -> Result<(Self, StoreTask), StoreError> {
        Self::open_on(Arc::new(Thread), options, clock, events)
    }

    /// As [`Store::open`], with calls that go through a medium of the caller's.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(
        medium: Arc<dyn Medium>,
        options: Options,
        clock: Arc<dyn WallClock>,
        events: Events,
    ) -> Result<(Self, StoreTask), StoreError> {
        let (jobs, queue) = mpsc::channel(limits::STORE_QUEUE);
        let gauges = Arc::new(Gauges::default());
        let idle_flush = options.idle_flush;
        let mut bench =
            bench::Bench::new(disk::Plan { options, medium, clock, events: events.clone() });
        match bench.open() {
            Err(error @ StoreError::Newer { .. }) => return Err(error),
            Err(error) => {
                gauges.degraded.store(true, Ordering::Relaxed);
                events.tell(Event::StoreDegraded { reason: error.to_string() });
            }
            Ok(()) => {}
        }
        let task = StoreTask::new(bench, queue, Arc::clone(&gauges), events, idle_flush);
        Ok((Self { jobs, gauges }, task))
    }

    /// Queues a write. Never waits: the order of writes is the order of these calls.
    ///
    /// # Errors
    /// `Overloaded` if the queue has no place for this kind of write (the ends of turns have
    /// places of their own), `Closed` after shutdown. The write comes back with the error.
    #[expect(clippy::result_large_err, reason = "the write comes back, so that nothing is cloned")]
    pub fn submit(&self, write: Write) -> Result<Ack, (StoreError, Write)> {
        let reserved = match write {
            Write::Partial { .. } | Write::Tell { .. } | Write::Forget { .. } => {
                2 * limits::STORE_QUEUE_RESERVED
            }
            Write::Begin { .. }
            | Write::Rename { .. }
            | Write::Note { .. }
            | Write::Delete { .. } => limits::STORE_QUEUE_RESERVED,
            Write::Finish { .. } => 0,
        };
        if self.jobs.is_closed() {
            return Err((StoreError::Closed, write));
        }
        if self.jobs.capacity() <= reserved {
            return Err((StoreError::Overloaded, write));
        }
        match self.jobs.try_reserve() {
            Ok(place) => {
                let (answer, ack) = oneshot::channel();
                self.gauges.unsettled.fetch_add(1, Ordering::AcqRel);
                place.send(Job::Write(write, answer));
                Ok(Ack(ack))
            }
            Err(mpsc::error::TrySendError::Full(())) => Err((StoreError::Overloaded, write)),
            Err(mpsc::error::TrySendError::Closed(())) => Err((StoreError::Closed, write)),
        }
    }

    /// Events of these turns of a session, in the order of their `seq`.
    ///
    /// # Errors
    /// `Corrupt` if the database was found damaged, `Io`, `Overloaded`, `Closed`.
    pub async fn events_of(
        &self,
        session: &str,
        turns: Range<u64>,
    ) -> Result<Vec<EventRow>, StoreError> {
        let session = session.to_owned();
        self.read(move |c| disk::events_of(c, &session, &turns)).await
    }

    /// The number of a session's newest turn; 0 if there is none.
    ///
    /// # Errors
    /// As [`Store::events_of`].
    pub async fn last_turn(&self, session: &str) -> Result<u64, StoreError> {
        let session = session.to_owned();
        self.read(move |c| disk::last_turn(c, &session)).await
    }

    /// The sessions, the most recently used first.
    ///
    /// # Errors
    /// As [`Store::events_of`].
    pub async fn sessions(&self, limit: usize) -> Result<Vec<SessionRow>, StoreError> {
        self.read(move |c| disk::sessions(c, limit)).await
    }

    /// One session; `None` if there is none of that name.
    ///
    /// # Errors
    /// As [`Store::events_of`].
    pub async fn session(&self, session: &str) -> Result<Option<SessionRow>, StoreError> {
        let session = session.to_owned();
        self.read(move |c| disk::session(c, &session)).await
    }

    /// The note of this name; `None` if there is none.
    ///
    /// # Errors
    /// As [`Store::events_of`].
    pub async fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = name.to_owned();
        self.read(move |c| disk::note(c, &name)).await
    }

    /// Turns that have not ended. At start these are what a crash left behind.
    ///
    /// # Errors
    /// As [`Store::events_of`].
    pub async fn open_turns(&self) -> Result<Vec<OpenTurn>, StoreError> {
        self.read(disk::open_turns).await
    }

    /// Brings everything committed so far onto the medium.
    ///
    /// # Errors
    /// `Full` and `Io` if that failed or writes are still kept in memory; `Overloaded`, `Closed`.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (answer, ack) = oneshot::channel();
        self.enqueue(Job::Flush(answer))?;
        ack.await.unwrap_or(Err(StoreError::Closed))
    }

    /// How the database is doing.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        StoreHealth {
            degraded: self.gauges.degraded.load(Ordering::Relaxed),
            kept: self.gauges.kept.load(Ordering::Relaxed),
            lost: self.gauges.lost.load(Ordering::Relaxed),
            late: self.gauges.late.load(Ordering::Relaxed),
        }
    }

    /// Whether a read would see every write that was queued so far.
    pub(crate) fn is_settled(&self) -> bool {
        self.gauges.unsettled.load(Ordering::Acquire) == 0
    }

    /// Counts a delta that was shown before it was committed.
    pub(crate) fn count_late(&self) {
        if self.gauges.late.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                event = "store.late",
                "words are shown before they are stored: the disk is slow or full"
            );
        }
    }

    /// Runs `question` on the task's connection after all writes queued before it.
    pub(crate) async fn read<T, F>(&self, question: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, reply) = oneshot::channel();
        self.enqueue(Job::Read(Box::new(move |connection| {
            let result = connection.and_then(|c| question(c).map_err(|e| classify::classify(&e)));
            let asked = match &result {
                Err(StoreError::Corrupt(detail)) => Err(detail.clone()),
                _ => Ok(()),
            };
            // Whoever asked may have gone.
            let _ = answer.send(result);
            asked
        })))?;
        reply.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Queues a job that is not a write, leaving the reserved places alone.
    fn enqueue(&self, job: Job) -> Result<(), StoreError> {
        if self.jobs.is_closed() {
            return Err(StoreError::Closed);
        }
        if self.jobs.capacity() <= limits::STORE_QUEUE_RESERVED {
            return Err(StoreError::Overloaded);
        }
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })
    }
}
