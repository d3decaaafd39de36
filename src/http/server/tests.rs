use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::agent::fake::{self, Fake, Script};
use crate::agent::{Converse, Refused, TurnEvent};
use crate::http::access::Access;
use crate::session::log::{About, Line};
use crate::session::wire::SessionInfo;
use crate::snapshot::{self, Publisher, Snapshot};

/// No test may hang: far beyond what any of them needs.
const DEADLINE: Duration = Duration::from_secs(60);

struct House {
    at: SocketAddr,
    fake: Arc<Fake>,
    publisher: Publisher,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

fn service(token: Option<&str>) -> (Arc<Service>, Arc<Fake>, Publisher) {
    let fake = Arc::new(Fake::default());
    let first = Snapshot {
        designation: "Crayfish".into(),
        online: true,
        active_backend: "hailo".into(),
        store_ok: true,
        backends: vec![snapshot::BackendState {
            name: "hailo".into(),
            tokens_per_s: Some(7.6),
            head_ms: Some(2.5),
            gap_p99_ms: Some(151.0),
            ..Default::default()
        }],
        mood: Some(snapshot::Mood {
            dominant: "calm".into(),
            active_channel: "sorrow".into(),
            active_intensity: 0.25,
            ..Default::default()
        }),
        ..Snapshot::default()
    };
    let (publisher, snapshot) = snapshot::channel(first);
    let access = Access::new("127.0.0.1:8765".parse().unwrap(), &[], token).unwrap();
    (Arc::new(Service { converse: fake.clone(), snapshot, access }), fake, publisher)
}

async fn house_with(token: Option<&str>) -> House {
    let (service, fake, publisher) = service(token);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let served = tokio::spawn(serve(listener, service, stop.clone()));
    House { at, fake, publisher, stop, served }
}

async fn house() -> House {
    house_with(None).await
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("JSON, not {:?}", self.body))
    }

    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

impl House {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }

    /// Sends bytes and reads until the server closes.
    async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        Answer::of(&rest(&mut stream).await)
    }

    async fn get(&self, target: &str) -> Answer {
        self.raw(get(target).as_bytes()).await
    }

    async fn chat(&self, body: &[u8]) -> Answer {
        self.raw(&post("/chat", "Content-Type: application/json\r\n", body)).await
    }
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

fn post(target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes = format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

async fn rest<R: AsyncRead + Unpin>(stream: &mut R) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    tokio::time::timeout(DEADLINE, read).await.expect("closed in time").unwrap();
    bytes
}

/// Reads until `text` was seen.
async fn read_until<R: AsyncRead + Unpin>(stream: &mut R, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        let mut buffer = [0; 4096];
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut buffer));
        let count = read.await.expect("more in time").unwrap();
        assert!(count > 0, "closed after {seen:?}, before {text:?}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    seen
}

// --- Answers -----------------------------------------------------------------------------------

#[tokio::test]
async fn a_message_gets_an_answer_with_the_fields_of_the_seed() {
    let house = house().await;
    house.fake.script(fake::say(&["Hello", ", you"]));
    let body = br#"{"message":"hi","emergency":false,"session":"web","backend":"hailo"}"#;
    let answer = house.chat(body).await;
    assert_eq!(answer.status, 200);
    let expected = json!({
        "reply": "Hello, you", "backend": "hailo", "stressed": null, "elapsed_ms": 30,
        "mood_dominant": "calm", "mood_active_channel": "sorrow", "mood_active_intensity": 0.25,
        "session": "web", "turn": 1, "model": "qwen2:1.5b", "cut": false, "clipped": false,
        "tokens": 2, "first_word_ms": 10,
    });
    assert_eq!(answer.json(), expected);
    for header in [
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "content-security-policy: default-src 'none'",
        "referrer-policy: no-referrer",
        "content-type: application/json",
    ] {
        assert!(answer.head.contains(header), "{header} in {}", answer.head);
    }
    let heard = house.fake.heard();
    assert_eq!((heard[0].text.as_str(), heard[0].session.as_deref()), ("hi", Some("web")));
    assert_eq!(heard[0].backend.as_deref(), Some("hailo"));
}

