//! A client that sees every byte: heads, chunks, and how a connection ended.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use hailo::sim::{
    clock::Pace,
    log::{End, Entry, Event},
    ollama::{self, Options, Running},
    scenario::{At, Fault, Kind, Phase, Reply, Scenario},
};
use serde_json::{Value, json};

/// Longest wait for anything; a healthy machine needs a hundredth of it.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The model that most tests use.
pub(crate) const QWEN: &str = "qwen2.5:1.5b";

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With its length or its last chunk.
    Whole,
    /// The connection closed before.
    Closed,
    /// The connection was reset.
    Reset,
}

/// A connection to the simulator.
pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer's head.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn request(host: &str, method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { stream, unread: Vec::new() }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends to a server that may be dying; answers whether it went out.
    pub(crate) fn try_send(&mut self, path: &str, body: &str) -> bool {
        let request = request("127.0.0.1:11434", "POST", path, body);
        self.stream.write_all(request.as_bytes()).is_ok()
    }

    pub(crate) fn send_to_host(&mut self, host: &str, method: &str, path: &str, body: &str) {
        let request = request(host, method, path, body);
        self.raw(request.as_bytes());
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) {
        self.send_to_host("127.0.0.1:11434", method, path, body);
    }

    pub(crate) fn leave(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }

    /// Whether no byte has come so far.
    pub(crate) fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
            && self.unread.is_empty()
    }

    fn fill(&mut self) -> Result<(), Ended> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(Ended::Closed),
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Ended::Reset),
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    fn until(&mut self, mark: &[u8]) -> Result<Vec<u8>, Ended> {
        loop {
            if let Some(at) = self.unread.windows(mark.len()).position(|found| found == mark) {
                let mut taken: Vec<u8> = self.unread.drain(..at + mark.len()).collect();
                taken.truncate(at);
                return Ok(taken);
            }
            self.fill()?;
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, Ended> {
        while self.unread.len() < count {
            self.fill()?;
        }
        Ok(self.unread.drain(..count).collect())
    }

    pub(crate) fn head(&mut self) -> Result<Head, Ended> {
        let text = String::from_utf8(self.until(b"\r\n\r\n")?).unwrap();
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap();
        assert!(first.starts_with("HTTP/1.1 "), "{first}");
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Ok(Head { status, headers })
    }

    /// The next chunk's bytes; none is the last chunk.
    pub(crate) fn chunk(&mut self) -> Result<Option<Vec<u8>>, Ended> {
        let size = String::from_utf8(self.until(b"\r\n")?).unwrap();
        let size = usize::from_str_radix(&size, 16).unwrap();
        let bytes = self.take(size)?;
        assert_eq!(self.take(2)?, b"\r\n");
        Ok((size > 0).then_some(bytes))
    }

    /// The next line of a stream as JSON.
    pub(crate) fn line(&mut self) -> Value {
        let bytes = self.chunk().unwrap().expect("a line");
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Everything up to the end of a stream.
    pub(crate) fn rest(&mut self) -> (Vec<Vec<u8>>, Ended) {
        let mut chunks = Vec::new();
        loop {
            match self.chunk() {
                Ok(Some(chunk)) => chunks.push(chunk),
                Ok(None) => return (chunks, Ended::Whole),
                Err(ended) => return (chunks, ended),
            }
        }
    }

    /// A whole answer: status and the body's JSON (null where it is none).
    pub(crate) fn answer(&mut self) -> (u16, Value) {
        let head = self.head().unwrap();
        let length = head.header("content-length").unwrap().parse().unwrap();
        let body = self.take(length).unwrap();
        (head.status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

/// A streamed answer, gathered.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) thinking: String,
    pub(crate) lines: Vec<Value>,
    pub(crate) ended: Ended,
}

impl Gathered {
    /// The last line.
    pub(crate) fn done(&self) -> &Value {
        let last = self.lines.last().expect("a line");
        assert_eq!(last["done"], true, "{last}");
        last
    }
}

/// Sends a body to `/api/chat` on a connection of its own and reads the stream.
pub(crate) fn chat(running: &Running, body: &Value) -> Gathered {
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &body.to_string());
    read_stream(&mut client)
}

pub(crate) fn read_stream(client: &mut Client) -> Gathered {
    let head = match client.head() {
        Ok(head) => head,
        Err(ended) => {
            let (text, thinking) = Default::default();
            return Gathered { status: 0, text, thinking, lines: Vec::new(), ended };
        }
    };
    assert_eq!(head.header("transfer-encoding"), Some("chunked"), "{head:?}");
    let (chunks, ended) = client.rest();
    let lines: Vec<Value> =
        chunks.iter().filter_map(|chunk| serde_json::from_slice(chunk).ok()).collect();
    let join = |key: &str| {
        lines.iter().filter_map(|line| line["message"][key].as_str()).collect::<String>()
    };
    Gathered {
        status: head.status,
        text: join("content"),
        thinking: join("thinking"),
        lines,
        ended,
    }
}

/// One call that is answered with a JSON object.
pub(crate) fn call(running: &Running, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut client = Client::connect(running.addr());
    client.send(method, path, &body.to_string());
    client.answer()
}

/// A request as this project's client sends it.
pub(crate) fn ask(messages: &[(&str, &str)]) -> Value {
    let messages: Vec<Value> =
        messages.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    json!({"model": QWEN, "messages": messages, "stream": true, "think": false,
        "truncate": false, "shift": false, "keep_alive": -1,
        "options": {"num_predict": 200, "num_ctx": 4096}})
}

/// The shortest such request.
pub(crate) fn hello() -> Value {
    ask(&[("system", "Be brief."), ("user", "Hello.")])
}

/// Text of so many words.
pub(crate) fn words(count: usize) -> String {
    (0..count).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ")
}

/// Options under which nothing takes time.
pub(crate) fn instant() -> Options {
    Options { pace: Pace::Instant, seed: Some(7), ..Options::default() }
}

/// Options in real time, quick enough for a test; a stall or a slow load really takes its time.
pub(crate) fn quick() -> Options {
    Options {
        pace: Pace::Published,
        seed: Some(7),
        sd_mb_per_s: 1e6,
        cached_load: Duration::from_millis(1),
        prefill_tps: 1e5,
        decode_tps: 500.0,
        ..Options::default()
    }
}

/// Starts with replies.
pub(crate) fn saying(options: Options, replies: Vec<Reply>) -> Running {
    let scenario = Scenario { replies, ..Scenario::default() };
    ollama::start(Options { scenario, ..options }).unwrap()
}

pub(crate) fn start(options: Options) -> Running {
    ollama::start(options).unwrap()
}

/// Plans a fault for the next generation.
pub(crate) fn plan(running: &Running, phase: Phase, kind: Kind) {
    running.fault(Fault { at: At::Next, phase, kind });
}

/// Holds the next generation after so many tokens until its client leaves.
pub(crate) fn hold(running: &Running, tokens: u32) {
    plan(running, Phase::Token(tokens), Kind::Stall(3_600_000));
}

/// Waits until something is true.
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until so many requests have ended, and answers how, in order.
pub(crate) fn ends(running: &Running, count: usize) -> Vec<(End, u32)> {
    let all = |entries: &[Entry]| -> Vec<(End, u32)> {
        entries
            .iter()
            .filter_map(|entry| match &entry.event {
                Event::Ended { end, sent } => Some((*end, *sent)),
                _ => None,
            })
            .collect()
    };
    assert!(
        running.events().wait(LIMIT, |entries| all(entries).len() >= count),
        "{:?}",
        running.log()
    );
    all(&running.log())
}

/// Planned prefills so far: tokens computed, tokens cached, ms.
pub(crate) fn prefills(running: &Running) -> Vec<(u32, u32, u64)> {
    let entries = running.log();
    let prefill = entries.iter().filter_map(|entry| match entry.event {
        Event::Prefill { tokens, cached, prefill_ms, .. } => Some((tokens, cached, prefill_ms)),
        _ => None,
    });
    prefill.collect()
}
