//! What happened, in the order in which it happened, on the clock of the simulated world.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The world's time, its trace, and the first rule that was broken.
#[derive(Debug)]
pub(super) struct Journal {
    inner: Mutex<Inner>,
    aloud: bool,
}

#[derive(Debug, Default)]
struct Inner {
    /// The world's time at the start of this life.
    base: Duration,
    started: Option<Instant>,
    lines: Vec<String>,
    broken: Option<String>,
}

impl Journal {
    /// An empty one; `aloud` copies every line to stderr.
    pub(super) fn new(aloud: bool) -> Self {
        Self { inner: Mutex::default(), aloud }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A runtime begins; its clock goes on where the last one ended.
    pub(super) fn begin_life(&self) {
        self.lock().started = Some(Instant::now());
    }

    /// The runtime is about to be dropped.
    pub(super) fn end_life(&self) {
        let mut inner = self.lock();
        if let Some(started) = inner.started.take() {
            inner.base += started.elapsed();
        }
    }

    /// Since the world began.
    pub(super) fn now(&self) -> Duration {
        let inner = self.lock();
        inner.base + inner.started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    /// Writes a line down.
    pub(super) fn note(&self, text: &str) {
        let line = format!("{:>10.3} {text}", self.now().as_secs_f64());
        if self.aloud {
            let _unread = writeln!(std::io::stderr().lock(), "{line}");
        }
        self.lock().lines.push(line);
    }

    /// Writes down that a rule was broken; only the first one is told.
    pub(super) fn broken(&self, rule: &str) {
        self.note(&format!("BROKEN {rule}"));
        let at = self.now();
        let mut inner = self.lock();
        if inner.broken.is_none() {
            inner.broken = Some(format!("at {:.3} s: {rule}", at.as_secs_f64()));
        }
    }

    /// The first rule that was broken.
    pub(super) fn first_broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    /// All lines so far.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }
}