#[tokio::test]
async fn a_turn_that_failed_is_an_answer_in_words() {
    let house = house().await;
    let failed = || TurnEvent::Failed { words: "No model answers.".into(), code: "offline" };
    house.fake.script(Script::Say(vec![TurnEvent::Waiting { about_s: 9 }, failed()]));
    let answer = house.chat(br#"{"message":"hi"}"#).await;
    assert_eq!(answer.status, 200);
    let told = answer.json();
    assert_eq!(told["reply"], "No model answers.");
    assert_eq!((&told["backend"], &told["error"]), (&json!("offline"), &json!("offline")));

    house.fake.script(Script::Say(vec![TurnEvent::Delta("Half".into()), failed()]));
    let told = house.chat(br#"{"message":"hi"}"#).await.json();
    assert_eq!(
        (&told["reply"], &told["backend"]),
        (&json!("Half\n\nNo model answers."), &Value::Null)
    );

    house.fake.script(Script::Say(vec![TurnEvent::Delta("Half".into()), TurnEvent::Cancelled]));
    let told = house.chat(br#"{"message":"hi"}"#).await.json();
    assert_eq!((&told["reply"], &told["error"]), (&json!("Half"), &json!("cancelled")));

    house.fake.script(Script::Say(vec![]));
    let told = house.chat(br#"{"message":"hi"}"#).await.json();
    assert_eq!(told["error"], "internal", "a turn that nobody ended");
}

#[tokio::test]
async fn what_the_agent_refuses_has_its_status() {
    let table = [
        (Refused::Empty, 400, None),
        (Refused::TooLong { bytes: 9, max: 8 }, 413, None),
        (Refused::BadSession, 400, None),
        (Refused::NoSuchBackend("x".into()), 400, None),
        (Refused::Overloaded, 503, Some("retry-after: 5")),
        (Refused::Stopping, 503, Some("retry-after: 10")),
        (Refused::NotStored("disk full".into()), 507, None),
    ];
    let house = house().await;
    for (refused, status, header) in table {
        house.fake.script(Script::Refuse(refused.clone()));
        let answer = house.chat(br#"{"message":"hi"}"#).await;
        assert_eq!((answer.status, answer.error()), (status, refused.to_string()));
        assert!(answer.head.contains(header.unwrap_or("")), "{header:?} in {}", answer.head);
    }
}

#[tokio::test]
async fn the_other_routes_answer() {
    let house = house().await;
    house.fake.lines(vec![
        Line {
            turn: 1,
            from_person: true,
            text: "hi".into(),
            at_ms: 0,
            outcome: None,
            id: None,
            about: About::default(),
        },
        Line {
            turn: 1,
            from_person: false,
            text: "yes".into(),
            at_ms: 9,
            outcome: Some("done"),
            id: None,
            about: About::default(),
        },
    ]);
    let turns = house.get("/history?limit=1&session=a%3Ab").await.json();
    let line = json!({
        "role": "agent", "content": "yes", "at": "1970-01-01T00:00:00.009Z", "turn": 1,
        "outcome": "done",
    });
    assert_eq!(turns, json!({ "turns": [line] }));
    assert_eq!(house.get("/history?limit=x").await.status, 400);

    let state = house.get("/state").await.json();
    assert_eq!((&state["designation"], &state["brain_online"]), (&json!("Crayfish"), &json!(true)));
    assert_eq!(
        (&state["sleeping"], &state["backends"][0]["name"]),
        (&Value::Null, &json!("hailo"))
    );

    let hailo = &state["backends"][0];
    assert_eq!(hailo["tokens_per_s"].to_string(), "7.6");
    assert_eq!((&hailo["head_ms"], &hailo["gap_p99_ms"]), (&json!(2.5), &json!(151.0)));
    assert!(hailo.get("gap_p50_ms").is_none(), "not measured is not told");

    let json_type = "Content-Type: application/json\r\n";
    let stop = house.raw(&post("/cancel", json_type, br#"{"session":"a"}"#)).await;
    assert_eq!(stop.json(), json!({ "cancelled": true }));
    assert_eq!(house.raw(&post("/cancel", "", b"")).await.status, 200);
    assert_eq!(house.raw(&post("/cancel", "", b"{}")).await.status, 415);
    assert_eq!(house.fake.cancelled(), [Some("a".into()), None]);

    assert!(house.get("/").await.body.contains("crayfish chat"));
    let missing = house.get("/nowhere").await;
    assert_eq!((missing.status, missing.error().as_str()), (404, "not found"));
    let wrong = house.get("/chat").await;
    assert_eq!((wrong.status, &wrong.json()["allow"]), (405, &json!("POST")));
    assert!(wrong.head.contains("allow: post"));
}

#[tokio::test]
async fn health_tells_the_truth() {
    let house = house().await;
    let healthy = house.get("/healthz").await;
    assert_eq!((healthy.status, healthy.body.as_str()), (200, "ok"));
    house.publisher.publish(Snapshot { store_ok: true, ..Snapshot::default() });
    let offline = house.get("/healthz").await;
    assert_eq!((offline.status, offline.body.as_str()), (200, "ok, inference offline"));
    let hung = snapshot::BackendState { hung: Some("It hangs.".into()), ..Default::default() };
    let hangs =
        Snapshot { online: true, store_ok: true, backends: vec![hung], ..Snapshot::default() };
    house.publisher.publish(hangs);
    let told = house.get("/healthz").await;
    assert_eq!((told.status, told.body.as_str()), (200, "ok; It hangs."));
    let notices = vec!["the disk is full".to_owned()];
    house.publisher.publish(Snapshot { online: true, notices, ..Snapshot::default() });
    let ill = house.get("/healthz").await;
    assert_eq!((ill.status, &ill.json()["reasons"][0]), (503, &json!("the disk is full")));
}

#[tokio::test]
async fn words_are_sent_as_they_come() {
    let house = house().await;
    for headers in ["", "Accept: application/x-ndjson\r\n"] {
        let (words, events) = mpsc::channel(4);
        house.fake.script(Script::Held(events));
        let body: &[u8] = if headers.is_empty() {
            br#"{"message":"count","stream":true}"#
        } else {
            br#"{"message":"count"}"#
        };
        let headers = format!("Content-Type: application/json\r\n{headers}");
        let mut stream = house.connect().await;
        stream.write_all(&post("/chat", &headers, body)).await.unwrap();
        words.send(TurnEvent::Delta("one".into())).await.unwrap();
        let head = read_until(&mut stream, "\"one\"").await;
        assert!(head.contains("application/x-ndjson"), "{head}");
        words.send(TurnEvent::Delta("two".into())).await.unwrap();
        read_until(&mut stream, "\"two\"").await;
        words.send(TurnEvent::Done(fake::answer("onetwo"))).await.unwrap();
        let end = String::from_utf8(rest(&mut stream).await).unwrap();
        assert!(end.contains("stream_end") && end.contains(r#""event":"done""#), "{end}");
    }
}

// --- Requests that are wrong -------------------------------------------------------------------

#[tokio::test]
async fn bad_bodies_are_refused_and_never_reach_the_agent() {
    let house = house().await;
    let table: [(&[u8], u16, &str); 7] = [
        (br#"{"message":"\ud800"}"#, 400, "not JSON"),
        (b"{\"message\":\"\xff\"}", 400, "not UTF-8 at byte 12"),
        (br#"{"message":"x","emergency":"false"}"#, 400, r#""emergency" must be true or false"#),
        (br#"{"message":12}"#, 400, r#""message" must be a string"#),
        (br#"{"message":"x","sesion":"a"}"#, 400, r#"no field "sesion""#),
        (b"[1]", 400, "JSON object"),
        (b"", 400, "not JSON"),
    ];
    for (body, status, words) in table {
        let answer = house.chat(body).await;
        assert_eq!(answer.status, status);
        assert!(answer.error().contains(words), "{words} in {}", answer.error());
    }
    for kind in ["", "Content-Type: text/plain\r\n"] {
        let answer = house.raw(&post("/chat", kind, br#"{"message":"x"}"#)).await;
        assert_eq!(answer.status, 415);
    }
    assert!(house.fake.heard().is_empty());
}

#[tokio::test]
async fn strangers_are_refused_on_every_route() {
    let house = house_with(Some("s3cret")).await;
    let token = "X-OCF-Token: s3cret\r\n";
    for target in ["/", "/state", "/history", "/healthz", "/nowhere"] {
        let from = |host: &str, headers: &str| {
            format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n")
        };
        let foreign = house.raw(from("evil.example", token).as_bytes()).await;
        assert_eq!((foreign.status, foreign.error().as_str()), (403, "host not allowed"));
        let origin = format!("{token}Origin: http://evil.example\r\n");
        let foreign = house.raw(from("localhost", &origin).as_bytes()).await;
        assert_eq!((foreign.status, foreign.error().as_str()), (403, "origin not allowed"));
        let open = house.raw(from("localhost", "").as_bytes()).await;
        assert_eq!(open.status, if target == "/healthz" { 200 } else { 401 }, "{target}");
    }
    let mut bytes =
        b"GET /state HTTP/1.1\r\nHost: localhost\r\nX-OCF-Token: s3cr\xe9t\r\n".to_vec();
    bytes.extend_from_slice(b"Connection: close\r\n\r\n");
    let odd = house.raw(&bytes).await;
    assert_eq!((odd.status, odd.error().as_str()), (401, "unauthorised"));
    let headers = "Content-Type: text/plain\r\nOrigin: http://evil.example\r\n";
    assert_eq!(house.raw(&post("/chat", headers, br#"{"message":"x"}"#)).await.status, 403);
    assert_eq!(house.raw(b"GET / HTTP/1.0\r\n\r\n").await.status, 400);
    assert!(house.fake.heard().is_empty());
}

#[tokio::test]
async fn a_link_on_another_site_opens_the_page_and_no_route_behind_it() {
    let house = house_with(Some("s3cret")).await;
    let followed = "Accept: text/html,*/*;q=0.8\r\nSec-Fetch-Site: cross-site\r\n\
        Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\nX-OCF-Token: s3cret\r\n";
    let ask = async |method: &str, target: &str, more: &str| {
        let bytes = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{followed}{more}\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
        house.raw(bytes.as_bytes()).await.status
    };
    assert_eq!(ask("GET", "/", "").await, 200);
    for target in ["/state", "/history", "/sessions", "/healthz", "/ws", "/api/health"] {
        assert_eq!(ask("GET", target, "").await, 403, "{target}");
    }
    assert_eq!(ask("HEAD", "/", "").await, 403);
    assert_eq!(ask("POST", "/chat", "Content-Type: application/json\r\n").await, 403);
    assert_eq!(ask("DELETE", "/sessions/main", "").await, 403);
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    assert_eq!(ask("GET", "/", upgrade).await, 403);
    assert!(house.fake.heard().is_empty());
}

#[tokio::test]
async fn a_huge_head_and_a_huge_body_get_an_answer() {
    let house = house().await;
    let pad = "x".repeat(limits::HTTP_HEAD_BYTES_MAX);
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Pad: {pad}\r\n\r\n");
    let mut stream = house.connect().await;
    // The server may close before all of it was sent.
    let _ = stream.write_all(head.as_bytes()).await;
    assert!(read_until(&mut stream, "\r\n").await.starts_with("HTTP/1.1 431"));
    assert_eq!(house.raw(b"this is not HTTP\r\n\r\n").await.status, 400);

    let mut body = br#"{"message":""#.to_vec();
    body.resize(10 * 1024 * 1024, b'x');
    body.extend_from_slice(br#""}"#);
    let answer = house.chat(&body).await;
    assert_eq!(answer.status, 413);
    assert!(answer.error().contains("more than"), "{}", answer.error());
    // A client that asks first is told before it sends.
    let asking = "POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                  Expect: 100-continue\r\nContent-Length: 10485760\r\n\r\n";
    assert_eq!(house.raw(asking.as_bytes()).await.status, 413);
    assert!(house.fake.heard().is_empty());
}

#[tokio::test]
async fn the_longest_message_fits_even_when_every_byte_is_escaped() {
    let house = house().await;
    let mut body = String::from(r#"{"message":""#);
    for _ in 0..limits::MESSAGE_BYTES_MAX {
        body.push_str("\\u0001");
    }
    body.push_str("\"}");
    assert_eq!(house.chat(body.as_bytes()).await.status, 200);
    assert_eq!(house.fake.heard()[0].text.len(), limits::MESSAGE_BYTES_MAX);
}

#[tokio::test]
async fn requests_one_behind_the_other_and_head_requests_are_answered_in_order() {
    let house = house().await;
    let mut stream = house.connect().await;
    let host = "Host: localhost\r\n";
    let requests = format!(
        "HEAD /state HTTP/1.1\r\n{host}\r\nGET /nowhere HTTP/1.1\r\n{host}\r\n\
         GET /healthz HTTP/1.1\r\n{host}Connection: close\r\n\r\n"
    );
    stream.write_all(requests.as_bytes()).await.unwrap();
    let all = String::from_utf8(rest(&mut stream).await).unwrap();
    let statuses: Vec<_> =
        all.match_indices("HTTP/1.1 ").map(|(at, _)| &all[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "404", "200"]);
    let head = all.split("HTTP/1.1 404").next().unwrap();
    assert!(head.ends_with("\r\n\r\n"), "a HEAD has no body: {head:?}");
    assert!(all.ends_with("ok"));
}

// --- Clients that are slow, many, or gone ------------------------------------------------------

/// A connection over memory, on a paused clock.
fn paused(buffer: usize) -> (tokio::io::DuplexStream, Arc<Fake>) {
    let (service, fake, _publisher) = service(None);
    let (near, far) = tokio::io::duplex(buffer);
    let (leave, stop) = (CancellationToken::new(), CancellationToken::new());
    tokio::spawn(connection(far, service, Work::new(Arc::default()), leave, stop));
    (near, fake)
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_come_ends_the_connection() {
    for start in ["", "GET /healthz HTTP/1.1\r\nHost: lo"] {
        let (mut stream, _fake) = paused(4096);
        let began = Instant::now();
        stream.write_all(start.as_bytes()).await.unwrap();
        assert!(rest(&mut stream).await.is_empty());
        assert_eq!(began.elapsed().as_secs(), limits::HTTP_HEAD_TIMEOUT.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_at_rest_is_closed() {
    let (mut stream, _fake) = paused(4096);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    read_until(&mut stream, "\r\n\r\nok").await;
    let began = Instant::now();
    assert!(rest(&mut stream).await.is_empty());
    assert_eq!(began.elapsed().as_secs(), limits::HTTP_HEAD_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_answered_in_time() {
    let (mut stream, fake) = paused(4096);
    let began = Instant::now();
    let whole = post("/chat", "Content-Type: application/json\r\n", br#"{"message":"x"}"#);
    stream.write_all(&whole[..whole.len() - 4]).await.unwrap();
    assert_eq!(Answer::of(&rest(&mut stream).await).status, 408);
    assert_eq!(began.elapsed().as_secs(), limits::HTTP_BODY_TIMEOUT.as_secs());
    assert!(fake.heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_left_and_its_turn_goes_on() {
    let (mut stream, fake) = paused(512);
    let (words, events) = mpsc::channel(4);
    fake.script(Script::Held(events));
    let body = br#"{"message":"x","stream":true}"#;
    let request = post("/chat", "Content-Type: application/json\r\n", body);
    stream.write_all(&request).await.unwrap();
    let began = Instant::now();
    words.send(TurnEvent::Delta("word ".repeat(100))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    while fake.audience().readers() > 0 {
        words.send(TurnEvent::Delta("word ".repeat(100))).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let patience = limits::DOOR_WRITE_TIMEOUT;
    assert!((patience..=patience + Duration::from_secs(2)).contains(&began.elapsed()));
    assert!(fake.cancelled().is_empty());
}

#[tokio::test]
async fn five_hundred_half_open_connections_do_not_keep_an_honest_client_out() {
    let house = house().await;
    let mut half_open = Vec::new();
    for _ in 0..500 {
        let mut stream = house.connect().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: lo").await.unwrap();
        half_open.push(stream);
    }
    // Others have sent a head and keep their body back.
    for _ in 0..100 {
        let mut stream = house.connect().await;
        let whole = post("/chat", "Content-Type: application/json\r\n", br#"{"message":"x"}"#);
        stream.write_all(&whole[..whole.len() - 4]).await.unwrap();
        half_open.push(stream);
    }
    for _ in 0..3 {
        assert_eq!(house.get("/healthz").await.status, 200);
    }
    // The oldest went, without an answer, and no more than the bound are still there.
    let is_open = |stream: TcpStream| {
        let read = std::io::Read::read(&mut stream.into_std().unwrap(), &mut [0]);
        matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let open: Vec<bool> = half_open.into_iter().map(is_open).collect();
    assert!(!open[0]);
    assert!(open.iter().filter(|open| **open).count() < limits::HTTP_CONNECTIONS_MAX);
}

#[tokio::test]
async fn when_all_places_are_at_work_a_newcomer_waits_for_one() {
    let house = house().await;
    let mut running = Vec::new();
    for _ in 0..limits::HTTP_CONNECTIONS_MAX {
        let (words, events) = mpsc::channel(4);
        house.fake.script(Script::Held(events));
        let mut stream = house.connect().await;
        // Kept alive: it makes room by being at rest, not by going.
        let body = br#"{"message":"x","stream":true}"#;
        let request = post("/chat", "Content-Type: application/json\r\n", body);
        let request = String::from_utf8(request).unwrap().replace("Connection: close\r\n", "");
        stream.write_all(request.as_bytes()).await.unwrap();
        words.send(TurnEvent::Delta("go".into())).await.unwrap();
        read_until(&mut stream, "\"go\"").await;
        running.push((stream, words));
    }
    let mut newcomer = house.connect().await;
    newcomer.write_all(get("/healthz").as_bytes()).await.unwrap();
    // All that run are still served, although one waits.
    for (stream, words) in &mut running {
        words.send(TurnEvent::Delta("on".into())).await.unwrap();
        read_until(stream, "\"on\"").await;
    }
    let early = newcomer.try_read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(early, Err(std::io::ErrorKind::WouldBlock), "one more than the bound was served");
    let (stream, words) = &mut running[0];
    words.send(TurnEvent::Cancelled).await.unwrap();
    read_until(stream, "cancelled").await;
    assert_eq!(Answer::of(&rest(&mut newcomer).await).body, "ok");
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_its_turn() {
    let house = house().await;
    for stream_it in [true, false] {
        let (words, events) = mpsc::channel(4);
        house.fake.script(Script::Held(events));
        let mut stream = house.connect().await;
        let body = format!(r#"{{"message":"x","stream":{stream_it}}}"#);
        let request = post("/chat", "Content-Type: application/json\r\n", body.as_bytes());
        stream.write_all(&request).await.unwrap();
        words.send(TurnEvent::Delta("a".into())).await.unwrap();
        let came = async {
            while house.fake.audience().readers() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(DEADLINE, came).await.expect("taken on in time");
        drop(stream);
        // The door lets go of the turn, which the agent takes for no stop.
        let gone = async {
            while house.fake.audience().readers() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(DEADLINE, gone).await.expect("let go in time");
    }
    assert!(house.fake.cancelled().is_empty());
}

#[tokio::test]
async fn at_the_stop_running_answers_are_told_and_the_rest_is_closed() {
    let house = house().await;
    let (words, events) = mpsc::channel(4);
    house.fake.script(Script::Held(events));
    let mut running = house.connect().await;
    let request = post("/chat", "Content-Type: application/json\r\n", br#"{"message":"x"}"#);
    running.write_all(&request).await.unwrap();
    words.send(TurnEvent::Delta("a".into())).await.unwrap();
    let mut half_open = house.connect().await;
    half_open.write_all(b"GET /").await.unwrap();
    let mut resting = house.connect().await;
    resting.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    read_until(&mut resting, "\r\n\r\nok").await;

    house.stop.cancel();
    assert!(rest(&mut resting).await.is_empty());
    assert!(rest(&mut half_open).await.is_empty());
    assert!(TcpStream::connect(house.at).await.is_err(), "nobody new comes in");
    words.send(TurnEvent::Done(fake::answer("a"))).await.unwrap();
    let answer = Answer::of(&rest(&mut running).await);
    assert_eq!((answer.status, &answer.json()["reply"]), (200, &json!("a")));
    tokio::time::timeout(DEADLINE, house.served).await.unwrap().unwrap();
}

// --- Conversations -------------------------------------------------------------------------------

fn request(method: &str, target: &str, body: &str) -> Vec<u8> {
    let post =
        String::from_utf8(post(target, "Content-Type: application/json\r\n", body.as_bytes()));
    post.unwrap().replacen("POST", method, 1).into_bytes()
}

#[tokio::test]
async fn conversations_are_listed_read_renamed_and_taken_away_under_both_prefixes() {
    for prefix in ["", "/api"] {
        let house = house().await;
        let info = |name: &str| SessionInfo {
            chat_id: name.into(),
            title: "The fence".into(),
            updated_at: "2026-11-30T14:05:00Z".into(),
        };
        house.fake.list(vec![info("a"), info("b")]);
        let listed = house.get(&format!("{prefix}/sessions")).await.json();
        assert_eq!(
            listed["sessions"][1],
            json!({"id": "b", "chat_id": "b", "title": "The fence",
                "updated_at": "2026-11-30T14:05:00Z"})
        );
        let of = |rest: &str| format!("{prefix}/sessions/{rest}");
        assert_eq!(house.get(&of("a/messages")).await.status, 404, "nothing was said");
        let line = |from_person, text: &str, outcome| Line {
            turn: 1,
            from_person,
            text: text.into(),
            at_ms: 0,
            outcome,
            id: None,
            about: About::default(),
        };
        house.fake.lines(vec![line(true, "hi", None), line(false, "Hello", Some("done"))]);
        let said = house.get(&of("a/messages")).await.json();
        assert_eq!(said["chat_id"], "a");
        assert_eq!(said["messages"][0]["role"], "user");
        assert_eq!(said["messages"][1]["role"], "assistant");
        assert_eq!(said["messages"][1]["outcome"], "done");
        let last = house.get(&of("a/messages?limit=1")).await.json();
        assert_eq!(last["messages"].as_array().unwrap().len(), 1);
        assert_eq!(house.get(&of("a/messages?from=1")).await.status, 400);

        let patch = |id: &str, body: &str| request("PATCH", &of(id), body);
        let renamed = house.raw(&patch("a", r#"{"title":"The gate"}"#)).await;
        assert_eq!((renamed.status, &renamed.json()["title"]), (200, &json!("The gate")));
        for (id, body, status) in [
            ("nobody", r#"{"title":"x"}"#, 404),
            ("a", r#"{"title":1}"#, 400),
            ("a", "{}", 400),
            ("a", r#"{"name":"x"}"#, 400),
        ] {
            let answer = house.raw(&patch(id, body)).await;
            assert_eq!(answer.status, status, "{id} {body}");
        }
        let gone = house.raw(&request("DELETE", &of("a"), "")).await;
        assert_eq!((gone.status, gone.body.as_str()), (204, ""));
        let again = house.raw(&request("DELETE", &of("a"), "")).await;
        assert_eq!(
            (again.status, &again.json()["detail"]),
            (404, &json!("there is no such session"))
        );
        for id in ["%2e%2e", "..", ".", "a%0a", "%61"] {
            assert_eq!(house.raw(&request("DELETE", &of(id), "")).await.status, 404, "{id}");
        }
    }
    let alive = house().await.get("/api/health").await.json();
    assert_eq!(alive, json!({"status": "ok", "service": "crayfish"}));
}

#[tokio::test]
async fn a_page_elsewhere_cannot_take_a_conversation_away() {
    let house = house().await;
    let delete = "DELETE /sessions/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    for header in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
        assert_eq!(house.raw(format!("{delete}{header}\r\n\r\n").as_bytes()).await.status, 403);
    }
    let house = house_with(Some("token")).await;
    assert_eq!(house.raw(format!("{delete}\r\n").as_bytes()).await.status, 401);
}

#[tokio::test]
async fn where_only_sockets_live_a_plain_request_is_told_so() {
    let house = house().await;
    let answer = house.get("/ws").await;
    assert_eq!(answer.status, 426);
    assert!(answer.head.contains("sec-websocket-version: 13"), "{}", answer.head);
    let half = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n";
    assert_eq!(house.raw(half.as_bytes()).await.status, 400);
}
