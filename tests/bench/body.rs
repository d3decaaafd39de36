//! What the body costs while nobody asks anything.
//!
//! The wake-ups and the share of a processor are those of the default beat of 30 s, once whatever
//! is missing (a fallback, the reserve's model) is looked for as rarely as it ever is. One beat's
//! own cost is that of a heart that beats every second, so that a minute has enough of them.

use std::time::{Duration, Instant};

use crayfish::snapshot::{self, Snapshot};

use crate::daemon::{Daemon, Simulator};
use crate::{Figure, Programs, SETTLE};

/// Until looks for what is missing are as rare as they become: one in five minutes.
const BACKED_OFF: Duration = Duration::from_secs(330);

/// How long a daemon at rest is watched: ten beats, and one look for what is missing.
const REST: Duration = Duration::from_secs(300);

/// How long a heart that beats every second is watched.
const BEATS: Duration = Duration::from_secs(30);

/// Reads of the snapshot.
const READS: u32 = 1_000_000;

/// All figures.
pub(crate) fn figures(programs: &Programs) -> Vec<Figure> {
    let mut figures = rest(programs);
    figures.extend(beats(programs));
    figures.push(read());
    figures
}

/// With a model that is loaded, so that no probe wakes anybody.
fn rest(programs: &Programs) -> Vec<Figure> {
    let sim = Simulator::start(&programs.hailo_sim, "instant", "{}");
    let daemon = Daemon::start(&programs.crayfish, Some(sim.address));
    daemon.until_online(SETTLE);
    std::thread::sleep(BACKED_OFF);
    let (cpu, wakeups) = (daemon.cpu(), daemon.wakeups());
    std::thread::sleep(REST);
    let share = (daemon.cpu() - cpu).as_secs_f64() / REST.as_secs_f64() * 100.0;
    // A thread that has ended takes its count with it; threads for blocking calls are short.
    let more = daemon.wakeups().into_iter();
    let more = more.map(|(thread, count)| count - wakeups.get(&thread).copied().unwrap_or(0));
    let a_minute = more.sum::<u64>() as f64 / REST.as_secs_f64() * 60.0;
    vec![
        Figure { name: "processor at rest", measured: share, bound: 0.2, unit: "%" },
        Figure { name: "wake-ups at rest", measured: a_minute, bound: 6.0, unit: "a minute" },
    ]
}

fn beats(programs: &Programs) -> Vec<Figure> {
    let sim = Simulator::start(&programs.hailo_sim, "instant", "{}");
    let pulse = "system:\n  pulse_interval_seconds: 1\n";
    let daemon = Daemon::start_with(&programs.crayfish, Some(sim.address), pulse);
    daemon.until_online(SETTLE);
    // Longer than the quiet time after which the database is synced.
    std::thread::sleep(Duration::from_secs(35));
    let (cpu, written, before) = (daemon.cpu(), daemon.written_bytes(), daemon.beats());
    std::thread::sleep(BEATS);
    let beats = (daemon.beats() - before).max(1) as f64;
    let each = (daemon.cpu() - cpu).as_secs_f64() * 1e3 / beats;
    let written = (daemon.written_bytes() - written) as f64 / 1e3;
    vec![
        Figure { name: "one beat, processor", measured: each, bound: 3.0, unit: "ms" },
        Figure { name: "30 beats, written", measured: written, bound: 0.0, unit: "kB" },
    ]
}

fn read() -> Figure {
    let (_publisher, reader) = snapshot::channel(Snapshot::default());
    let began = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(reader.load());
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(READS);
    Figure { name: "read of the snapshot", measured: each, bound: 1.0, unit: "µs" }
}
