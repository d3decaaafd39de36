//! The WebSocket of the real program: CashCode's example, tabs, stops, and a `kill -9` in the
//! middle of an answer.

use std::net::{Ipv4Addr, TcpStream};

use hailo::sim::clock::Pace;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::{counting, hailo_that, quick_hailo};
use crate::client::{connect, history};
use crate::daemon::Setup;

/// Words of an answer that does not end while a test looks at it.
const LONG: u32 = 4_000;

/// Simulated seconds in a real one: some 6 ms for each word.
const PACE: f64 = 20.0;

struct Tab {
    socket: WebSocket<TcpStream>,
    ready: Value,
}

impl Tab {
    /// As CashCode's example connects: no path, no protocol.
    fn open(port: u16) -> Self {
        let stream = connect(port).unwrap();
        let address = format!("ws://{}:{port}", Ipv4Addr::LOCALHOST);
        let (socket, _) = tungstenite::client(address, stream).unwrap();
        let mut tab = Self { socket, ready: Value::Null };
        tab.ready = tab.read().unwrap();
        tab
    }

    /// The next frame; `None` when the connection is gone.
    fn read(&mut self) -> Option<Value> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    #[track_caller]
    fn write(&mut self, frame: &Value) {
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    /// Frames up to and with the first of this event.
    #[track_caller]
    fn until(&mut self, event: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let Some(frame) = self.read() else { panic!("gone before {event}: {frames:?}") };
            frames.push(frame.clone());
            if frame["event"] == event {
                return frames;
            }
        }
    }

    fn say(&mut self, chat_id: &str, content: &str) {
        self.write(&json!({"type": "message", "chat_id": chat_id, "content": content}));
    }
}

fn events(frames: &[Value]) -> Vec<&str> {
    let mut events: Vec<_> = frames.iter().map(|frame| frame["event"].as_str().unwrap()).collect();
    events.dedup();
    events
}

fn words(frames: &[Value]) -> String {
    frames.iter().filter_map(|frame| frame["text"].as_str()).collect()
}

#[test]
fn cashcodes_example_gets_real_words_and_its_end() {
    let hailo = quick_hailo();
    let daemon = Setup::on_hailo(hailo.addr()).start();
    let mut tab = Tab::open(daemon.port);
    let chat_id = tab.ready["chat_id"].as_str().unwrap().to_owned();
    tab.say(&chat_id, "Hello, my name is Cash");
    let mut frames = tab.until("done");
    frames.retain(|frame| frame["event"] != "waiting");
    assert_eq!(events(&frames), ["session_updated", "delta", "stream_end", "done"]);
    assert_eq!(frames[0]["title"], "Hello, my name is Cash");
    assert!(frames.iter().all(|frame| frame["chat_id"] == chat_id.as_str()));
}

#[test]
fn a_stop_really_ends_the_turn_for_every_tab_and_the_next_is_answered() {
    let hailo = hailo_that(Pace::Factor(PACE), vec![counting("count", LONG)]);
    let daemon = Setup::on_hailo(hailo.addr()).start();
    let (mut one, mut two) = (Tab::open(daemon.port), Tab::open(daemon.port));
    two.write(&json!({"type": "attach", "chat_id": "x"}));
    two.until("attached");
    one.say("x", "count");
    let heard = two.until("delta");
    assert!(events(&heard).contains(&"user"));
    two.write(&json!({"type": "stop", "chat_id": "x"}));
    let ends: Vec<_> = [&mut one, &mut two].map(|tab| tab.until("cancelled")).into_iter().collect();
    assert!(ends[1].iter().any(|frame| frame["event"] == "stop_ack" && frame["stopped"] == true));
    assert_eq!(words(&ends[0]), words(&heard) + &words(&ends[1]), "both saw the same words");
    one.until("error");
    one.say("x", "and now?");
    assert!(!words(&one.until("done")).is_empty());
}

#[test]
fn after_kill_9_in_the_middle_of_an_answer_a_client_that_comes_back_has_lost_nothing() {
    let hailo = hailo_that(Pace::Factor(PACE), vec![counting("count", LONG)]);
    let setup = Setup::on_hailo(hailo.addr());
    let mut daemon = setup.start();
    let mut tab = Tab::open(daemon.port);
    tab.say("x", "first");
    tab.until("done");
    tab.say("x", "count");
    let mut shown = String::new();
    while shown.len() < 60 {
        shown.push_str(&words(&tab.until("delta")));
    }
    daemon.kill();
    while let Some(frame) = tab.read() {
        shown.push_str(frame["text"].as_str().unwrap_or_default());
    }
    let daemon = setup.start();
    let mut back = Tab::open(daemon.port);
    back.write(&json!({"type": "attach", "chat_id": "x", "after_turn": 1}));
    let frames = back.until("history");
    assert_eq!(events(&frames), ["attached", "history"]);
    let lines = frames[1]["turns"].as_array().unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!((&lines[0]["content"], &lines[0]["turn"]), (&json!("count"), &json!(2)));
    assert_eq!(lines[1]["outcome"], "interrupted");
    let kept = lines[1]["content"].as_str().unwrap();
    assert!(kept.starts_with(&shown), "shown {shown:?}, kept {kept:?}");
}

