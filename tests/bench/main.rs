//! The figures the program promises, measured on the binary as it ships, as a table. Started by
//! `tests/bench/run`, which builds what is measured; exit code 1 if a bound is broken.
//!
//! Figures of one run are compared with each other where that can be (the chat against a bare
//! client sending the same bytes), because absolute times say more about the machine.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measuring program: threads, blocking sockets, and a panic is the right end"
)]

mod daemon;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Simulator};
use crate::wire::{Tee, Wire};

/// Starts that are measured; the median is said.
const STARTS: usize = 20;
/// Turns of one session.
const TURNS: usize = 1_000;
/// Turns before the connection, the caches and the allocator are as they stay.
const WARM_UP: usize = 20;
/// Turns at both ends of the session that are compared.
const END_TURNS: usize = 100;
/// Time after READY in which the daemon may do what it does at its start.
const SETTLE: Duration = Duration::from_secs(3);

/// A measured figure and its bound.
struct Figure {
    name: &'static str,
    measured: f64,
    bound: f64,
    unit: &'static str,
}

fn main() -> ExitCode {
    let [program, simulator] =
        ["CRAYFISH_PROGRAM", "HAILO_SIM"].map(|name| std::env::var_os(name).map(PathBuf::from));
    let (Some(program), Some(simulator)) = (program, simulator) else {
        println!("bench: start it by `bash tests/bench/run`");
        return ExitCode::from(64);
    };
    let mut figures = vec![size(&program), start(&program), idle(&program)];
    figures.extend(chat(&program, &simulator));
    println!("| figure | measured | at most | |\n|---|---|---|---|");
    let mut broken = false;
    for Figure { name, measured, bound, unit } in figures {
        let ok = measured <= bound;
        broken |= !ok;
        let verdict = if ok { "ok" } else { "BROKEN" };
        println!("| {name} | {measured:.2} {unit} | {bound:.2} {unit} | {verdict} |");
    }
    ExitCode::from(u8::from(broken))
}

fn size(program: &Path) -> Figure {
    let bytes = std::fs::metadata(program).unwrap().len();
    Figure { name: "release binary", measured: bytes as f64 / 1e6, bound: 8.0, unit: "MB" }
}

fn start(program: &Path) -> Figure {
    let mut times: Vec<f64> =
        (0..STARTS).map(|_| millis(Daemon::start(program, "").ready_after)).collect();
    Figure { name: "start to READY, p50", measured: rank(&mut times, 50), bound: 60.0, unit: "ms" }
}

fn idle(program: &Path) -> Figure {
    let daemon = Daemon::start(program, "");
    std::thread::sleep(SETTLE);
    let bytes = daemon.resident_bytes();
    Figure { name: "resident at idle", measured: bytes as f64 / 1e6, bound: 12.0, unit: "MB" }
}

fn chat(program: &Path, simulator: &Path) -> Vec<Figure> {
    let simulator = Simulator::start(simulator, &["--pace", "instant"]);
    let tee = Tee::start(simulator.address);
    let daemon = Daemon::start(program, &format!("http://{}", tee.address));
    let mut through_daemon = Vec::with_capacity(TURNS);
    let mut client = Wire::new(daemon.http);
    for turn in 0..TURNS {
        let body = format!(r#"{{"message": "Turn {turn}: and what do you make of that?"}}"#);
        let took = Instant::now();
        let answer = client.exchange(&wire::post("/chat", &body));
        through_daemon.push(millis(took.elapsed()));
        assert!(answer.starts_with("HTTP/1.1 200"), "turn {turn}: {answer}");
    }
    let requests = tee.requests("/api/chat");
    assert!(requests.len() >= TURNS, "{} requests of {TURNS} turns", requests.len());
    let mut bare_client = Wire::new(tee.address);
    let mut costs: Vec<f64> = Vec::with_capacity(TURNS);
    // What came before the turns were probes and the warm-up.
    for (turn, request) in requests[requests.len() - TURNS..].iter().enumerate() {
        let took = Instant::now();
        let answer = bare_client.exchange(request);
        costs.push(through_daemon[turn] - millis(took.elapsed()));
        assert!(answer.starts_with("HTTP/1.1 200"), "replay {turn}: {answer}");
    }
    let early = rank(&mut through_daemon[WARM_UP..WARM_UP + END_TURNS].to_vec(), 50);
    let late = rank(&mut through_daemon[TURNS - END_TURNS..].to_vec(), 50);
    let mut costs = costs.split_off(WARM_UP);
    let name = ["chat over a bare client, p50", "chat over a bare client, p99"];
    vec![
        Figure { name: name[0], measured: rank(&mut costs, 50), bound: 2.0, unit: "ms" },
        Figure { name: name[1], measured: rank(&mut costs, 99), bound: 6.0, unit: "ms" },
        // The window grows for the first turns, then stands; so do prompt and time.
        Figure { name: "last turns to first turns", measured: late / early, bound: 1.5, unit: "x" },
    ]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The value below which `percent` of them are.
fn rank(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}
