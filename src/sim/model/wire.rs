//! HTTP/1.1 as the simulated servers speak it, byte by byte.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// One request.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// Bytes of the head; hailo-ollama takes 4,096.
    pub(super) head_bytes: usize,
    pub(super) body: Vec<u8>,
}

/// Reads one request; nothing if the client left or sends nonsense.
pub(super) async fn read<R: AsyncRead + Unpin>(from: &mut R) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if bytes.len() > 64 * 1024 || from.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(bytes.get(..head_end)?).into_owned();
    let mut words = head.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = bytes.split_off(head_end);
    while body.len() < length.unwrap_or(0) {
        if from.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Request { method, path, head_bytes: head_end, body })
}

/// Writes a whole answer.
pub(super) async fn answer<W: AsyncWrite + Unpin>(
    to: &mut W,
    status: u16,
    headers: &str,
    body: &str,
) -> io::Result<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
    to.write_all(text.as_bytes()).await?;
    to.flush().await
}

/// Writes the head of a stream.
pub(super) async fn head<W: AsyncWrite + Unpin>(to: &mut W, kind: &str) -> io::Result<()> {
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n");
    to.write_all(head.as_bytes()).await?;
    to.flush().await
}

/// Writes one chunk.
pub(super) async fn chunk<W: AsyncWrite + Unpin>(to: &mut W, text: &str) -> io::Result<()> {
    let framed = format!("{:x}\r\n{text}\r\n", text.len());
    to.write_all(framed.as_bytes()).await?;
    to.flush().await
}

/// Writes the last chunk.
pub(super) async fn last_chunk<W: AsyncWrite + Unpin>(to: &mut W) -> io::Result<()> {
    to.write_all(b"0\r\n\r\n").await?;
    to.flush().await
}
