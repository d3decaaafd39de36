//! The figures the program promises, measured on the binary as it ships, as a table. Started by
//! `tests/bench/run`, which builds what is measured. With `--strict` the exit code is 1 if a
//! bound is broken; without it a busy machine only spoils the table.
//!
//! Figures of one run are compared with each other where that can be (the chat against a bare
//! client sending the same bytes), because absolute times say more about the machine.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measuring program: threads, blocking sockets, and a panic is the right end"
)]

mod chat;
mod daemon;
mod first_word;
mod page;
mod socket;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::daemon::Daemon;

/// Starts that are measured.
const STARTS: usize = 20;
/// Time after READY in which the daemon may do what it does at its start.
const SETTLE: Duration = Duration::from_secs(20);

/// A measured figure and its bound.
struct Figure {
    name: &'static str,
    measured: f64,
    bound: f64,
    unit: &'static str,
}

/// The programs under measurement.
struct Programs {
    crayfish: PathBuf,
    hailo_sim: PathBuf,
}

fn main() -> ExitCode {
    let [crayfish, hailo_sim] =
        ["CRAYFISH_PROGRAM", "HAILO_SIM"].map(|name| std::env::var_os(name).map(PathBuf::from));
    let (Some(crayfish), Some(hailo_sim)) = (crayfish, hailo_sim) else {
        println!("bench: start it by `bash tests/bench/run`");
        return ExitCode::from(64);
    };
    let programs = Programs { crayfish, hailo_sim };
    let mut figures = vec![size(&programs.crayfish)];
    figures.extend(start(&programs.crayfish));
    figures.push(idle(&programs.crayfish));
    figures.extend(chat::figures(&programs));
    figures.extend(first_word::figures(&programs));
    figures.extend(socket::figures(&programs));
    figures.extend(page::figures(&programs));
    println!("| figure | measured | at most | |\n|---|---|---|---|");
    let mut broken = false;
    for Figure { name, measured, bound, unit } in figures {
        let ok = measured <= bound;
        broken |= !ok;
        let verdict = if ok { "ok" } else { "BROKEN" };
        println!("| {name} | {measured:.2} {unit} | {bound:.2} {unit} | {verdict} |");
    }
    let strict = std::env::args().any(|argument| argument == "--strict");
    ExitCode::from(u8::from(broken && strict))
}

fn size(program: &Path) -> Figure {
    let bytes = std::fs::metadata(program).unwrap().len();
    Figure { name: "release binary", measured: bytes as f64 / 1e6, bound: 8.0, unit: "MB" }
}

fn start(program: &Path) -> [Figure; 2] {
    let mut times: Vec<f64> =
        (0..STARTS).map(|_| millis(Daemon::start(program, None).ready_after)).collect();
    [("start to READY, p50", 50), ("start to READY, p99", 99)].map(|(name, percent)| Figure {
        name,
        measured: rank(&mut times, percent),
        bound: 60.0,
        unit: "ms",
    })
}

/// With a model server that is not there: the probes run, and nothing is loaded.
fn idle(program: &Path) -> Figure {
    let daemon = Daemon::start(program, None);
    std::thread::sleep(SETTLE);
    let bytes = daemon.resident_bytes();
    Figure { name: "resident at idle", measured: bytes as f64 / 1e6, bound: 12.0, unit: "MB" }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The smallest value that `percent` of them do not exceed.
fn rank(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent).div_ceil(100).max(1) - 1]
}
