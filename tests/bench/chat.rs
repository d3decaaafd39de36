//! What the daemon adds to a model's own time: turns of one session, each followed at once by a
//! bare client that sends the model the same bytes over the same way.

use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Simulator};
use crate::wire::{self, Tee, Wire};
use crate::{Figure, Programs, millis, rank};

/// Turns of one session.
const TURNS: usize = 1_000;
/// Turns before connections, caches and allocator are as they stay.
const WARM_UP: usize = 20;
/// Turns at both ends of the session that are compared.
const END_TURNS: usize = 100;
/// Longer than the model needs to be loaded at once.
const LOADED_MAX: Duration = Duration::from_secs(30);

/// An answer as short as a real one can be: what is measured is not the model.
const SCRIPT: &str = r#"{"cycle": true, "replies": [{"text": "Two claws are better than one."}]}"#;

pub(crate) fn figures(programs: &Programs) -> Vec<Figure> {
    let simulator = Simulator::start(&programs.hailo_sim, "instant", SCRIPT);
    let tee = Tee::start(simulator.address);
    let daemon = Daemon::start(&programs.crayfish, Some(tee.address));
    daemon.until_online(LOADED_MAX);
    let (mut client, mut bare_client) = (Wire::new(daemon.http), Wire::new(tee.address));
    let mut turns = Vec::with_capacity(TURNS);
    let mut costs = Vec::with_capacity(TURNS);
    for turn in 0..TURNS {
        let body = format!(r#"{{"message": "Turn {turn}: and what do you make of that?"}}"#);
        let request = wire::post("/chat", &body);
        let began = Instant::now();
        let answer = client.exchange(&request);
        let through_daemon = millis(began.elapsed());
        assert!(answer.contains("Two claws are better"), "turn {turn}: {answer}");

        // By its words: a probe or the warm-up may have come after it.
        let request = tee.last_request(&format!("Turn {turn}:")).unwrap();
        let began = Instant::now();
        let answer = bare_client.exchange(&request);
        let bare = millis(began.elapsed());
        assert!(answer.starts_with("HTTP/1.1 200"), "replay {turn}: {answer}");
        turns.push(through_daemon);
        costs.push(through_daemon - bare);
    }
    let early = rank(&mut costs[WARM_UP..WARM_UP + END_TURNS].to_vec(), 50);
    let late = rank(&mut costs[TURNS - END_TURNS..].to_vec(), 50);
    let whole_early = rank(&mut turns[WARM_UP..WARM_UP + END_TURNS].to_vec(), 50);
    let whole_late = rank(&mut turns[TURNS - END_TURNS..].to_vec(), 50);
    println!("chat: {whole_early:.2} ms early, {whole_late:.2} ms late, the model included");
    let mut costs = costs.split_off(WARM_UP);
    let figure = |name, measured, bound| Figure { name, measured, bound, unit: "ms" };
    vec![
        figure("chat over a bare client, p50", rank(&mut costs, 50), 2.0),
        figure("chat over a bare client, p99", rank(&mut costs, 99), 6.0),
        // Noise of a shared machine stays below; work that grows with the session would not.
        Figure {
            name: "its last turns to its first",
            measured: late / early.max(0.1),
            bound: 1.25,
            unit: "x",
        },
    ]
}
