//! The binary as a process: how it starts, lives, is told things, and ends, and what it does when
//! the world around it is broken.

mod damage;
mod disk;
mod exits;
mod input;
mod kill;
mod life;
mod reload;
mod secrets;
mod watchdog;

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
