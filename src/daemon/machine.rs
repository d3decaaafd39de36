//! What the daemon lends the provider: this machine's memory, and pages in the database.

use std::fs;
use std::path::PathBuf;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::provider::lent::{Memory, Notebook};
use crate::store::{Store, Write};

/// The machine as its files show it.
pub(super) struct Machine {
    /// Root of its file system.
    pub(super) root: PathBuf,
}

/// The database's notes.
pub(super) struct Notes(pub(super) Store);

impl Memory for Machine {
    fn available(&self) -> Option<u64> {
        // A file of the kernel's, in memory: reading it does not wait.
        let text = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        available(&text)
    }
}

impl Notebook for Notes {
    fn read(&self, name: &str) -> BoxFuture<'_, Option<Vec<u8>>> {
        let name = name.to_owned();
        async move { self.0.note(&name).await.ok().flatten() }.boxed()
    }

    fn write(&self, name: &str, page: Vec<u8>) {
        // Learned again if it is lost.
        let _ = self.0.submit(Write::Note { name: name.to_owned(), body: page });
    }
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_and_anything_else_is_unknown() {
        let text = "MemTotal:        8126464 kB\nMemFree: 12 kB\nMemAvailable:    2500000 kB\n";
        assert_eq!(available(text), Some(2_560_000_000));
        for odd in
            ["", "MemAvailable:", "MemAvailable: x kB", "MemAvailable: 5 MB", "MemFree: 5 kB"]
        {
            assert_eq!(available(odd), None, "{odd:?}");
        }
        let nowhere = Machine { root: PathBuf::from("/nowhere-at-all") };
        assert_eq!(nowhere.available(), None);
    }

    #[tokio::test]
    async fn a_note_is_found_again_by_the_next_daemon() {
        let dir = tempfile::tempdir().unwrap();
        for expected in [None, Some(b"two".to_vec())] {
            let options = crate::store::Options {
                state_dir: dir.path().to_owned(),
                fsync_always: false,
                idle_flush: std::time::Duration::from_secs(30),
                pages_max: None,
            };
            let clock = std::sync::Arc::new(crate::clock::SystemClock);
            let events = crate::event::Events::default();
            let (store, task) = Store::open(options, clock, events).unwrap();
            let stop = tokio_util::sync::CancellationToken::new();
            let running = tokio::spawn(task.run(stop.clone()));
            let notes = Notes(store);
            assert_eq!(notes.read("a").await, expected);
            notes.write("a", b"one".to_vec());
            notes.write("a", b"two".to_vec());
            assert_eq!(notes.read("a").await, Some(b"two".to_vec()));
            assert_eq!(notes.read("b").await, None);
            stop.cancel();
            running.await.unwrap().unwrap();
        }
    }
}
