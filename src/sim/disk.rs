//! The medium under the store: SQLite is real and so is its file; what the medium answers and how
//! long it takes is the world's choice.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::journal::Journal;
use crate::store::medium::{Call, Medium};
use crate::store::{FILE_NAME, StoreError};

/// How the medium is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Calls take some milliseconds.
    Well,
    /// Calls take longer than a person waits for a delta.
    Slow,
    /// No space.
    Full,
    /// Every write fails.
    Broken,
}

/// The medium.
pub(super) struct SimDisk {
    inner: Mutex<Inner>,
    journal: Arc<Journal>,
    database: Mutex<PathBuf>,
}

struct Inner {
    mode: Mode,
    random: fastrand::Rng,
    /// When the log was last seen empty: what was committed before is safe from a power cut.
    folded_at: Duration,
}

impl SimDisk {
    /// A medium that is well.
    pub(super) fn new(journal: Arc<Journal>, random: fastrand::Rng) -> Self {
        let inner = Inner { mode: Mode::Well, random, folded_at: Duration::ZERO };
        Self { inner: Mutex::new(inner), journal, database: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which state directory is on it.
    pub(super) fn mount(&self, state: &Path) {
        *self.database.lock().unwrap_or_else(PoisonError::into_inner) = state.join(FILE_NAME);
    }

    /// Changes how it is.
    pub(super) fn set(&self, mode: Mode) {
        self.journal.note(&format!("disk is {mode:?}"));
        self.lock().mode = mode;
    }

    /// How it is.
    pub(super) fn mode(&self) -> Mode {
        self.lock().mode
    }

    /// When the log was last seen empty.
    pub(super) fn folded_at(&self) -> Duration {
        self.lock().folded_at
    }

    /// How long a call takes before and after the work itself.
    fn pauses(&self) -> (Duration, Duration) {
        let mut inner = self.lock();
        let most_ms = match inner.mode {
            Mode::Well | Mode::Full | Mode::Broken => 3,
            // Both together are the longest call that the daemon's own limits allow for.
            Mode::Slow => 1000,
        };
        let mut pause = || Duration::from_millis(inner.random.u64(0..=most_ms));
        (pause(), pause())
    }

    fn look_at_log(&self) {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let log = beside(&database, "-wal");
        if std::fs::metadata(log).map_or(0, |log| log.len()) == 0 {
            let now = self.journal.now();
            self.lock().folded_at = now;
        }
    }
}

impl Medium for SimDisk {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (before, after) = self.pauses();
            tokio::time::sleep(before).await;
            call();
            self.look_at_log();
            tokio::time::sleep(after).await;
            Ok(())
        })
    }

    fn verdict(&self) -> Result<(), StoreError> {
        match self.mode() {
            Mode::Well | Mode::Slow => Ok(()),
            Mode::Full => Err(StoreError::Full),
            Mode::Broken => Err(StoreError::Io("the medium does not answer".into())),
        }
    }
}

/// What a machine finds after the process was killed or the power was cut: the files as they are
/// now, in `to`. `cut` is the share of the log that reached the medium.
///
/// # Errors
/// The scratch directory cannot be written.
pub(super) fn survive(from: &Path, to: &Path, cut: Option<f64>) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for name in ["config.yaml", "soul.md", FILE_NAME] {
        let file = from.join(name);
        if file.exists() {
            std::fs::copy(file, to.join(name))?;
        }
    }
    let log = beside(&from.join(FILE_NAME), "-wal");
    if log.exists() {
        let mut bytes = std::fs::read(log)?;
        if let Some(share) = cut {
            let kept = (bytes.len() as f64 * share.clamp(0.0, 1.0)) as usize;
            bytes.truncate(kept);
        }
        put(&beside(&to.join(FILE_NAME), "-wal"), &bytes)?;
    }
    Ok(())
}

/// Writes a file of the world.
#[expect(clippy::disallowed_methods, reason = "nothing of the world outlives the simulation")]
pub(super) fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::write(path, bytes)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
