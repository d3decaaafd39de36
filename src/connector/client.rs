//! One client of the terminal socket: frames in, frames out, turns in between.
//!
//! # Invariants
//! - Reading a frame, a turn's events and the stop are waited for at once, so a client can stop
//!   its turn while words arrive.
//! - A client that does not read is left after `limits::DOOR_WRITE_TIMEOUT`; its turns go on into
//!   the log.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::lines::{Line, Lines};
use crate::agent::Converse;
use crate::agent::visit::{Manners, Visit, complaint};
use crate::limits;
use crate::session::wire::{BadFrame, ServerFrame};
use crate::snapshot::Reader;

/// What a connection needs of the house.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) converse: Arc<dyn Converse>,
    pub(super) snapshot: Reader,
}

/// Serves one connection until its client leaves, or until its turns ended after `stop`.
///
/// # Errors
/// The connection's: it broke, or the client stopped reading.
pub(super) async fn talk<R, W>(
    reader: R,
    mut writer: W,
    door: Door,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut lines = Lines::new(reader, limits::FRAME_BYTES_MAX);
    let mut visit = Visit::new(door.converse, door.snapshot, Manners::Terminal);
    send(&mut writer, &[visit.greeting(None)]).await?;
    // A client may close its sending half and still wait for its answers.
    let mut listening = true;
    while listening || !visit.is_idle() {
        let frames = tokio::select! {
            biased;
            () = stop.cancelled(), if listening => {
                listening = false;
                continue;
            }
            line = lines.next(), if listening => match line? {
                Some(line) => hear(&mut visit, line).await,
                None => {
                    listening = false;
                    continue;
                }
            },
            next = visit.next() => match next {
                Ok(frames) => frames,
                Err(behind) => {
                    let bad = BadFrame { detail: behind.to_string(), chat_id: None };
                    send(&mut writer, &[complaint(bad, "behind")]).await?;
                    break;
                }
            },
        };
        send(&mut writer, &frames).await?;
    }
    writer.shutdown().await
}

async fn hear(visit: &mut Visit, line: Line) -> Vec<ServerFrame> {
    match line {
        Line::Whole(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => Vec::new(),
        Line::Whole(bytes) => visit.hear(&bytes).await,
        Line::TooLong => {
            let detail = format!("a frame has at most {} bytes", limits::FRAME_BYTES_MAX);
            vec![complaint(BadFrame { detail, chat_id: None }, "too_long")]
        }
    }
}

/// Writes frames at once: they belong together, and one system call is cheaper.
async fn send<W: AsyncWrite + Unpin>(writer: &mut W, frames: &[ServerFrame]) -> io::Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
    let bytes: String = frames.iter().map(ServerFrame::to_line).collect();
    let write = async {
        writer.write_all(bytes.as_bytes()).await?;
        writer.flush().await
    };
    match tokio::time::timeout(limits::DOOR_WRITE_TIMEOUT, write).await {
        Ok(written) => written,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")),
    }
}
