//! Keeps every long task: the only file that spawns.
//!
//! A task has a name, a policy for its end, and a place in the drain. Its end becomes an outcome
//! (returned, failed, panicked) that is recorded before anything is done about it: restarted
//! after a growing delay, given up, or the process leaves with code 70.
//!
//! # Invariants
//! - A panic ends one task, never the process by itself, and never unseen.
//! - A critical task that ends without being asked to ends the process: no ghosts.
//! - The supervisor awaits joins, timers and signals only, never a task's reply.
//! - After `Spawner::spawn` answered `Stopping` for a drain order nothing of that order starts.
//!
//! # Absences
//! - No call to `process::exit`: the code is the value `Supervisor::run` returns. The runtime must
//!   be left with `shutdown_background`, because a thread stuck in a system call cannot be joined.
//! - No ordering of starts: `daemon` constructs in order, and a task that runs is ready.

mod drain;
mod keeper;
mod liveness;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) use self::keeper::panic_text;
pub use self::liveness::{Liveness, Progress};
use super::exit::Exit;
use super::signals::Signal;
use crate::event::Events;

/// What to do when a task ends without having been asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The process cannot go on without it: drain and leave with code 70. The watchdog is fed
    /// only while it makes progress.
    ExitProcess,
    /// Start it again after a delay, up to a rate; then leave it down and tell.
    Restart(Restart),
    /// It is expected to end by itself; a failure or panic is told, nothing else happens.
    Once,
}

/// How a task is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restart {
    /// Delay before the first restart; doubles with each restart inside the window.
    pub delay_first: Duration,
    /// Longest delay.
    pub delay_max: Duration,
    /// Restarts inside the window; the next end gives the task up.
    pub restarts_max: u32,
    /// The window.
    pub window: Duration,
}

impl Restart {
    /// For edges that a fault of the moment may bring down: soon at first, so that a person barely
    /// notices, and no more than five in ten minutes, so that a broken edge does not burn the Pi.
    pub const USUAL: Self = Self {
        delay_first: Duration::from_secs(1),
        delay_max: Duration::from_secs(60),
        restarts_max: 5,
        window: Duration::from_secs(600),
    };
}

/// What a task is: the row of the table in `daemon`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Name in logs, events and the drain's report.
    pub name: &'static str,
    /// What its end means.
    pub policy: Policy,
    /// Its group in the drain; lower ones stop first, the groups one after the other.
    pub drain: u8,
    /// Time to end by itself once its group's turn has come, before it is asked to.
    pub grace: Duration,
    /// Time to end once it was asked to; then it is dropped at its next await.
    pub drain_max: Duration,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It returned `Ok`.
    Returned,
    /// It returned an error, said here.
    Failed(String),
    /// It panicked with this message, or was dropped from outside.
    Panicked(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => write!(f, "returned"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Panicked(why) => write!(f, "panicked: {why}"),
        }
    }
}

/// What a task is given at each start.
#[derive(Debug)]
pub struct TaskCx {
    /// Cancelled when the task must end.
    pub stop: CancellationToken,
    /// Proof of life; a critical task must use it.
    pub progress: Progress,
}

/// The drain has reached this task's order; nothing of it may start any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("shutting down")]
pub struct Stopping;

/// What is known of a task, for status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its name.
    pub name: &'static str,
    /// `running`, `restarting` or `given up`.
    pub state: &'static str,
    /// Restarts since the process started.
    pub restarts: u32,
    /// How its last run ended, if one did.
    pub last_outcome: Option<String>,
}

/// What `Supervisor::run` asks its caller to do; must not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// SIGHUP: read the configuration again.
    Reload,
    /// The drain begins.
    Stopping,
}

/// Owns all tasks.
#[derive(Debug)]
pub struct Supervisor {
    spawner: Spawner,
    critical: mpsc::Receiver<CriticalEnd>,
    ended: watch::Receiver<u64>,
}

/// Starts tasks. Cheap to clone; for those who must start tasks while the daemon runs.
#[derive(Debug, Clone)]
pub struct Spawner(Arc<Shared>);

type CriticalEnd = (&'static str, Outcome);
type Attempt = BoxFuture<'static, Result<(), String>>;
type Factory = Box<dyn FnMut(TaskCx) -> Attempt + Send>;

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    events: Events,
    critical: mpsc::Sender<CriticalEnd>,
    ended: watch::Sender<u64>,
    beat: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    /// Lowest order that may still start tasks.
    open_from: u8,
    closed: bool,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    spec: Spec,
    stop: CancellationToken,
    ticks: Arc<AtomicU64>,
    /// The attempt that runs, or the last one.
    abort: Option<AbortHandle>,
    /// False once the task was given up: only its report is left.
    live: bool,
    /// When the drain lost its patience and dropped the task.
    overran_at: Option<Instant>,
    report: Report,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing under this lock can leave the table half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.table().entries.get_mut(&id) {
            change(entry);
        }
    }
}

