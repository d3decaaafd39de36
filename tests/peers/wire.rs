//! Blocking clients of the doors: whole answers, and frames as they come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::rig::PATIENCE;

/// `GET`, and its answer as JSON.
pub(crate) fn get(server: SocketAddr, path: &str) -> (u16, Value) {
    whole(open(server, "GET", path, ""))
}

/// `POST` of JSON, and its answer as JSON.
pub(crate) fn post(server: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    whole(open(server, "POST", path, &body.to_string()))
}

/// Sends a request on a connection of its own.
fn open(server: SocketAddr, method: &str, path: &str, body: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Status and length, if one is told, of an answer's head.
fn head(reader: &mut impl BufRead) -> (u16, Option<usize>) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
    (status, length)
}

fn whole(mut reader: BufReader<TcpStream>) -> (u16, Value) {
    let (status, length) = head(&mut reader);
    let mut body = Vec::new();
    match length {
        Some(length) => {
            body.resize(length, 0);
            reader.read_exact(&mut body).unwrap();
        }
        None => {
            let mut chunks = Chunks { reader, left: 0 };
            chunks.read_to_end(&mut body).unwrap();
        }
    }
    let value = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Value::String(String::from_utf8(body).unwrap()));
    (status, value)
}

/// The body of a chunked answer.
struct Chunks<R> {
    reader: R,
    /// Of the chunk that is being read.
    left: usize,
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            // Between two chunks there is a line end.
            if line.trim().is_empty() {
                line.clear();
                self.reader.read_line(&mut line)?;
            }
            self.left = usize::from_str_radix(line.trim(), 16).unwrap();
            if self.left == 0 {
                return Ok(0);
            }
        }
        let wanted = buffer.len().min(self.left);
        let length = self.reader.read(&mut buffer[..wanted])?;
        self.left -= length;
        Ok(length)
    }
}

/// The frames of one turn, as they come.
pub(crate) struct Frames {
    lines: Box<dyn BufRead>,
    /// The answer's text so far.
    pub(crate) text: String,
    /// In how many pieces it came.
    pub(crate) pieces: usize,
    _socket: Option<UnixStream>,
}

impl Frames {
    /// `POST /chat` with `stream`.
    pub(crate) fn over_http(http: SocketAddr, session: &str, message: &str) -> Self {
        let body = json!({ "message": message, "session": session, "stream": true });
        let mut reader = open(http, "POST", "/chat", &body.to_string());
        let (status, _) = head(&mut reader);
        assert_eq!(status, 200);
        Self::of(Box::new(BufReader::new(Chunks { reader, left: 0 })), None)
    }

    /// A message over the terminal's socket.
    pub(crate) fn over_socket(socket: &Path, session: &str, message: &str) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let frame = json!({ "type": "message", "chat_id": session, "content": message });
        stream.write_all(format!("{frame}\n").as_bytes()).unwrap();
        let mut frames =
            Self::of(Box::new(BufReader::new(stream.try_clone().unwrap())), Some(stream));
        assert_eq!(frames.next()["event"], "ready");
        frames
    }

    fn of(lines: Box<dyn BufRead>, socket: Option<UnixStream>) -> Self {
        Self { lines, text: String::new(), pieces: 0, _socket: socket }
    }

    /// The next frame; its words are added to the text.
    #[track_caller]
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let frame: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error} in {line:?} after {:?}", self.text));
        if frame["event"] == "delta" {
            self.pieces += 1;
            self.text.push_str(frame["text"].as_str().unwrap());
        }
        frame
    }

    /// Reads on until the text came in at least so many pieces.
    #[track_caller]
    pub(crate) fn read_pieces(&mut self, pieces: usize) {
        while self.pieces < pieces {
            let frame = self.next();
            assert!(!is_end(&frame), "ended after {} pieces: {frame}", self.pieces);
        }
    }

    /// Reads on until the end, and gives its frame.
    #[track_caller]
    pub(crate) fn end(&mut self) -> Value {
        loop {
            let frame = self.next();
            if is_end(&frame) {
                return frame;
            }
        }
    }
}

fn is_end(frame: &Value) -> bool {
    ["done", "cancelled", "error"].iter().any(|end| frame["event"] == *end)
}
