//! A bare HTTP client, and a tee between a client and a server that keeps what the client sent.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any answer that is worth a figure.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A GET.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// A POST of JSON.
pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A client that keeps its connection as long as the server does.
pub(crate) struct Wire {
    server: SocketAddr,
    stream: Option<TcpStream>,
    /// Of the running exchange, as far as it was read.
    answer: Vec<u8>,
}

impl Wire {
    /// Connects at the first exchange.
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self { server, stream: None, answer: Vec::new() }
    }

    /// Sends a request and reads its whole answer, head included.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> String {
        self.send(request);
        let closed = self.read(is_whole);
        let answer = std::mem::take(&mut self.answer);
        let head_end = head_end(&answer).unwrap_or(answer.len());
        if closed || header(&answer[..head_end], "connection").is_some_and(|v| v == "close") {
            self.stream = None;
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &[u8]) {
        let stream = self.stream.get_or_insert_with(|| {
            let stream = TcpStream::connect(self.server).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
            stream
        });
        stream.write_all(request).unwrap();
    }

    /// Reads on until the answer so far contains these bytes.
    pub(crate) fn read_until(&mut self, wanted: &[u8]) {
        let there = |answer: &[u8]| answer.windows(wanted.len()).any(|part| part == wanted);
        let closed = self.read(there);
        assert!(!closed, "the answer ended: {}", String::from_utf8_lossy(&self.answer));
    }

    /// Reads until it is enough; true if the connection ended before.
    fn read(&mut self, is_enough: impl Fn(&[u8]) -> bool) -> bool {
        let Some(stream) = &mut self.stream else { return true };
        let mut chunk = [0; 16 * 1024];
        while !is_enough(&self.answer) {
            match stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(length) => self.answer.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
                Err(error) => panic!("{} bytes, then {error}", self.answer.len()),
            }
        }
        false
    }
}

/// Whether a message is complete by its own account; one without length ends with the connection.
fn is_whole(message: &[u8]) -> bool {
    let Some(end) = head_end(message) else { return false };
    let (head, body) = message.split_at(end);
    if let Some(length) = header(head, "content-length") {
        return length.parse() == Ok(body.len());
    }
    header(head, "transfer-encoding").is_some() && body.ends_with(b"0\r\n\r\n")
}

fn head_end(message: &[u8]) -> Option<usize> {
    message.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

fn header(head: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim().to_owned())
}

/// Passes bytes on in both directions. Keeps those of the clients, one heap a connection, and those
/// of the server with the moment in which they came.
pub(crate) struct Tee {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    heard: Heard,
    said: Said,
}

type Heard = Arc<Mutex<Vec<Vec<u8>>>>;
type Said = Arc<Mutex<Vec<(Instant, Vec<u8>)>>>;

impl Tee {
    /// Listens for clients of `server`, until the process ends.
    pub(crate) fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Heard::default();
        let kept = Arc::clone(&heard);
        let said = Said::default();
        let told = Arc::clone(&said);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                client.set_nodelay(true).unwrap();
                upstream.set_nodelay(true).unwrap();
                let (from, to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                let mut heaps = kept.lock().unwrap();
                heaps.push(Vec::new());
                let (heap, at) = (Arc::clone(&kept), heaps.len() - 1);
                drop(heaps);
                let hear = move |bytes: &[u8]| heap.lock().unwrap()[at].extend_from_slice(bytes);
                std::thread::spawn(move || pass(from, to, hear));
                let told = Arc::clone(&told);
                let tell = move |bytes: &[u8]| {
                    told.lock().unwrap().push((Instant::now(), bytes.to_vec()));
                };
                std::thread::spawn(move || pass(upstream, client, tell));
            }
        });
        Self { address, heard, said }
    }

    /// When the server last said this.
    pub(crate) fn said_at(&self, text: &str) -> Option<Instant> {
        let said = self.said.lock().unwrap();
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        said.iter().rev().find(|(_, bytes)| has(bytes)).map(|(at, _)| *at)
    }

    /// The newest request that contains this text.
    pub(crate) fn last_request(&self, text: &str) -> Option<Vec<u8>> {
        let heaps = self.heard.lock().unwrap();
        let mut newest_first = heaps.iter().rev().flat_map(|heap| split(heap).into_iter().rev());
        newest_first
            .find(|request| request.windows(text.len()).any(|window| window == text.as_bytes()))
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut chunk = [0; 16 * 1024];
    loop {
        let length = match from.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(length) => length,
        };
        keep(&chunk[..length]);
        if to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// Takes the bytes of a connection apart into requests; every one says its length.
fn split(mut heap: &[u8]) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    while let Some(end) = head_end(heap) {
        let length = header(&heap[..end], "content-length");
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let whole = (end + length).min(heap.len());
        requests.push(heap[..whole].to_vec());
        heap = &heap[whole..];
    }
    requests
}
