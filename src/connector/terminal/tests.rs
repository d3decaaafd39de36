use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::*;
use crate::agent::fake::{self, Fake, Script};
use crate::agent::{Refused, TurnEvent};
use crate::session::log::{About, Line};
use crate::snapshot::{self, Snapshot};

/// No test may hang: far beyond what any of them needs.
const DEADLINE: Duration = Duration::from_secs(30);

struct House {
    path: PathBuf,
    fake: Arc<Fake>,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

fn house() -> House {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(SOCKET_NAME);
    let fake = Arc::new(Fake::default());
    let first = Snapshot { designation: "Crayfish".into(), ..Snapshot::default() };
    let (_publisher, reader) = snapshot::channel(first);
    let stop = CancellationToken::new();
    let socket = Socket::bind(&path).unwrap();
    let served = tokio::spawn(serve(socket, fake.clone(), reader, stop.clone()));
    House { path, fake, stop, served, _dir: dir }
}

struct Peer {
    stream: BufReader<UnixStream>,
}

impl Peer {
    async fn of(house: &House) -> Self {
        let stream = UnixStream::connect(&house.path).await.unwrap();
        let mut peer = Self { stream: BufReader::new(stream) };
        assert_eq!(peer.read().await["event"], "ready");
        peer
    }

    async fn write(&mut self, line: &str) {
        self.stream.write_all(line.as_bytes()).await.unwrap();
        self.stream.write_all(b"\n").await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        tokio::time::timeout(DEADLINE, read).await.expect("a frame in time").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("a frame, not {line:?}"))
    }

    /// Names of the events up to and with the first of `ends`.
    async fn until(&mut self, ends: &[&str]) -> Vec<String> {
        let mut events = Vec::new();
        loop {
            let event = self.read().await["event"].as_str().unwrap().to_owned();
            events.push(event.clone());
            if ends.contains(&event.as_str()) {
                return events;
            }
        }
    }

    async fn ended(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = self.stream.read_to_end(&mut rest);
        matches!(tokio::time::timeout(DEADLINE, read).await, Ok(Ok(_)))
    }
}

