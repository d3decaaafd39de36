//! One HTTP/1.1 connection of a simulator, read and written to the byte.
//!
//! The server side decides everything itself: when the head leaves, where a chunk ends, whether
//! the last chunk is sent, and whether the socket ends in FIN or RST. There is no buffering on the
//! way out: what is written is on its way.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use rustix::net::{RecvFlags, connect_unspec, recv, sockopt::set_socket_linger};

use super::{clock::Halt, server::Handle};

/// Largest body read: beyond any prompt, small enough that a mistake cannot fill the memory.
const BODY_BOUND: usize = 32 * 1024 * 1024;
/// Bytes asked from the socket at once.
const READ_BYTES: usize = 8192;

/// Request line and headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Method, as sent.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Headers in order, names in lower case, values trimmed.
    pub headers: Vec<(String, String)>,
    /// Size of the head in bytes.
    pub bytes: usize,
}

impl Head {
    /// First value of a header; `name` in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether the client asked for the connection to end after this request.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// Why no request could be read.
#[derive(Debug)]
pub enum ReadError {
    /// The client closed between two requests, or in the middle of one.
    Closed,
    /// Head or body is beyond its bound.
    TooLarge,
    /// This is not HTTP.
    Malformed(&'static str),
    /// The socket failed.
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection. Dropping it closes it with FIN.
#[derive(Debug)]
pub struct Conn {
    stream: TcpStream,
    unread: Vec<u8>,
    id: u64,
    halt: Halt,
    server: Handle,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream, id: u64, halt: Halt, server: Handle) -> Self {
        // A token must leave when it is decoded, not when the next one fills a packet.
        let _ = stream.set_nodelay(true);
        Self { stream, unread: Vec::new(), id, halt, server }
    }

    /// Number of the connection, from 1.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The life of the simulated process this connection belongs to.
    #[must_use]
    pub fn halt(&self) -> &Halt {
        &self.halt
    }

    /// The server which accepted this connection.
    #[must_use]
    pub fn server(&self) -> &Handle {
        &self.server
    }

    /// A second hand on the same socket, to see later whether the peer is still there.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn witness(&self) -> io::Result<Witness> {
        Ok(Witness(self.stream.try_clone()?))
    }

    /// Reads a request head of at most `bound` bytes.
    ///
    /// # Errors
    /// See [`ReadError`]; the connection is of no further use after any of them.
    pub fn read_head(&mut self, bound: usize) -> Result<Head, ReadError> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                if end > bound {
                    return Err(ReadError::TooLarge);
                }
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                return parse_head(&head);
            }
            if self.unread.len() > bound {
                return Err(ReadError::TooLarge);
            }
            self.fill()?;
        }
    }

    /// Reads the body that belongs to `head`: by its length, in chunks, or none.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_body(&mut self, head: &Head) -> Result<Vec<u8>, ReadError> {
        let chunked = head
            .header("transfer-encoding")
            .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"));
        if chunked {
            return self.read_chunks();
        }
        let Some(length) = head.header("content-length") else { return Ok(Vec::new()) };
        let length = length.parse().map_err(|_| ReadError::Malformed("Content-Length"))?;
        self.take(length)
    }

    fn read_chunks(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = std::str::from_utf8(size)
                .ok()
                .and_then(|text| usize::from_str_radix(text.trim(), 16).ok())
                .ok_or(ReadError::Malformed("chunk size"))?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            if body.len().saturating_add(size) > BODY_BOUND {
                return Err(ReadError::TooLarge);
            }
            body.extend(self.take(size)?);
            if !self.line()?.is_empty() {
                return Err(ReadError::Malformed("chunk end"));
            }
        }
    }

    fn line(&mut self) -> Result<Vec<u8>, ReadError> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let mut line: Vec<u8> = self.unread.drain(..end + 2).collect();
                line.truncate(end);
                return Ok(line);
            }
            if self.unread.len() > READ_BYTES {
                return Err(ReadError::Malformed("line"));
            }
            self.fill()?;
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, ReadError> {
        if length > BODY_BOUND {
            return Err(ReadError::TooLarge);
        }
        while self.unread.len() < length {
            self.fill()?;
        }
        Ok(self.unread.drain(..length).collect())
    }

    fn fill(&mut self) -> Result<(), ReadError> {
        let mut bytes = [0; READ_BYTES];
        let count = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 {
            return Err(ReadError::Closed);
        }
        self.unread.extend_from_slice(&bytes[..count]);
        Ok(())
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// When the peer is gone: usually the second write after it closed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Writes a head. `headers` are sent in the order given, nothing is added.
    ///
    /// # Errors
    /// When the peer is gone.
    pub fn write_head(
        &mut self,
        status: u16,
        reason: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<()> {
        self.write(head_text(status, reason, headers).as_bytes())
    }

    /// Writes a whole answer with `Content-Length` in one piece.
    ///
    /// # Errors
    /// When the peer is gone.
    pub fn write_answer(
        &mut self,
        status: u16,
        reason: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        all.push(("Content-Length", &length));
        let mut bytes = head_text(status, reason, &all).into_bytes();
        bytes.extend_from_slice(body);
        self.write(&bytes)
    }

    /// Writes one chunk of a chunked body, in one piece.
    ///
    /// # Errors
    /// When the peer is gone.
    pub fn write_chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:X}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.write(&chunk)
    }

    /// Writes the last, empty chunk.
    ///
    /// # Errors
    /// When the peer is gone.
    pub fn write_last_chunk(&mut self) -> io::Result<()> {
        self.write(b"0\r\n\r\n")
    }

    /// Whether the peer closed or reset its side.
    #[must_use]
    pub fn peer_gone(&self) -> bool {
        gone(&self.stream)
    }

    /// Sends FIN and keeps the socket, so that the thread can go on with what nobody hears.
    pub fn shut(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Ends the connection with FIN. What the client still sends is read for a moment, because a
    /// socket closed with unread bytes would end in RST.
    pub fn close(self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(1)));
        let mut bytes = [0; READ_BYTES];
        while matches!((&self.stream).read(&mut bytes), Ok(count) if count > 0) {}
    }

    /// Ends the connection with RST at once.
    pub fn reset(self) {
        reset(&self.stream);
    }
}

/// A second hand on a connection's socket.
#[derive(Debug)]
pub struct Witness(TcpStream);

impl Witness {
    /// Whether the peer closed or reset its side.
    #[must_use]
    pub fn peer_gone(&self) -> bool {
        gone(&self.0)
    }
}

/// Sends RST now, even when other descriptors of the socket are open or being read.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
    if connect_unspec(stream).is_err() {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

fn gone(stream: &TcpStream) -> bool {
    let mut byte = [0; 1];
    match recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, count)) => count == 0,
        Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
    }
}

fn head_text(status: u16, reason: &str, headers: &[(&str, &str)]) -> String {
    let mut text = format!("HTTP/1.1 {status} {reason}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text
}

fn parse_head(bytes: &[u8]) -> Result<Head, ReadError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ReadError::Malformed("head"))?;
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (first.next(), first.next(), first.next(), first.next())
    else {
        return Err(ReadError::Malformed("request line"));
    };
    if method.is_empty() || !target.starts_with('/') || !version.starts_with("HTTP/1.") {
        return Err(ReadError::Malformed("request line"));
    }
    let mut headers = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(ReadError::Malformed("header"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let path = target.split('?').next().unwrap_or_default();
    Ok(Head { method: method.into(), path: path.into(), headers, bytes: bytes.len() })
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}
