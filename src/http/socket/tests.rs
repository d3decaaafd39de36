//! The WebSocket over loopback: clients that behave, and bytes that do not.

mod raw;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;

use super::*;
use crate::agent::TurnEvent;
use crate::agent::fake::{self, Fake, Script};
use crate::http::access::Access;
use crate::http::server::{self, Service};
use crate::snapshot::{self, Publisher, Snapshot};

/// No test may hang: far beyond what any of them needs.
const DEADLINE: Duration = Duration::from_secs(60);

struct House {
    at: SocketAddr,
    fake: Arc<Fake>,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
    _publisher: Publisher,
}

async fn house_with(token: Option<&str>) -> House {
    let fake = Arc::new(Fake::default());
    let first = Snapshot { designation: "Crayfish".into(), store_ok: true, ..Snapshot::default() };
    let (publisher, snapshot) = snapshot::channel(first);
    let access = Access::new("127.0.0.1:8765".parse().unwrap(), &[], token).unwrap();
    let service = Arc::new(Service { converse: fake.clone(), snapshot, access });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let served = tokio::spawn(server::serve(listener, service, stop.clone()));
    House { at, fake, stop, served, _publisher: publisher }
}

async fn house() -> House {
    house_with(None).await
}

struct Client {
    socket: WebSocketStream<TcpStream>,
    protocol: Option<String>,
    ready: Value,
}

