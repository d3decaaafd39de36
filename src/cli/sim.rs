//! `crayfish sim`: the whole daemon under a seed, again and again or once more.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::code;
use crate::sim::{self, Options};

/// Steps of a run unless the command line says otherwise.
const STEPS: u32 = 40;

/// Run the whole daemon in a simulated world
#[derive(Debug, Clone, Args)]
pub(super) struct SimArgs {
    /// The world's seed; with --nightly and --seeds the first one
    #[arg(default_value_t = 0)]
    seed: u64,
    /// Acts and blows of a run
    #[arg(long, default_value_t = STEPS)]
    steps: u32,
    /// Tell everything that happens
    #[arg(long)]
    trace: bool,
    /// Run seed after seed until one fails or the program is stopped
    #[arg(long)]
    nightly: bool,
    /// Run so many seeds, or up to the first one that fails
    #[arg(long, default_value_t = 1, conflicts_with = "nightly")]
    seeds: u64,
}

/// Runs one seed, or seeds without end.
pub(super) fn run(args: &SimArgs, out: &mut dyn Write) -> u8 {
    let scratch = scratch();
    let mut seed = args.seed;
    let mut left = args.seeds;
    while args.nightly || left > 0 {
        let options =
            Options { seed, steps: args.steps, trace: args.trace, scratch: scratch.clone() };
        let _unread = writeln!(out, "seed {seed}, {} steps", args.steps);
        let report = sim::run(&options);
        if let Some(rule) = report.broken {
            let replay = sim::replay(&options);
            let swarm = report.swarm;
            let _unread = writeln!(out, "{swarm}\nbroken {rule}\nagain: {replay}");
            return code::FAILED;
        }
        let _unread = writeln!(
            out,
            "held: {} lives, {} questions, {} answers",
            report.lives, report.questions, report.answers
        );
        seed = seed.wrapping_add(1);
        left = left.saturating_sub(1);
    }
    code::OK
}

/// Memory where there is some: the runs write a lot and keep nothing.
fn scratch() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
    base.join(format!("crayfish-sim-{}", std::process::id()))
}
