//! One client of the terminal socket: frames in, frames out, turns in between.
//!
//! # Invariants
//! - Reading a frame, a turn's events and the stop are waited for at once, so a client can stop
//!   its turn while words arrive.
//! - A client that does not read is left after `limits::DOOR_WRITE_TIMEOUT`; its turns go on into
//!   the log.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, SelectAll, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::lines::{Line, Lines};
use crate::agent::frames::Frames;
use crate::agent::{Converse, Submission, Turn};
use crate::limits;
use crate::session::wire::{self, BadFrame, ClientFrame, HistoryLine, ServerFrame, Status};
use crate::snapshot::Reader;

type Told = Pin<Box<dyn Stream<Item = Vec<ServerFrame>> + Send>>;

/// What a connection needs of the house.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) converse: Arc<dyn Converse>,
    pub(super) snapshot: Reader,
}

struct Client<W> {
    door: Door,
    writer: W,
    /// The conversation that frames without a name mean; absent is the main one.
    chat_id: Option<String>,
    turns: SelectAll<Told>,
}

/// Serves one connection until its client leaves, or until its turns ended after `stop`.
///
/// # Errors
/// The connection's: it broke, or the client stopped reading.
pub(super) async fn talk<R, W>(
    reader: R,
    writer: W,
    door: Door,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut lines = Lines::new(reader, limits::FRAME_BYTES_MAX);
    let mut client = Client { door, writer, chat_id: None, turns: SelectAll::new() };
    client.greet().await?;
    // A client may close its sending half and still wait for its answers.
    let mut listening = true;
    while listening || !client.turns.is_empty() {
        tokio::select! {
            biased;
            () = stop.cancelled(), if listening => listening = false,
            line = lines.next(), if listening => match line? {
                Some(line) => client.hear(line).await?,
                None => listening = false,
            },
            Some(frames) = client.turns.next() => client.send(&frames).await?,
            // The last turn's frames ended just now.
            else => break,
        }
    }
    client.writer.shutdown().await
}

/// The frames of one turn, as its events come.
fn told(turn: Turn) -> Told {
    let frames = Frames::of(&turn);
    Box::pin(stream::unfold((turn.events, frames), |(mut events, mut frames)| async move {
        if frames.ended() {
            return None;
        }
        let next = frames.next(events.recv().await);
        Some((next, (events, frames)))
    }))
}

impl<W: AsyncWrite + Unpin> Client<W> {
    async fn greet(&mut self) -> io::Result<()> {
        let designation = self.door.snapshot.load().designation.clone();
        let client_id = format!("client-{:012x}", fastrand::u64(..1 << 48));
        self.send(&[ServerFrame::Ready { v: wire::VERSION, client_id, designation }]).await
    }

    /// Writes frames at once: they belong together, and one system call is cheaper.
    async fn send(&mut self, frames: &[ServerFrame]) -> io::Result<()> {
        let bytes: String = frames.iter().map(ServerFrame::to_line).collect();
        let write = async {
            self.writer.write_all(bytes.as_bytes()).await?;
            self.writer.flush().await
        };
        match tokio::time::timeout(limits::DOOR_WRITE_TIMEOUT, write).await {
            Ok(written) => written,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")),
        }
    }

    async fn hear(&mut self, line: Line) -> io::Result<()> {
        let bytes = match line {
            Line::Whole(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => return Ok(()),
            Line::Whole(bytes) => bytes,
            Line::TooLong => {
                let detail = format!("a frame has at most {} bytes", limits::FRAME_BYTES_MAX);
                return self.complain(BadFrame { detail, chat_id: None }, "too_long").await;
            }
        };
        match ClientFrame::parse(&bytes) {
            Ok(frame) => self.act(frame).await,
            Err(bad) => self.complain(bad, "bad_frame").await,
        }
    }

    async fn complain(&mut self, bad: BadFrame, code: &str) -> io::Result<()> {
        let BadFrame { detail, chat_id } = bad;
        self.send(&[ServerFrame::Error { detail, code: code.into(), chat_id, turn: None }]).await
    }

    async fn act(&mut self, frame: ClientFrame) -> io::Result<()> {
        let reply = match frame {
            ClientFrame::Ping => ServerFrame::Pong,
            ClientFrame::NewChat => {
                let chat_id = format!("chat-{:016x}", fastrand::u64(..));
                self.chat_id = Some(chat_id.clone());
                ServerFrame::Attached { chat_id }
            }
            ClientFrame::Attach { chat_id } => {
                self.chat_id = Some(chat_id.clone());
                ServerFrame::Attached { chat_id }
            }
            ClientFrame::Cancel { chat_id } => {
                let chat_id = chat_id.or_else(|| self.chat_id.clone());
                let stopped = self.door.converse.cancel(chat_id.as_deref());
                ServerFrame::StopAck { chat_id, stopped }
            }
            ClientFrame::Status => {
                let status = Box::new(Status::from(&*self.door.snapshot.load()));
                ServerFrame::Status { status }
            }
            ClientFrame::History { chat_id, limit } => {
                let chat_id = chat_id.or_else(|| self.chat_id.clone());
                match self.door.converse.history(chat_id.as_deref(), limit).await {
                    Ok(lines) => {
                        let turns = lines.into_iter().map(HistoryLine::from).collect();
                        ServerFrame::History { chat_id, turns }
                    }
                    Err(refused) => refused.frame(chat_id),
                }
            }
            ClientFrame::Message { chat_id, content, backend } => {
                let session = chat_id.or_else(|| self.chat_id.clone());
                return self.submit(session, content, backend).await;
            }
        };
        self.send(&[reply]).await
    }

    async fn submit(
        &mut self,
        session: Option<String>,
        text: String,
        backend: Option<String>,
    ) -> io::Result<()> {
        let chat_id = session.clone();
        let submission = Submission { session, text, backend, answer_tokens_max: None };
        match self.door.converse.submit(submission).await {
            Ok(turn) => {
                self.turns.push(told(turn));
                Ok(())
            }
            Err(refused) => self.send(&[refused.frame(chat_id)]).await,
        }
    }
}