#[tokio::test]
async fn a_message_is_answered_word_by_word() {
    let house = house();
    let (words, events) = mpsc::channel(4);
    house.fake.script(Script::Held(events));
    let mut peer = Peer::of(&house).await;
    peer.write(r#"{"type":"message","content":"hi","metadata":{"backend":"ollama"}}"#).await;
    words.send(TurnEvent::Delta("Hello".into())).await.unwrap();
    let first = peer.read().await;
    assert_eq!((&first["event"], &first["text"]), (&"delta".into(), &"Hello".into()));
    assert_eq!((&first["chat_id"], &first["stream_id"]), (&"main".into(), &1.into()));
    words.send(TurnEvent::Delta(", you".into())).await.unwrap();
    words.send(TurnEvent::Done(fake::answer("Hello, you"))).await.unwrap();
    assert_eq!(peer.until(&["done"]).await, ["delta", "stream_end", "done"]);
    assert_eq!(house.fake.heard()[0].backend.as_deref(), Some("ollama"));
}

#[tokio::test]
async fn bad_frames_are_answered_and_the_connection_goes_on() {
    let house = house();
    let mut peer = Peer::of(&house).await;
    let long = "x".repeat(limits::FRAME_BYTES_MAX + 1);
    for bad in ["{", "[]", r#"{"type":"dance"}"#, r#"{"type":"attach"}"#, long.as_str()] {
        peer.write(bad).await;
        let error = peer.read().await;
        assert_eq!(error["event"], "error");
        assert!(error.get("turn").is_none(), "no turn began: {error}");
    }
    peer.stream.write_all(b"\xff\xfe\n\n  \n").await.unwrap();
    assert_eq!(peer.read().await["event"], "error");
    peer.write(r#"{"type":"ping"}"#).await;
    assert_eq!(peer.read().await["event"], "pong");
    assert!(house.fake.heard().is_empty());
}

#[tokio::test]
async fn a_turn_can_be_stopped_while_words_arrive() {
    let house = house();
    let (words, events) = mpsc::channel(4);
    house.fake.script(Script::Held(events));
    let mut peer = Peer::of(&house).await;
    peer.write(r#"{"type":"message","chat_id":"a","content":"count"}"#).await;
    words.send(TurnEvent::Delta("one".into())).await.unwrap();
    assert_eq!(peer.read().await["text"], "one");
    peer.write(r#"{"type":"stop","chat_id":"a"}"#).await;
    let ack = peer.read().await;
    assert_eq!((&ack["event"], &ack["stopped"]), (&"stop_ack".into(), &true.into()));
    assert_eq!(house.fake.cancelled(), [Some("a".to_owned())]);
    words.send(TurnEvent::Cancelled).await.unwrap();
    assert_eq!(peer.until(&["cancelled"]).await, ["cancelled"]);
}

#[tokio::test]
async fn a_turn_whose_events_stop_ends_in_an_error() {
    let house = house();
    house.fake.script(Script::Say(vec![TurnEvent::Delta("half".into())]));
    let mut peer = Peer::of(&house).await;
    peer.write(r#"{"type":"message","content":"x"}"#).await;
    assert_eq!(peer.until(&["error", "done"]).await, ["delta", "error"]);
}

#[tokio::test]
async fn what_is_refused_says_why() {
    let house = house();
    house.fake.script(Script::Refuse(Refused::Overloaded));
    let mut peer = Peer::of(&house).await;
    peer.write(r#"{"type":"message","chat_id":"a","content":"x"}"#).await;
    let error = peer.read().await;
    assert_eq!((&error["code"], &error["chat_id"]), (&"overloaded".into(), &"a".into()));
}

#[tokio::test]
async fn a_connection_keeps_its_conversation() {
    let house = house();
    house.fake.lines(vec![Line {
        turn: 1,
        from_person: false,
        text: "hi".into(),
        at_ms: 0,
        outcome: Some("done"),
        id: None,
        about: About::default(),
    }]);
    let mut peer = Peer::of(&house).await;
    peer.write(r#"{"type":"new_chat"}"#).await;
    let chat_id = peer.read().await["chat_id"].as_str().unwrap().to_owned();
    peer.write(r#"{"type":"message","content":"x"}"#).await;
    peer.until(&["done"]).await;
    assert_eq!(house.fake.heard()[0].session.as_deref(), Some(chat_id.as_str()));
    peer.write(r#"{"type":"history"}"#).await;
    let history = peer.read().await;
    assert_eq!(history["chat_id"], chat_id.as_str());
    assert_eq!(history["turns"][0]["role"], "agent");
    peer.write(r#"{"type":"status"}"#).await;
    assert_eq!(peer.read().await["status"]["designation"], "Crayfish");
}

#[tokio::test]
async fn a_client_that_sends_no_more_still_gets_its_answer() {
    let house = house();
    let (words, events) = mpsc::channel(4);
    house.fake.script(Script::Held(events));
    let mut peer = Peer::of(&house).await;
    peer.write(r#"{"type":"message","content":"x"}"#).await;
    peer.stream.shutdown().await.unwrap();
    words.send(TurnEvent::Done(fake::answer("late"))).await.unwrap();
    assert_eq!(peer.until(&["done"]).await, ["delta", "stream_end", "done"]);
    assert!(peer.ended().await);
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_its_turn() {
    let house = house();
    let (words, events) = mpsc::channel(4);
    house.fake.script(Script::Held(events));
    let mut peer = Peer::of(&house).await;
    peer.write(r#"{"type":"message","content":"x"}"#).await;
    words.send(TurnEvent::Delta("a".into())).await.unwrap();
    assert_eq!(peer.read().await["text"], "a");
    drop(peer);
    // The door notices when it writes, and lets go of the events without cancelling.
    let gone = async {
        while house.fake.audience().readers() > 0 {
            words.send(TurnEvent::Delta("b".into())).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.expect("the door lets go of a client that left");
    assert!(house.fake.cancelled().is_empty());
}

#[tokio::test]
async fn one_client_too_many_is_turned_away_and_a_place_comes_free() {
    let house = house();
    let mut peers = Vec::new();
    for _ in 0..limits::TERMINAL_CLIENTS_MAX {
        peers.push(Peer::of(&house).await);
    }
    let stream = UnixStream::connect(&house.path).await.unwrap();
    let mut late = Peer { stream: BufReader::new(stream) };
    assert_eq!(late.read().await["code"], "overloaded");
    assert!(late.ended().await);
    peers.pop();
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let stream = UnixStream::connect(&house.path).await.unwrap();
        let mut again = Peer { stream: BufReader::new(stream) };
        if again.read().await["event"] == "ready" {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no place came free");
    }
}

#[tokio::test]
async fn at_the_stop_a_running_turn_is_told_to_its_end() {
    let house = house();
    let (words, events) = mpsc::channel(4);
    house.fake.script(Script::Held(events));
    let mut idle = Peer::of(&house).await;
    let mut peer = Peer::of(&house).await;
    peer.write(r#"{"type":"message","content":"x"}"#).await;
    words.send(TurnEvent::Delta("a".into())).await.unwrap();
    assert_eq!(peer.read().await["text"], "a");
    house.stop.cancel();
    assert!(idle.ended().await);
    words.send(TurnEvent::Cancelled).await.unwrap();
    assert_eq!(peer.until(&["cancelled"]).await, ["cancelled"]);
    tokio::time::timeout(DEADLINE, house.served).await.unwrap().unwrap();
    assert!(!house.path.exists());
}

#[tokio::test]
async fn only_a_dead_socket_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(SOCKET_NAME);
    std::fs::write(&path, "a file of somebody").unwrap();
    assert!(matches!(Socket::bind(&path), Err(BindError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file of somebody");
    std::fs::remove_file(&path).unwrap();

    let first = Socket::bind(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, SOCKET_MODE);
    assert!(matches!(Socket::bind(&path), Err(BindError::InUse(_))));
    drop(first);

    // A daemon that was killed leaves its file behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    assert!(Socket::bind(&path).is_ok());
    let nowhere = dir.path().join("missing").join(SOCKET_NAME);
    assert!(matches!(Socket::bind(&nowhere), Err(BindError::Io { .. })));
}
