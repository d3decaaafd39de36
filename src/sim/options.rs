//! What one seed means: how long the run is, which faults exist in it and how often they come.
//!
//! Swarm testing: each seed switches about half of the kinds off and weights the others wildly, so
//! that rare combinations are not drowned by the usual ones.

use std::fmt;
use std::path::PathBuf;

/// What a person at the command line chooses.
#[derive(Debug, Clone)]
pub struct Options {
    /// Everything random comes from it.
    pub seed: u64,
    /// Acts of the person and blows of fate.
    pub steps: u32,
    /// Whether every line goes to stderr while it happens.
    pub trace: bool,
    /// Where the databases are while the run lasts; memory is best.
    pub scratch: PathBuf,
}

/// What can be wrong with one answer of a model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flaw {
    /// The head never comes.
    Stall,
    /// The tokens stop coming.
    StallMidway,
    /// The connection ends without a last line.
    Cut,
    /// The body ends as it should, without a last line.
    NoEnd,
    /// Counts are wrong.
    Lies,
    /// An error under the status of a success.
    ErrorIn200,
    /// The server fails.
    Refuses,
    /// The server's queue is full.
    Busy,
    /// Complete and without a word.
    Empty,
    /// The same block again and again.
    Loops,
    /// Control and replacement characters.
    Garbage,
    /// Half the speed.
    Slow,
    /// The server gives up on prefill after ten seconds.
    PrefillCut,
    /// A line that is not JSON.
    BadLine,
    /// The model is not there.
    Missing,
    /// Thinking without an end.
    ThinkOverrun,
}

const FLAWS: [Flaw; 16] = [
    Flaw::Stall,
    Flaw::StallMidway,
    Flaw::Cut,
    Flaw::NoEnd,
    Flaw::Lies,
    Flaw::ErrorIn200,
    Flaw::Refuses,
    Flaw::Busy,
    Flaw::Empty,
    Flaw::Loops,
    Flaw::Garbage,
    Flaw::Slow,
    Flaw::PrefillCut,
    Flaw::BadLine,
    Flaw::Missing,
    Flaw::ThinkOverrun,
];

/// What can happen to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Blow {
    /// A server dies and stays away for a while.
    Kill,
    /// A server dies and is back at once.
    Bounce,
    /// A server accepts connections and says nothing.
    Wedge,
    /// A server's host does not answer.
    Unplug,
    /// Another program takes the NPU.
    HoldDevice,
    /// The model is removed from a server.
    RemoveModel,
    /// The disk is full.
    DiskFull,
    /// The disk fails.
    DiskBroken,
    /// The disk is slow.
    DiskSlow,
    /// The daemon is killed.
    Crash,
    /// The power is cut.
    PowerCut,
    /// The daemon is stopped and started.
    Restart,
    /// The wall clock jumps.
    ClockStep,
    /// The configuration is read again.
    Reload,
}

const BLOWS: [Blow; 14] = [
    Blow::Kill,
    Blow::Bounce,
    Blow::Wedge,
    Blow::Unplug,
    Blow::HoldDevice,
    Blow::RemoveModel,
    Blow::DiskFull,
    Blow::DiskBroken,
    Blow::DiskSlow,
    Blow::Crash,
    Blow::PowerCut,
    Blow::Restart,
    Blow::ClockStep,
    Blow::Reload,
];

/// The faults of one seed.
#[derive(Debug, Clone)]
pub(super) struct Swarm {
    flaws: Vec<(Flaw, u32)>,
    /// Weight of an answer without a flaw.
    well: u32,
    blows: Vec<(Blow, u32)>,
    /// Of a hundred steps, how many are blows.
    pub(super) blows_percent: u32,
    /// Answers that think first, of a hundred.
    pub(super) thinks_percent: u32,
    /// Readers that dawdle, of a hundred.
    pub(super) slow_readers_percent: u32,
}

impl Swarm {
    /// The faults that a seed has.
    pub(super) fn of(random: &mut fastrand::Rng) -> Self {
        Self {
            flaws: some(&FLAWS, random),
            well: random.u32(1..80),
            blows: some(&BLOWS, random),
            blows_percent: random.u32(0..35),
            thinks_percent: if random.bool() { random.u32(0..60) } else { 0 },
            slow_readers_percent: if random.bool() { random.u32(0..40) } else { 0 },
        }
    }

    /// What is wrong with the next answer.
    pub(super) fn flaw(&self, random: &mut fastrand::Rng) -> Option<Flaw> {
        let total: u32 = self.flaws.iter().map(|(_, weight)| weight).sum();
        let at = random.u32(0..total + self.well);
        pick(&self.flaws, at)
    }

    /// What happens to the world next.
    pub(super) fn blow(&self, random: &mut fastrand::Rng) -> Option<Blow> {
        let total: u32 = self.blows.iter().map(|(_, weight)| weight).sum();
        if total == 0 { None } else { pick(&self.blows, random.u32(0..total)) }
    }
}

fn some<T: Copy>(all: &[T], random: &mut fastrand::Rng) -> Vec<(T, u32)> {
    all.iter()
        .filter_map(|one| {
            let (here, weight) = (random.bool(), random.u32(1..10));
            here.then_some((*one, weight))
        })
        .collect()
}

fn pick<T: Copy>(weighted: &[(T, u32)], mut at: u32) -> Option<T> {
    for (one, weight) in weighted {
        if at < *weight {
            return Some(*one);
        }
        at -= weight;
    }
    None
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answers: {} well", self.well)?;
        for (flaw, weight) in &self.flaws {
            write!(f, ", {weight} {flaw:?}")?;
        }
        write!(f, "; blows, {} % of steps:", self.blows_percent)?;
        for (blow, weight) in &self.blows {
            write!(f, " {weight} {blow:?}")?;
        }
        write!(f, "; {} % think, {} % read slowly", self.thinks_percent, self.slow_readers_percent)
    }
}
