//! From a person's message to the first visible word, at the pace of the real NPU: what the
//! simulator needed for the newest message alone, and what was added.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Daemon, Simulator};
use crate::wire::{self, Wire};
use crate::{Figure, Programs, millis};

/// Turns that are measured. The first turn of a session is not: it has the identity block before
/// it, which is prefilled once.
const TURNS: usize = 6;
/// The published time to load the model, and then some.
const LOADED_MAX: Duration = Duration::from_secs(60);

/// Short, because every word of it takes an eighth of a second.
const SCRIPT: &str = r#"{"cycle": true, "replies": [{"text": "Two claws are better."}]}"#;

/// What the simulator's log says of one generation.
struct Generation {
    continuation: bool,
    /// From the request read to the first token sent, in milliseconds.
    first_token_ms: f64,
}

pub(crate) fn figures(programs: &Programs) -> [Figure; 2] {
    let simulator = Simulator::start(&programs.hailo_sim, "published", SCRIPT);
    let daemon = Daemon::start(&programs.crayfish, Some(simulator.address));
    daemon.until_online(LOADED_MAX);
    let (mut added, mut fresh) = (f64::MIN, 0_u32);
    for turn in 0..=TURNS {
        let body = format!(
            r#"{{"message": "Turn {turn}: and what do you make of that?", "stream": true}}"#
        );
        let mut client = Wire::new(daemon.http);
        let request = wire::post("/chat", &body);
        let began = Instant::now();
        client.send(&request);
        client.read_until(b"\"event\":\"delta\"");
        let first_word_ms = millis(began.elapsed());
        client.read_until(b"\"event\":\"done\"");
        let generation = last_generation(&simulator);
        if turn > 0 {
            let one = first_word_ms - generation.first_token_ms;
            println!("first word, turn {turn}: {first_word_ms:.2} ms, {one:.2} ms of it added");
            added = added.max(one);
            if !generation.continuation {
                fresh += 1;
                println!("turn {turn} was no continuation; the simulator: {}", simulator.log());
            }
        }
    }
    [
        Figure {
            name: "first word over first token, worst",
            measured: added,
            bound: 15.0,
            unit: "ms",
        },
        Figure {
            name: "turns that were no continuation",
            measured: fresh.into(),
            bound: 0.0,
            unit: "of 6",
        },
    ]
}

fn last_generation(simulator: &Simulator) -> Generation {
    let log: Value = simulator.log();
    let log = log.as_array().unwrap();
    let is = |entry: &&Value, event: &str| entry["event"] == event;
    let prefill = log.iter().rfind(|entry| is(entry, "prefill")).unwrap();
    let at = |event: &str| {
        let same = |entry: &&Value| is(entry, event) && entry["request"] == prefill["request"];
        log.iter().rfind(same).and_then(|entry| entry["real_ms"].as_f64()).unwrap()
    };
    Generation {
        continuation: prefill["continuation"].as_bool().unwrap(),
        first_token_ms: at("first_token") - at("seen"),
    }
}
