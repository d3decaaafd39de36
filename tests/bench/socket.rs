//! From a token of the model's to the words in a client's hands: a WebSocket before the daemon, and
//! a tee behind it that notes when the model's server said them. Stored, then shown, all in between.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::daemon::{Daemon, Simulator};
use crate::wire::Tee;
use crate::{Figure, Programs, millis, rank};

/// Turns that are measured, after some that warm up.
const TURNS: usize = 100;
const WARM_UP: usize = 10;
/// Longer than the model needs to be loaded at this pace.
const LOADED_MAX: Duration = Duration::from_secs(30);

/// Simulated seconds in a real one: a token every seven milliseconds, so that none shares a packet
/// with the next.
const PACE: &str = "20";

/// The first word comes once in each answer.
const SCRIPT: &str = r#"{"cycle": true, "replies": [{"text": "Claws are what a crab has."}]}"#;
const FIRST_WORD: &str = "Claws";

pub(crate) fn figures(programs: &Programs) -> Vec<Figure> {
    let simulator = Simulator::start(&programs.hailo_sim, PACE, SCRIPT);
    let tee = Tee::start(simulator.address);
    let daemon = Daemon::start(&programs.crayfish, Some(tee.address));
    daemon.until_online(LOADED_MAX);
    let stream = TcpStream::connect(daemon.http).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut socket, _) = tungstenite::client(format!("ws://{}", daemon.http), stream).unwrap();
    let mut late = Vec::with_capacity(TURNS);
    for turn in 0..WARM_UP + TURNS {
        let message = json!({ "type": "message", "chat_id": "a", "content": "What has a crab?" });
        socket.send(Message::text(message.to_string())).unwrap();
        let mut first = None;
        loop {
            let Message::Text(text) = socket.read().unwrap() else { continue };
            let now = Instant::now();
            let frame: Value = serde_json::from_str(&text).unwrap();
            match frame["event"].as_str().unwrap() {
                "delta" => _ = first.get_or_insert(now),
                "done" => break,
                "error" => panic!("{frame}"),
                _ => {}
            }
        }
        let said = tee.said_at(FIRST_WORD).unwrap();
        if turn >= WARM_UP {
            late.push(millis(first.unwrap().saturating_duration_since(said)));
        }
    }
    [("first delta after its token, p50", 50), ("first delta after its token, p95", 95)]
        .map(|(name, percent)| Figure {
            name,
            measured: rank(&mut late, percent),
            bound: 2.0,
            unit: "ms",
        })
        .into()
}
