//! The world itself is tested: it must be the same each time, and it must see what it is shown.

use super::*;

fn options(seed: u64) -> Options {
    let scratch = std::env::temp_dir().join(format!("crayfish-sim-unit-{}", std::process::id()));
    Options { seed, steps: 12, trace: false, scratch }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 3] {
        let (first, second) = (run(&options(seed)), run(&options(seed)));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.broken, None, "{}", replay(&options(seed)));
    }
}

#[test]
fn two_seeds_are_two_worlds() {
    assert_ne!(run(&options(4)).trace, run(&options(5)).trace);
}