impl House {
    /// A client with these headers, or the status it was refused with.
    async fn client(&self, path: &str, headers: &[(&'static str, &str)]) -> Result<Client, u16> {
        let stream = TcpStream::connect(self.at).await.unwrap();
        let mut request = format!("ws://localhost{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_str(value).unwrap());
        }
        let (socket, answer) = match client_async(request, stream).await {
            Ok(upgraded) => upgraded,
            Err(Error::Http(answer)) => return Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        };
        let protocol = answer.headers().get("sec-websocket-protocol");
        let protocol = protocol.map(|value| value.to_str().unwrap().to_owned());
        let mut client = Client { socket, protocol, ready: Value::Null };
        client.ready = client.read().await;
        assert_eq!(client.ready["event"], "ready");
        Ok(client)
    }

    /// A client that knows our frames.
    async fn page(&self) -> Client {
        self.client("/ws", &[("sec-websocket-protocol", "crayfish.v1")]).await.unwrap()
    }
}

impl Client {
    async fn message(&mut self) -> Message {
        let next = tokio::time::timeout(DEADLINE, self.socket.next()).await.expect("in time");
        next.expect("a message, not the end").unwrap()
    }

    /// The next frame of the protocol.
    async fn read(&mut self) -> Value {
        loop {
            match self.message().await {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("a frame, not {other:?}"),
            }
        }
    }

    async fn write(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn ask(&mut self, frame: Value) -> Value {
        self.write(frame).await;
        self.read().await
    }

    /// The answer's words up to the end of the turn.
    async fn answer(&mut self) -> (String, Value) {
        let mut text = String::new();
        loop {
            let frame = self.read().await;
            match frame["event"].as_str().unwrap() {
                "delta" => text.push_str(frame["text"].as_str().unwrap()),
                "done" | "cancelled" => return (text, frame),
                "error" if frame.get("turn").is_some() => return (text, frame),
                _ => {}
            }
        }
    }

    /// Code and reason of the server's goodbye.
    async fn goodbye(mut self) -> (u16, String) {
        loop {
            if let Message::Close(Some(goodbye)) = self.message().await {
                return (goodbye.code.into(), goodbye.reason.to_string());
            }
        }
    }
}

#[tokio::test]
async fn the_example_client_of_cashcode_gets_its_answer() {
    let house = house().await;
    house.fake.script(fake::say(&["Hello", ", Cash", "."]));
    // As its library does it: no path, no protocol, no origin.
    let mut client = house.client("", &[]).await.unwrap();
    assert_eq!(client.protocol, None);
    assert!(client.ready["client_id"].as_str().unwrap().starts_with("client-"));
    let chat_id = client.ready["chat_id"].as_str().unwrap().to_owned();
    let content = "Hello, my name is Cash";
    client.write(json!({"type": "message", "chat_id": chat_id, "content": content})).await;
    let mut seen = Vec::new();
    loop {
        let frame = client.read().await;
        assert_eq!(frame["chat_id"], chat_id);
        seen.push(frame["event"].as_str().unwrap().to_owned());
        if frame["event"] == "done" {
            assert!(frame["duration_sec"].is_f64());
            break;
        }
    }
    assert_eq!(seen, ["delta", "stream_end", "done"]);
    assert_eq!(house.fake.heard()[0].text, content);
}

#[tokio::test]
async fn a_page_is_told_which_files_of_the_page_there_are_now() {
    let house = house().await;
    let page = house.page().await;
    assert_eq!(page.ready["assets"], pages::SET);
    let index = pages::page(&hyper::header::HeaderMap::new());
    let tag = index.headers().get("etag").unwrap().to_str().unwrap();
    assert_eq!(tag, format!("\"{}\"", pages::SET));
    let cashcode = house.client("", &[]).await.unwrap();
    assert_eq!(cashcode.ready.get("assets"), None);
}

#[tokio::test]
async fn every_frame_has_its_answer_in_text_and_in_binary() {
    let house = house().await;
    let mut client = house.page().await;
    assert_eq!(client.protocol.as_deref(), Some("crayfish.v1"));
    assert_eq!(client.ask(json!({"type": "ping"})).await, json!({"event": "pong"}));
    let fresh = client.ask(json!({"type": "new_chat"})).await;
    assert_eq!(fresh["event"], "attached");
    for stop in ["cancel", "stop"] {
        let answer = client.ask(json!({"type": stop, "chat_id": "x"})).await;
        assert_eq!(answer, json!({"event": "stop_ack", "chat_id": "x", "stopped": true}));
    }
    assert_eq!(house.fake.cancelled(), [Some("x".to_owned()), Some("x".to_owned())]);
    for (wrong, detail) in [
        (json!([]), "typed JSON envelope required"),
        (json!({"type": "dance"}), "unknown type: 'dance'"),
        (json!({"type": "attach", "chat_id": "a\n"}), "invalid chat_id"),
        (json!({"type": "message", "chat_id": "a", "content": " "}), "missing content"),
    ] {
        let answer = client.ask(wrong).await;
        assert_eq!((&answer["event"], &answer["detail"]), (&json!("error"), &json!(detail)));
    }
    client.socket.send(Message::binary(&b"\xff\xfe"[..])).await.unwrap();
    client.socket.send(Message::binary(&br#"{"type":"status"}"#[..])).await.unwrap();
    assert_eq!(client.read().await["event"], "status", "bytes that are no text are nothing");
    client.socket.send(Message::Ping(Bytes::from_static(b"hi"))).await.unwrap();
    assert_eq!(client.message().await, Message::Pong(Bytes::from_static(b"hi")));
}

#[tokio::test]
async fn the_rules_of_access_hold_for_sockets_as_well() {
    let house = house_with(Some("s3cret/=")).await;
    let hex: String = "s3cret/=".bytes().map(|byte| format!("{byte:02x}")).collect();
    let ours = format!("crayfish.v1, crayfish.token.{hex}");
    let page = house.client("/", &[("sec-websocket-protocol", &ours)]).await.unwrap();
    assert_eq!(page.protocol.as_deref(), Some("crayfish.v1"), "the token is not told back");
    assert!(house.client("/ws", &[("x-ocf-token", "s3cret/=")]).await.is_ok());
    assert!(house.client("/ws", &[("authorization", "Bearer s3cret/=")]).await.is_ok());
    let own = [("x-ocf-token", "s3cret/="), ("origin", "http://localhost")];
    assert!(house.client("/ws", &own).await.is_ok());
    for (headers, status) in [
        (&[][..], 401),
        (&[("sec-websocket-protocol", "crayfish.v1, crayfish.token.00")], 401),
        (&[("sec-websocket-protocol", "crayfish.token.zz")], 401),
        (&[("x-ocf-token", "s3cret/="), ("origin", "http://evil.example")], 403),
        (&[("x-ocf-token", "s3cret/="), ("origin", "null")], 403),
        (&[("x-ocf-token", "s3cret/="), ("sec-fetch-site", "cross-site")], 403),
    ] {
        assert_eq!(house.client("/ws", headers).await.err(), Some(status), "{headers:?}");
    }
    assert_eq!(house.client("/ws?token=s3cret", &[]).await.err(), Some(401));
}

#[tokio::test]
async fn one_socket_too_many_is_refused_and_a_request_still_finds_a_place() {
    let house = house().await;
    let mut clients = Vec::new();
    for _ in 0..limits::SOCKETS_MAX {
        clients.push(house.page().await);
    }
    assert_eq!(house.client("/ws", &[]).await.err(), Some(503));
    let mut plain = TcpStream::connect(house.at).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    plain.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, plain.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    clients.pop().unwrap().socket.close(None).await.unwrap();
    let freed = async { while house.client("/ws", &[]).await.is_err() {} };
    tokio::time::timeout(DEADLINE, freed).await.expect("its place is free again");
}

#[tokio::test]
async fn fifty_clients_on_one_daemon_lose_no_frame() {
    const PIECES: usize = 150;
    let house = house().await;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut clients = Vec::new();
    for number in 0..50 {
        let mut client = house.page().await;
        let chat_id = format!("s{}", number % 5);
        client.ask(json!({"type": "attach", "chat_id": chat_id})).await;
        clients.push(client);
    }
    let mut turns = Vec::new();
    for (session, speaker) in clients.iter_mut().take(5).enumerate() {
        let (sender, script) = mpsc::channel(4);
        house.fake.script(Script::Held(script));
        let before = house.fake.heard().len();
        speaker.write(json!({"type": "message", "content": format!("say {session}")})).await;
        while house.fake.heard().len() == before {
            tokio::task::yield_now().await;
        }
        let pieces: Vec<String> =
            (0..PIECES).map(|n| format!("{session}.{n}{} ", "x".repeat(rng.usize(..40)))).collect();
        turns.push((sender, pieces));
    }
    let whole: Vec<String> = turns.iter().map(|(_, pieces)| pieces.concat()).collect();
    let readers: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, mut client)| {
            let mut rng = fastrand::Rng::with_seed(number as u64);
            tokio::spawn(async move {
                let said = if number < 5 { 0 } else { 1 };
                let (mut users, mut text) = (0, String::new());
                loop {
                    let frame = client.read().await;
                    match frame["event"].as_str().unwrap() {
                        "user" => users += 1,
                        "delta" => text.push_str(frame["text"].as_str().unwrap()),
                        "done" => break,
                        "stream_end" => {}
                        other => panic!("{other}"),
                    }
                    if rng.u8(..) < 16 {
                        tokio::time::sleep(Duration::from_millis(rng.u64(..5))).await;
                    }
                }
                assert_eq!(users, said, "its own words are not echoed");
                // Nothing comes after the end.
                assert_eq!(client.ask(json!({"type": "ping"})).await["event"], "pong");
                (number % 5, text)
            })
        })
        .collect();
    for (sender, pieces) in turns {
        tokio::spawn(async move {
            let text = pieces.concat();
            for piece in pieces {
                sender.send(TurnEvent::Delta(piece)).await.unwrap();
                tokio::task::yield_now().await;
            }
            sender.send(TurnEvent::Done(fake::answer(&text))).await.unwrap();
        });
    }
    for reader in readers {
        let (session, text) = tokio::time::timeout(DEADLINE, reader).await.unwrap().unwrap();
        assert_eq!(text, whole[session]);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nobody_up_and_finds_all_when_it_reads_again() {
    let house = house().await;
    let (mut asleep, mut awake) = (house.page().await, house.page().await);
    for client in [&mut asleep, &mut awake] {
        client.ask(json!({"type": "attach", "chat_id": "x"})).await;
    }
    let (sender, script) = mpsc::channel(1);
    house.fake.script(Script::Held(script));
    awake.write(json!({"type": "message", "content": "go"})).await;
    // More than the kernel keeps for a socket.
    let piece = "a piece of words; ".repeat(4096);
    let count = 160;
    let said = piece.clone();
    tokio::spawn(async move {
        for _ in 0..count {
            sender.send(TurnEvent::Delta(said.clone())).await.unwrap();
        }
        sender.send(TurnEvent::Cancelled).await.unwrap();
    });
    let (heard, end) = awake.answer().await;
    assert_eq!(end["event"], "cancelled");
    assert_eq!(heard.len(), piece.len() * count);
    let (late, end) = asleep.answer().await;
    assert_eq!(end["event"], "cancelled");
    assert!(late == heard, "{} of {} bytes", late.len(), heard.len());
    assert_eq!(asleep.ask(json!({"type": "ping"})).await["event"], "pong");
}

#[tokio::test]
async fn at_the_stop_a_running_answer_is_told_to_its_end_and_then_goodbye() {
    let house = house().await;
    let (mut busy, idle) = (house.page().await, house.page().await);
    let (sender, script) = mpsc::channel(4);
    house.fake.script(Script::Held(script));
    busy.write(json!({"type": "message", "content": "go"})).await;
    sender.send(TurnEvent::Delta("half".into())).await.unwrap();
    assert_eq!(busy.read().await["text"], "half");
    house.stop.cancel();
    assert_eq!(idle.goodbye().await, (1001, "shutting down".to_owned()));
    sender.send(TurnEvent::Done(fake::answer("half and half"))).await.unwrap();
    let (text, end) = busy.answer().await;
    assert_eq!((text.as_str(), &end["event"]), (" and half", &json!("done")));
    assert_eq!(busy.goodbye().await.0, 1001);
    tokio::time::timeout(DEADLINE, house.served).await.expect("drained").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_silent_is_asked_and_left_if_it_does_not_answer() {
    let fake: Arc<Fake> = Arc::default();
    let (_publisher, snapshot) = snapshot::channel(Snapshot::default());
    let visit = Visit::new(fake, snapshot, crate::agent::visit::Manners::Browser);
    let (near, far) = tokio::io::duplex(64 * 1024);
    let began = Instant::now();
    let serving = tokio::spawn(async move {
        serve(near, &Bytes::new(), visit, CancellationToken::new()).await;
    });
    let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    assert!(matches!(client.next().await, Some(Ok(Message::Text(_)))));
    // It is asked, answers, and is asked again.
    for _ in 0..2 {
        assert!(matches!(client.next().await, Some(Ok(Message::Ping(_)))));
        client.flush().await.unwrap();
    }
    assert_eq!(began.elapsed(), 2 * limits::SOCKET_PING_AFTER);
    // From now on it takes no notice.
    serving.await.unwrap();
    let patience = limits::SOCKET_PING_AFTER + limits::SOCKET_PONG_MAX;
    assert!(began.elapsed() >= 2 * limits::SOCKET_PING_AFTER + patience);
}
