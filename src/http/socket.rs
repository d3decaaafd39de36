//! The WebSocket: CashCode's frames as a superset, on the HTTP door's connections.
//!
//! # Invariants
//! - A message in, its answers out, before the next message is read; what happens in the sessions
//!   that the client follows goes out between messages.
//! - Whatever ends a socket, its client is told why in a close frame, if it still reads.
//! - A socket is a task of nobody: it runs inside its connection, and counts as at work.
//!
//! # Absences
//! - No compression: frames are short, and a dictionary for each socket would cost 40 KiB.
//! - No token in the address, where proxies and histories would keep it (`access` has the others).

#[cfg(feature = "sim")]
pub(super) mod echo;
pub(super) mod handshake;

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;

use super::pages;
use crate::agent::visit::Visit;
use crate::limits;
use crate::session::wire::ServerFrame;

/// Bytes read at once: most messages fit, and every socket has this buffer.
const READ_BYTES: usize = 8 * 1024;

/// Bytes of frames gathered before they are written: those that belong together are one packet.
const WRITE_BYTES: usize = 4 * 1024;

/// How a socket ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The client has gone, or has said goodbye.
    Gone,
    /// We close, and say why.
    Close(CloseCode, &'static str),
}

/// Whether the client lives (pure).
#[derive(Debug)]
struct Alive {
    heard_at: Instant,
    asked: bool,
}

/// Serves one upgraded connection to its end. `begun` is what was read beyond the handshake.
pub(super) async fn serve<T>(io: T, begun: &Bytes, visit: Visit, stop: CancellationToken)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut socket = open(io, begun).await;
    let end = converse(&mut socket, visit, stop).await;
    tracing::debug!(?end, "WebSocket ends");
    // A client that does not take its goodbye is not waited for.
    let _late = tokio::time::timeout(limits::SOCKET_CLOSE_MAX, part(socket, end)).await;
}

/// The socket of an upgraded connection, with our bounds.
async fn open<T>(io: T, begun: &Bytes) -> WebSocketStream<T>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_message_size(Some(limits::SOCKET_MESSAGE_BYTES_MAX))
        .max_frame_size(Some(limits::SOCKET_MESSAGE_BYTES_MAX));
    WebSocketStream::from_partially_read(io, begun.to_vec(), Role::Server, Some(config)).await
}

/// Until there is a reason to end.
async fn converse<T>(
    socket: &mut WebSocketStream<T>,
    mut visit: Visit,
    stop: CancellationToken,
) -> End
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut alive = Alive { heard_at: Instant::now(), asked: false };
    let mut stopping = false;
    let mut frames = vec![visit.greeting(Some(pages::SET))];
    loop {
        if let Err(error) = send(socket, &frames).await {
            return End::of(&error);
        }
        if stopping && visit.is_idle() {
            return End::Close(CloseCode::Away, "shutting down");
        }
        frames = tokio::select! {
            biased;
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                Vec::new()
            }
            message = socket.next() => {
                alive.heard();
                match message {
                    None => return End::Gone,
                    Some(Err(error)) => return End::of(&error),
                    Some(Ok(Message::Text(text))) => visit.hear(text.as_bytes()).await,
                    // As with CashCode: text in a binary frame is text, and other bytes nothing.
                    Some(Ok(Message::Binary(bytes))) if std::str::from_utf8(&bytes).is_ok() => {
                        visit.hear(&bytes).await
                    }
                    // Pings and goodbyes are answered below us, with the next write.
                    Some(Ok(_)) => Vec::new(),
                }
            }
            told = visit.next() => match told {
                Ok(frames) => frames,
                Err(_) => return End::Close(CloseCode::Again, "too far behind; attach again"),
            },
            () = tokio::time::sleep_until(alive.until()) => {
                if !alive.ask() {
                    return End::Close(CloseCode::Error, "keepalive ping timeout");
                }
                if let Err(error) = socket.send(Message::Ping(Bytes::new())).await {
                    return End::of(&error);
                }
                Vec::new()
            }
        };
    }
}

async fn send<T>(socket: &mut WebSocketStream<T>, frames: &[ServerFrame]) -> Result<(), Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    for frame in frames {
        socket.feed(Message::text(frame.to_json())).await?;
    }
    socket.flush().await
}

/// Says goodbye, and reads on for a while: a client that still sends would see a reset instead.
async fn part<T>(mut socket: WebSocketStream<T>, end: End)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    if let End::Close(code, reason) = end {
        let goodbye = CloseFrame { code, reason: reason.into() };
        if socket.close(Some(goodbye)).await.is_err() {
            return;
        }
    }
    let mut io = socket.into_inner();
    if io.shutdown().await.is_err() {
        return;
    }
    let mut scratch = [0; 1024];
    while io.read(&mut scratch).await.is_ok_and(|count| count > 0) {}
}

impl End {
    fn of(error: &Error) -> Self {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                Self::Close(CloseCode::Size, "a message has at most 1 MiB")
            }
            Error::Utf8(_) => Self::Close(CloseCode::Invalid, "text must be UTF-8"),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Self::Gone,
            Error::Protocol(_) => Self::Close(CloseCode::Protocol, "not a WebSocket frame"),
            _ => Self::Gone,
        }
    }
}

impl Alive {
    fn heard(&mut self) {
        *self = Self { heard_at: Instant::now(), asked: false };
    }

    /// When there is something to do if nothing is heard.
    fn until(&self) -> Instant {
        let pong = if self.asked { limits::SOCKET_PONG_MAX } else { Duration::ZERO };
        self.heard_at + limits::SOCKET_PING_AFTER + pong
    }

    /// Whether to ask; false if that was done in vain.
    fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }
}

#[cfg(test)]
mod tests;
