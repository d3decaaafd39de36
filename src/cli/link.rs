//! A client's connection to the daemon.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::place::Places;
use crate::connector::lines::{Line, Lines};
use crate::limits;
use crate::session::wire::{ClientFrame, ServerFrame};

/// Longest frame taken from the daemon, in bytes: a history of a few of the longest answers.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A daemon that runs greets at once; one that does not within this hangs.
const GREETING_MAX: Duration = Duration::from_secs(10);

/// A connection that was greeted.
pub(super) struct Link {
    lines: Lines<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// The agent's name.
    pub(super) designation: String,
}

/// Why there is no daemon to talk to.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// Nobody listens.
    #[error(
        "crayfish is not running (nobody answers on {}).\nStart it with: crayfish run",
        places(.0)
    )]
    NotRunning(Vec<PathBuf>),
    /// It runs as somebody else.
    #[error("{0} belongs to another user; run this as the user who runs crayfish")]
    NotOurs(PathBuf),
    /// It listens and turned us away or hangs.
    #[error("crayfish does not answer: {0}")]
    Refused(String),
    /// The connection broke.
    #[error("the connection to crayfish was lost: {0}")]
    Lost(String),
}

fn places(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    if names.is_empty() { "any socket".to_owned() } else { names.join(" or ") }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Link {
    /// Connects to the first socket that answers.
    ///
    /// # Errors
    /// See `LinkError`.
    pub(super) async fn open(places: &Places) -> Result<Self, LinkError> {
        let mut not_ours = None;
        for path in &places.sockets {
            match UnixStream::connect(path).await {
                Ok(stream) => return Self::greeted(stream).await,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    not_ours = Some(path.clone());
                }
                Err(_) => {}
            }
        }
        Err(not_ours
            .map_or_else(|| LinkError::NotRunning(places.sockets.clone()), LinkError::NotOurs))
    }

    async fn greeted(stream: UnixStream) -> Result<Self, LinkError> {
        let (reader, writer) = stream.into_split();
        let lines = Lines::new(reader, FRAME_BYTES_MAX);
        let mut link = Self { lines, writer, designation: String::new() };
        match tokio::time::timeout(GREETING_MAX, link.next()).await {
            Ok(Ok(ServerFrame::Ready { designation, .. })) => {
                link.designation = designation;
                Ok(link)
            }
            Ok(Ok(ServerFrame::Error { detail, .. })) => Err(LinkError::Refused(detail)),
            Ok(Ok(_)) => Err(LinkError::Refused("it does not greet".into())),
            Ok(Err(error)) => Err(LinkError::Refused(error.to_string())),
            Err(_) => Err(LinkError::Refused("it does not greet in time".into())),
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// `LinkError::Lost`.
    pub(super) async fn send(&mut self, frame: &ClientFrame) -> Result<(), LinkError> {
        let mut line = frame.to_json();
        line.push('\n');
        let write = self.writer.write_all(line.as_bytes());
        match tokio::time::timeout(limits::DOOR_WRITE_TIMEOUT, write).await {
            Ok(written) => Ok(written?),
            Err(_) => Err(LinkError::Lost("it does not read".into())),
        }
    }

    /// The next frame. Those that a newer daemon may have are skipped.
    ///
    /// # Errors
    /// `LinkError::Lost`.
    ///
    /// # Cancel safety
    /// No frame is lost.
    pub(super) async fn next(&mut self) -> Result<ServerFrame, LinkError> {
        loop {
            match self.lines.next().await? {
                None => return Err(LinkError::Lost("it closed the connection".into())),
                Some(Line::TooLong) => {}
                Some(Line::Whole(line)) => {
                    if let Ok(frame) = serde_json::from_slice(&line) {
                        return Ok(frame);
                    }
                }
            }
        }
    }

    /// Sends a frame and gives what `wanted` takes of the answers; an `error` ends the wait.
    ///
    /// # Errors
    /// `LinkError::Lost`, or `LinkError::Refused` with the daemon's words.
    pub(super) async fn request<T>(
        &mut self,
        frame: &ClientFrame,
        wanted: impl Fn(ServerFrame) -> Option<T>,
    ) -> Result<T, LinkError> {
        self.send(frame).await?;
        let answered = async {
            loop {
                match self.next().await? {
                    ServerFrame::Error { detail, turn: None, .. } => {
                        return Err(LinkError::Refused(detail));
                    }
                    other => {
                        if let Some(found) = wanted(other) {
                            return Ok(found);
                        }
                    }
                }
            }
        };
        let answered = tokio::time::timeout(GREETING_MAX, answered).await;
        answered.unwrap_or_else(|_| Err(LinkError::Refused("no answer in time".into())))
    }
}