impl Spawner {
    /// Starts a task. `factory` is called at each start, so what a restart needs is cloned in it.
    /// The token answered stops this one task.
    ///
    /// # Errors
    /// `Stopping` once the drain has reached the task's order.
    pub fn spawn<F, Fut, E>(
        &self,
        spec: Spec,
        mut factory: F,
    ) -> Result<CancellationToken, Stopping>
    where
        F: FnMut(TaskCx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        // Boxed here so that the rest exists once, not once per kind of task.
        self.spawn_boxed(
            spec,
            Box::new(move |cx| factory(cx).map(|end| end.map_err(|why| why.to_string())).boxed()),
        )
    }

    /// Starts a task that owns what it was given and so can run once: a turn, a connection, the
    /// one reader of a queue. With a `Restart` policy the second start fails, and so on to its end.
    ///
    /// # Errors
    /// `Stopping` once the drain has reached the task's order; `work` is dropped.
    pub fn spawn_once<F, Fut, E>(&self, spec: Spec, work: F) -> Result<CancellationToken, Stopping>
    where
        F: FnOnce(TaskCx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let mut work = Some(work);
        self.spawn_boxed(
            spec,
            Box::new(move |cx| match work.take() {
                Some(work) => work(cx).map(|end| end.map_err(|why| why.to_string())).boxed(),
                None => std::future::ready(Err("it can start only once".to_owned())).boxed(),
            }),
        )
    }

    fn spawn_boxed(&self, spec: Spec, factory: Factory) -> Result<CancellationToken, Stopping> {
        let mut table = self.0.table();
        if table.closed || spec.drain < table.open_from {
            return Err(Stopping);
        }
        let id = table.next_id;
        table.next_id += 1;
        let stop = CancellationToken::new();
        let ticks = Arc::new(AtomicU64::new(0));
        let report = Report { name: spec.name, state: "running", restarts: 0, last_outcome: None };
        let entry = Entry {
            spec,
            stop: stop.clone(),
            ticks: Arc::clone(&ticks),
            abort: None,
            live: true,
            overran_at: None,
            report,
        };
        table.entries.insert(id, entry);
        drop(table);
        let progress = Progress::new(ticks, self.0.beat.subscribe());
        let keeper = keeper::Keeper::new(id, spec, stop.clone(), progress, Arc::clone(&self.0));
        // Nobody waits for a keeper: it tells the table when it leaves.
        drop(start(keeper.keep(factory)));
        Ok(stop)
    }

    /// For the one who feeds the watchdog. One per process: each check is also the next ping.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        Liveness::new(Arc::clone(&self.0))
    }

    /// All tasks that run, restart or were given up, in the order of their start.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.0.table().entries.values().map(|entry| entry.report.clone()).collect()
    }
}

impl Supervisor {
    /// A supervisor without tasks, that tells faults to `events`.
    #[must_use]
    pub fn new(events: Events) -> Self {
        // One is enough: the first critical end decides.
        let (critical, critical_ends) = mpsc::channel(1);
        let (ended, ended_reader) = watch::channel(0);
        let shared =
            Shared { table: Mutex::default(), events, critical, ended, beat: watch::channel(0).0 };
        Self { spawner: Spawner(Arc::new(shared)), critical: critical_ends, ended: ended_reader }
    }

    /// For those who start tasks while the daemon runs.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// As `Spawner::spawn`.
    ///
    /// # Errors
    /// `Stopping` once the drain has reached the task's order.
    pub fn spawn<F, Fut, E>(&self, spec: Spec, factory: F) -> Result<CancellationToken, Stopping>
    where
        F: FnMut(TaskCx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        self.spawner.spawn(spec, factory)
    }

    /// Runs until a signal or the end of a critical task, then drains. `on` is told of what
    /// others must know and must not block.
    ///
    /// # Cancel safety
    /// None: it is the process's last await.
    pub async fn run<S>(mut self, mut signals: S, mut on: impl FnMut(Moment)) -> Exit
    where
        S: Stream<Item = Signal> + Unpin,
    {
        let end = loop {
            tokio::select! {
                biased;
                end = self.critical.recv() => break end,
                signal = signals.next() => match signal {
                    Some(Signal::Reload) => on(Moment::Reload),
                    // A stream that ended can ask for nothing any more; leaving is safer than
                    // being deaf.
                    Some(Signal::Stop) | None => break None,
                },
            }
        };
        if let Some((task, outcome)) = &end {
            tracing::error!(task, %outcome, "critical task ended; shutting down");
        }
        on(Moment::Stopping);
        let overran = tokio::select! {
            biased;
            () = second_stop(&mut signals) => return Exit::Killed,
            overran = self.drain() => overran,
        };
        let end = end.or_else(|| self.critical.try_recv().ok());
        match end {
            Some((task, outcome)) => Exit::CriticalEnded { task, outcome },
            None if overran.is_empty() => Exit::Stopped,
            None => Exit::Overrun(overran),
        }
    }
}

async fn second_stop<S: Stream<Item = Signal> + Unpin>(signals: &mut S) {
    loop {
        match signals.next().await {
            Some(Signal::Stop) => return,
            Some(Signal::Reload) => {}
            None => std::future::pending().await,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
fn start<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(task)
}
