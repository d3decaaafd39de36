//! The whole daemon in a world made from one number: its clock, its network, its disk, its model
//! servers and its people are simulated; everything else is the program as it runs.
//!
//! A run is a row of lives of the daemon. In each, people act and fate strikes, step by step, and
//! after every step the rules are checked. A life ends in a crash, a power cut or an orderly stop,
//! and the next one begins on the files that are left. At the end all faults stop, and the daemon
//! must be well again within five minutes of its own time.
//!
//! # Invariants
//! - The same seed and steps give the same trace: one thread, a paused clock, no spawned helpers,
//!   every random number from the seed, no hash map whose order is visible.
//! - A life has a runtime of its own. Dropping it is the crash: no destructor of the daemon runs
//!   that a killed process would not have been spared, and the files are taken before.
//!
//! # Absences
//! - The two doors: they need sockets, and those need real time. People use the agent's own handle
//!   (`agent::Converse`), which is all that the doors have.
//! - Model servers that are not simulated exactly enough to be trusted are not asked: the exact
//!   ones are in `hailo/`, over real sockets.

mod acts;
mod book;
mod checks;
mod clock;
mod disk;
mod journal;
mod model;
mod network;
mod nursery;
mod options;
mod people;
mod rules;
#[cfg(test)]
mod tests;
pub mod thermal;
mod world;

pub use options::Options;

/// The system block of the world's background work.
const BACKGROUND_SYSTEM: &str = "You think about what was said.";

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The faults that the seed has, in words.
    pub swarm: String,
    /// The first rule that was broken.
    pub broken: Option<String>,
    /// Everything that happened.
    pub trace: Vec<String>,
    /// Lives of the daemon.
    pub lives: u32,
    /// Questions that were accepted.
    pub questions: usize,
    /// Answers that were read to their end.
    pub answers: usize,
}

/// Runs one world to its end.
#[must_use]
pub fn run(options: &Options) -> Report {
    world::World::new(options).run()
}

/// The one command that does this run again.
#[must_use]
pub fn replay(options: &Options) -> String {
    format!("cargo run --features sim -- sim {} --steps {}", options.seed, options.steps)
}
