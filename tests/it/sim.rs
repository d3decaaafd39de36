//! The whole daemon under many seeds: 300 of them as smoke, thousands with `CRAYFISH_FULL=1`.
//!
//! `CRAYFISH_SIM_SEEDS` and `CRAYFISH_SIM_STEPS` choose other numbers, for the mutants.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crayfish::sim::{Options, replay, run};

/// Steps of a smoke run: enough for a crash or two and what follows.
const STEPS: u32 = 16;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn scratch() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
    base.join(format!("crayfish-sim-it-{}", std::process::id()))
}

fn options(seed: u64) -> Options {
    let full = std::env::var_os("CRAYFISH_FULL").is_some();
    let usual = if full { 60 } else { STEPS };
    let steps = number("CRAYFISH_SIM_STEPS").map_or(usual, |n| u32::try_from(n).unwrap());
    Options { seed, steps, trace: false, scratch: scratch() }
}

#[test]
fn every_rule_holds_under_every_seed() {
    let full = std::env::var_os("CRAYFISH_FULL").is_some();
    let seeds = number("CRAYFISH_SIM_SEEDS").unwrap_or(if full { 5_000 } else { 300 });
    let next = AtomicU64::new(1);
    let broken = Mutex::new(Vec::new());
    let totals = Mutex::new((0_u32, 0_usize, 0_usize));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed > seeds || !broken.lock().unwrap().is_empty() {
                        return;
                    }
                    let report = run(&options(seed));
                    let mut totals = totals.lock().unwrap();
                    totals.0 += report.lives;
                    totals.1 += report.questions;
                    totals.2 += report.answers;
                    drop(totals);
                    if let Some(rule) = report.broken {
                        let again = replay(&options(seed));
                        let text = format!("{}\nbroken {rule}\nagain: {again}", report.swarm);
                        broken.lock().unwrap().push(text);
                    }
                }
            });
        }
    });
    let _ = std::fs::remove_dir_all(scratch());
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
    // A world in which nothing happens breaks no rule.
    let (lives, questions, answers) = totals.into_inner().unwrap();
    assert!(u64::from(lives) > seeds, "{lives} lives");
    assert!(questions as u64 > 5 * seeds, "{questions} questions");
    assert!(answers as u64 > 4 * seeds, "{answers} answers");
}
