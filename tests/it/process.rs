//! The binary as a process: how it starts, lives, is told things, and ends, and what it does when
//! the world around it is broken.

mod damage;
mod disk;
mod exits;
mod frames;
mod input;
mod kill;
mod life;
mod reload;
mod secrets;
mod socket;
mod watchdog;

use std::path::Path;

use hailo::sim::clock::Pace;
use hailo::sim::hailo::{Options, Running, start};
use hailo::sim::scenario::{Reply, Scenario};

/// hailo-ollama that says these things, and after them sentences of its own.
pub(crate) fn hailo_that(pace: Pace, replies: Vec<Reply>) -> Running {
    let scenario = Scenario { replies, ..Scenario::default() };
    start(Options { pace, scenario, ..Options::default() }).unwrap()
}

/// hailo-ollama whose answers take no time.
pub(crate) fn quick_hailo() -> Running {
    hailo_that(Pace::Instant, Vec::new())
}

/// An answer to messages with `when` in them: numbered words, so that each is known by its place.
pub(crate) fn counting(when: &str, words: u32) -> Reply {
    let tokens = (0..words).map(|n| format!(" {n}")).collect();
    Reply { when: Some(when.to_owned()), tokens: Some(tokens), ..Reply::default() }
}

/// A copy of the database in `state`, opened: looking at the daemon's own file could mend it.
pub(crate) fn copied_database(state: &Path, copy: &Path) -> rusqlite::Connection {
    let _ = std::fs::remove_dir_all(copy);
    std::fs::create_dir(copy).unwrap();
    for name in ["crayfish.db", "crayfish.db-wal"] {
        if state.join(name).exists() {
            std::fs::copy(state.join(name), copy.join(name)).unwrap();
        }
    }
    let file = rusqlite::Connection::open(copy.join("crayfish.db")).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    file
}
