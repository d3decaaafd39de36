//! A client of the HTTP door that hides nothing: blocking, on a socket of its own, and able to send
//! what no proper client would.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use serde_json::{Value, json};

use crate::daemon::PATIENCE;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A field that must be a text.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> String {
        let value = self.json();
        value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}")).to_owned()
    }
}

/// A connection with the tests' patience.
pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

const JSON: &str = "Content-Type: application/json\r\n";

/// Sends bytes and reads the answer to its end.
pub(crate) fn send(port: u16, bytes: &[u8]) -> io::Result<Reply> {
    let mut stream = connect(port)?;
    stream.write_all(bytes)?;
    read_reply(stream)
}

/// Reads one answer from a connection that the server closes after it.
pub(crate) fn read_reply(stream: TcpStream) -> io::Result<Reply> {
    let mut reader = BufReader::new(stream);
    let (status, head) = read_head(&mut reader)?;
    let mut body = Vec::new();
    if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        while let Some(chunk) = read_chunk(&mut reader)? {
            body.extend(chunk);
        }
    } else {
        reader.read_to_end(&mut body)?;
    }
    Ok(Reply { status, head, body })
}

fn read_head(reader: &mut impl BufRead) -> io::Result<(u16, String)> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if head[before..].trim_end().is_empty() {
            break;
        }
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, head))
}

/// The next chunk; `None` is the proper end of the body.
fn read_chunk(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let length = usize::from_str_radix(line.trim_end(), 16)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut chunk = vec![0; length + 2];
    reader.read_exact(&mut chunk)?;
    chunk.truncate(length);
    Ok((length > 0).then_some(chunk))
}

pub(crate) fn get(port: u16, path: &str) -> Reply {
    send(port, &request("GET", path, "", b"")).unwrap()
}

pub(crate) fn post(port: u16, body: &[u8]) -> Reply {
    send(port, &request("POST", "/chat", JSON, body)).unwrap()
}

/// Says something in a conversation and waits for the whole answer.
pub(crate) fn say(port: u16, session: &str, message: &str) -> Reply {
    post(port, json!({ "session": session, "message": message }).to_string().as_bytes())
}

/// The lines of a conversation.
pub(crate) fn history(port: u16, session: &str) -> Vec<Value> {
    let reply = get(port, &format!("/history?limit=200&session={session}"));
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["turns"].as_array().unwrap().clone()
}

/// An answer that is read as it comes.
pub(crate) struct Streamed {
    reader: BufReader<TcpStream>,
    bytes: Vec<u8>,
}

impl Streamed {
    /// Asks, and waits for the head of the answer.
    pub(crate) fn ask(port: u16, session: &str, message: &str) -> io::Result<Self> {
        let body = json!({ "session": session, "message": message, "stream": true }).to_string();
        let mut stream = connect(port)?;
        stream.write_all(&request("POST", "/chat", JSON, body.as_bytes()))?;
        let mut reader = BufReader::new(stream);
        let (status, head) = read_head(&mut reader)?;
        if status != 200 {
            return Err(io::Error::other(head));
        }
        Ok(Self { reader, bytes: Vec::new() })
    }

    /// The next frame; `None` at the proper end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let rest = self.bytes.split_off(end + 1);
                let line = std::mem::replace(&mut self.bytes, rest);
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::other);
            }
            match read_chunk(&mut self.reader)? {
                Some(chunk) => self.bytes.extend(chunk),
                None => return Ok(None),
            }
        }
    }

    /// Reads until words have come and gives them.
    pub(crate) fn first_words(&mut self) -> String {
        loop {
            let frame = self.next().unwrap().expect("words before the end");
            if frame["event"] == "delta" {
                return frame["text"].as_str().unwrap().to_owned();
            }
            assert_eq!(frame["event"], "waiting", "{frame}");
        }
    }

    /// Reads to the end: the words, and the last frame.
    pub(crate) fn rest(mut self) -> (String, Value) {
        let (mut words, mut last) = (String::new(), Value::Null);
        while let Some(frame) = self.next().unwrap() {
            words.push_str(frame["text"].as_str().unwrap_or_default());
            last = frame;
        }
        (words, last)
    }
}
