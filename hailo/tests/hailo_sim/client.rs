//! A client that sees every byte, and short words for the tests.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use hailo::{
    model::Release,
    sim::{
        clock::Pace,
        hailo::{Options, Running, start},
        log::{Entry, Event},
        scenario::{Fault, Kind, Phase, Reply, Scenario},
    },
};
use serde_json::{Value, json};

/// No wait in a test is meant to be longer; a machine under load may need a part of it.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// `Content-Length` was reached, or the last chunk came.
    Complete,
    /// FIN before that.
    Eof,
    /// RST before that.
    Reset,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Head as sent.
    pub(crate) head: String,
    /// Chunks as sent, or the one body.
    pub(crate) chunks: Vec<String>,
    pub(crate) ending: Ending,
}

impl Answer {
    pub(crate) fn body(&self) -> String {
        self.chunks.concat()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body()).unwrap_or_else(|e| panic!("{e}: {}", self.body()))
    }

    /// The lines of a stream.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.body().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The text of a stream.
    pub(crate) fn text(&self) -> String {
        let content = |line: &Value| line["message"]["content"].as_str().map(str::to_owned);
        self.lines().iter().filter_map(content).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(&prefix))
    }
}

/// A connection on which a request was sent.
pub(crate) struct Call {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Call {
    pub(crate) fn raw(addr: SocketAddr, bytes: &[u8]) -> Self {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(bytes).unwrap();
        Self { stream, unread: Vec::new() }
    }

    pub(crate) fn send(addr: SocketAddr, method: &str, path: &str, body: &str) -> Self {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        Self::raw(addr, format!("{head}{body}").as_bytes())
    }

    /// Whether not one byte has come.
    pub(crate) fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0; 1]);
        self.stream.set_nonblocking(false).unwrap();
        self.unread.is_empty() && peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn until(&mut self, mark: &[u8]) -> Result<String, Ending> {
        loop {
            if let Some(at) = self.unread.windows(mark.len()).position(|window| window == mark) {
                let bytes: Vec<u8> = self.unread.drain(..at + mark.len()).collect();
                return Ok(String::from_utf8(bytes).unwrap());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), Ending> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(Ending::Eof),
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Ending::Reset),
            Err(error) => panic!("{error}"),
        }
    }

    fn exactly(&mut self, count: usize) -> Result<String, Ending> {
        while self.unread.len() < count {
            self.fill()?;
        }
        Ok(String::from_utf8(self.unread.drain(..count).collect()).unwrap())
    }

    pub(crate) fn head(&mut self) -> Result<String, Ending> {
        self.until(b"\r\n\r\n")
    }

    /// The next chunk; `None` is the last.
    pub(crate) fn chunk(&mut self) -> Result<Option<String>, Ending> {
        let size = self.until(b"\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let chunk = self.exactly(size)?;
        assert_eq!(self.exactly(2)?, "\r\n");
        Ok((size > 0).then_some(chunk))
    }

    /// Reads to the end.
    pub(crate) fn answer(mut self) -> Result<Answer, Ending> {
        let head = self.head()?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, chunks: Vec::new(), ending: Ending::Complete };
        if answer.header("Transfer-Encoding") == Some("chunked") {
            loop {
                match self.chunk() {
                    Ok(Some(chunk)) => answer.chunks.push(chunk),
                    Ok(None) => break,
                    Err(ending) => {
                        answer.ending = ending;
                        break;
                    }
                }
            }
        } else {
            let length = answer.header("Content-Length").unwrap().parse().unwrap();
            answer.chunks.push(self.exactly(length)?);
        }
        Ok(answer)
    }
}

/// A simulator 200 times faster than the hardware, with these replies.
pub(crate) fn sim(release: Release, replies: Vec<Reply>) -> Running {
    with(release, |options| options.scenario.replies = replies)
}

pub(crate) fn with(release: Release, change: impl FnOnce(&mut Options)) -> Running {
    let mut options = Options {
        release,
        pace: Pace::Factor(200.0),
        scenario: Scenario::default(),
        ..Options::default()
    };
    change(&mut options);
    start(options).unwrap()
}

pub(crate) fn qwen(release: Release) -> &'static str {
    if release == Release::V5_1_1 { "qwen2.5-instruct:1.5b" } else { "qwen2.5:1.5b" }
}

/// A request our client would send: a system message, a limit, kept for ever.
pub(crate) fn body(model: &str, messages: &[(&str, &str)]) -> Value {
    let messages: Vec<Value> =
        messages.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    json!({
        "model": model, "messages": messages, "stream": true, "keep_alive": -1,
        "options": {"num_predict": 1000},
    })
}

pub(crate) fn hello(release: Release) -> Value {
    body(qwen(release), &[("system", "Be brief."), ("user", "Hello there.")])
}

pub(crate) fn chat(running: &Running, body: &Value) -> Call {
    Call::send(running.addr(), "POST", "/api/chat", &body.to_string())
}

pub(crate) fn ask(running: &Running, body: &Value) -> Answer {
    chat(running, body).answer().unwrap()
}

pub(crate) fn post(running: &Running, path: &str, body: &Value) -> Answer {
    Call::send(running.addr(), "POST", path, &body.to_string()).answer().unwrap()
}

pub(crate) fn get(running: &Running, path: &str) -> Answer {
    Call::send(running.addr(), "GET", path, "").answer().unwrap()
}

pub(crate) fn fault(phase: Phase, kind: Kind) -> Fault {
    Fault::next(phase, kind)
}

/// Waits for an event and returns its entry.
pub(crate) fn wait_for(running: &Running, what: impl Fn(&Entry) -> bool) -> Entry {
    let mut found = None;
    let seen = running.events().wait(LIMIT, |entries| {
        found = entries.iter().find(|entry| what(entry)).cloned();
        found.is_some()
    });
    assert!(seen, "never came; the log: {:#?}", running.log());
    found.unwrap()
}

/// Waits for an event of one request.
pub(crate) fn wait_of(running: &Running, request: u64, what: impl Fn(&Event) -> bool) -> Entry {
    wait_for(running, |entry| entry.request == request && what(&entry.event))
}

/// Waits until something is true.
pub(crate) fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !what() {
        assert!(Instant::now() < deadline, "waited in vain");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Tokens, cache and time of the prefill of each generation, in order.
pub(crate) fn prefills(running: &Running) -> Vec<(bool, u32, u32, u64)> {
    let prefill = |entry: Entry| match entry.event {
        Event::Prefill { continuation, tokens, cached, prefill_ms } => {
            Some((continuation, tokens, cached, prefill_ms))
        }
        _ => None,
    };
    running.log().into_iter().filter_map(prefill).collect()
}

/// Planned times of the loads, in order.
pub(crate) fn loads(running: &Running) -> Vec<u64> {
    let load = |entry: Entry| match entry.event {
        Event::Loaded { load_ms, .. } => Some(load_ms),
        _ => None,
    };
    running.log().into_iter().filter_map(load).collect()
}

/// `count` words.
pub(crate) fn words(count: usize) -> String {
    vec!["word"; count].join(" ")
}
