//! A peer for tests: a raw TCP listener that plays one script for each connection, because what
//! is under test is how connections end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// One step of a script.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Writes bytes.
    Send(Vec<u8>),
    /// Waits in real time.
    Pause(Duration),
    /// Resets the connection instead of closing it.
    Reset,
    /// Waits until the other side closes, and reports it.
    AwaitClose,
}

/// A request as it came over the wire.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Request line and headers, as sent.
    pub(crate) head: String,
    /// Body.
    pub(crate) body: String,
}

/// A scripted server on a port of its own. The n-th connection plays the n-th script; after the
/// last one connections are refused.
pub(crate) struct Peer {
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    seen: mpsc::Receiver<Seen>,
    closed: mpsc::Receiver<()>,
    task: JoinHandle<()>,
}

/// Sends a complete answer with a length.
pub(crate) fn answer(status: &str, content_type: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    vec![Step::Send(
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             Connection: keep-alive\r\n\r\n{body}"
        )
        .into_bytes(),
    )]
}

/// Head of a streamed answer.
pub(crate) fn head(content_type: &str) -> Step {
    Step::Send(
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        )
        .into_bytes(),
    )
}

/// One chunk of a streamed answer.
pub(crate) fn chunk(text: &str) -> Step {
    Step::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// The terminal chunk.
pub(crate) fn end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// A URL at which nobody listens.
pub(crate) async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

impl Peer {
    pub(crate) async fn play(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell_seen, seen) = mpsc::channel(64);
        let (tell_closed, closed) = mpsc::channel(64);
        let task = tokio::spawn(async move {
            for script in scripts {
                let Ok((socket, _)) = listener.accept().await else { return };
                let (seen, closed) = (tell_seen.clone(), tell_closed.clone());
                tokio::spawn(async move {
                    // The other side may be gone at any step; that ends the script.
                    let _ = run(socket, script, seen, closed).await;
                });
            }
        });
        Self { url, seen, closed, task }
    }

    /// The next request, in the order in which they were read.
    pub(crate) async fn seen(&mut self) -> Seen {
        tokio::time::timeout(Duration::from_secs(5), self.seen.recv()).await.unwrap().unwrap()
    }

    /// Waits for a connection at `Step::AwaitClose` to be closed by the client.
    pub(crate) async fn closed(&mut self) {
        tokio::time::timeout(Duration::from_secs(5), self.closed.recv()).await.unwrap().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    mut socket: TcpStream,
    script: Vec<Step>,
    seen: mpsc::Sender<Seen>,
    closed: mpsc::Sender<()>,
) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let request = read_request(&mut socket).await?;
    let _ = seen.send(request).await;
    for step in script {
        match step {
            Step::Send(bytes) => socket.write_all(&bytes).await?,
            Step::Pause(time) => tokio::time::sleep(time).await,
            Step::Reset => {
                rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
                return Ok(());
            }
            Step::AwaitClose => {
                let mut buffer = [0; 1024];
                while matches!(socket.read(&mut buffer).await, Ok(n) if n > 0) {}
                let _ = closed.send(()).await;
            }
        }
    }
    socket.shutdown().await
}

async fn read_request(socket: &mut TcpStream) -> std::io::Result<Seen> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length:")
                        .map(|value| value.trim().parse::<usize>().unwrap())
                })
                .unwrap_or(0);
            if body.len() >= length {
                return Ok(Seen { head: head.to_owned(), body: body.to_owned() });
            }
        }
        match socket.read(&mut buffer).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}