#[test]
fn a_client_that_comes_back_in_the_middle_of_an_answer_sees_it_whole() {
    let hailo = hailo_that(Pace::Factor(PACE), vec![counting("count", 300)]);
    let daemon = Setup::on_hailo(hailo.addr()).start();
    let (mut stays, mut leaves) = (Tab::open(daemon.port), Tab::open(daemon.port));
    stays.write(&json!({"type": "attach", "chat_id": "x"}));
    leaves.say("x", "count");
    let before = leaves.until("delta");
    drop(leaves);
    let mut back = Tab::open(daemon.port);
    back.write(&json!({"type": "attach", "chat_id": "x", "after_turn": 0}));
    let mut frames = back.until("snapshot");
    frames.extend(back.until("done"));
    let whole = words(&stays.until("done"));
    assert!(whole.starts_with(&words(&before)));
    assert_eq!(words(&frames), whole, "the snapshot and what comes after it");
}

#[test]
fn fifty_clients_of_the_whole_daemon_lose_no_frame() {
    const CLIENTS: usize = 50;
    const SESSIONS: usize = 5;
    let hailo = hailo_that(Pace::Factor(PACE), vec![counting("count", 80)]);
    let daemon = Setup::on_hailo(hailo.addr()).start();
    let session = |number: usize| format!("s{}", number % SESSIONS);
    let mut tabs: Vec<_> = (0..CLIENTS).map(|_| Tab::open(daemon.port)).collect();
    for (number, tab) in tabs.iter_mut().enumerate() {
        tab.write(&json!({"type": "attach", "chat_id": session(number)}));
        tab.until("attached");
    }
    for (number, tab) in tabs.iter_mut().take(SESSIONS).enumerate() {
        tab.say(&session(number), "count");
    }
    let readers = tabs.into_iter().enumerate().map(|(number, mut tab)| {
        std::thread::spawn(move || {
            let mut frames = tab.until("done");
            frames.retain(|frame| frame["event"] != "waiting");
            // Nothing comes after the end.
            tab.write(&json!({"type": "ping"}));
            assert_eq!(events(&tab.until("pong")), ["pong"]);
            (number, frames)
        })
    });
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        let (number, frames) = reader.join().unwrap();
        let mine = session(number);
        assert!(frames.iter().all(|frame| frame["chat_id"] == mine.as_str()), "{frames:?}");
        let mut seen = events(&frames);
        if number >= SESSIONS {
            assert_eq!(seen.iter().filter(|event| **event == "user").count(), 1, "{seen:?}");
            seen.retain(|event| *event != "user");
        }
        assert_eq!(seen, ["session_updated", "delta", "stream_end", "done"], "client {number}");
        let lines = history(daemon.port, &mine);
        assert_eq!(words(&frames), lines[1]["content"].as_str().unwrap(), "client {number}");
    }
}

#[test]
fn a_message_that_comes_again_over_another_connection_or_after_a_crash_is_one_turn() {
    let hailo = hailo_that(Pace::Factor(PACE), vec![counting("count", LONG)]);
    let setup = Setup::on_hailo(hailo.addr());
    let mut daemon = setup.start();
    let message = |content: &str, id: &str| json!({"type": "message", "chat_id": "x", "content": content, "id": id});
    let mut first = Tab::open(daemon.port);
    first.write(&message("count", "m1"));
    first.until("delta");
    drop(first);
    let mut second = Tab::open(daemon.port);
    second.write(&message("count", "m1"));
    let taken = second.until("taken").pop().unwrap();
    assert_eq!((&taken["turn"], &taken["again"]), (&json!(1), &json!(true)));
    second.until("delta");
    daemon.kill();
    let daemon = setup.start();
    let mut third = Tab::open(daemon.port);
    third.write(&message("count", "m1"));
    let told = third.until("error");
    assert_eq!((&told[0]["event"], &told[0]["again"]), (&json!("taken"), &json!(true)));
    let end = told.last().unwrap();
    assert_eq!((&end["code"], &end["turn"]), (&json!("interrupted"), &json!(1)));
    let lines = history(daemon.port, "x");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0]["id"], "m1");
    assert_eq!(words(&told), lines[1]["content"].as_str().unwrap());
}
