//! The terminal's socket: where `crayfish chat`, `ask` and `status` find the daemon.
//!
//! JSON lines over a unix socket that only its owner can open, and that asks the kernel who is on
//! the other side.
//!
//! # Invariants
//! - Runs as one task with its connections inside: nothing is spawned.
//! - A socket file is taken away only if it is a socket and nobody answers on it.
//!
//! # Absences
//! - No authentication beyond the user's id: whoever has it can read the database as well.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::client::{self, Door};
use crate::agent::Converse;
use crate::limits;
use crate::session::wire::ServerFrame;
use crate::snapshot::Reader;

/// Name of the socket in the runtime directory.
pub const SOCKET_NAME: &str = "crayfish.sock";

/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon answers on it.
    #[error("another daemon listens on {0}")]
    InUse(PathBuf),
    /// Something that is not a socket has its name.
    #[error("{0} is not a socket; move it away")]
    NotASocket(PathBuf),
    /// The file system refused.
    #[error("cannot listen on {path}: {error}")]
    Io {
        /// The socket's file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// A bound socket. Its file goes when it is dropped.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Binds `path`, whose directory must exist. Needs a running tokio runtime.
    ///
    /// # Errors
    /// See `BindError`.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let failed = |error| BindError::Io { path: path.to_owned(), error };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(BindError::NotASocket(path.to_owned()));
            }
            Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
                Ok(_) => return Err(BindError::InUse(path.to_owned())),
            },
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let socket = Self { listener, path: path.to_owned() };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))
            .map_err(failed)?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The next start would take it away as well; this is for whoever looks in between.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves clients until `stop`, then gives running turns `limits::DOOR_DRAIN_MAX` to be told.
pub async fn serve(
    socket: Socket,
    converse: Arc<dyn Converse>,
    snapshot: Reader,
    stop: CancellationToken,
) {
    let door = Door { converse, snapshot };
    let mut clients = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(()) = clients.next() => {}
            stream = accept(&socket.listener) => {
                if clients.len() >= limits::TERMINAL_CLIENTS_MAX {
                    turn_away(&stream);
                } else if is_ours(&stream) {
                    clients.push(one(stream, door.clone(), stop.clone()));
                }
            }
        }
    }
    // Nobody new comes in while the others are told the end.
    drop(socket);
    let drain = async { while clients.next().await.is_some() {} };
    if tokio::time::timeout(limits::DOOR_DRAIN_MAX, drain).await.is_err() {
        tracing::warn!(clients = clients.len(), "terminal clients left at shutdown");
    }
}

async fn one(stream: UnixStream, door: Door, stop: CancellationToken) {
    let (reader, writer) = stream.into_split();
    if let Err(error) = client::talk(reader, writer, door, stop).await {
        tracing::debug!(%error, "terminal client lost");
    }
}

/// The next connection. When the kernel has no descriptor left it rests and tries again.
///
/// # Cancel safety
/// No connection is lost.
async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "terminal socket cannot accept");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether the peer is this user or root. The file's mode says the same; it can be changed.
fn is_ours(stream: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == ours || peer.uid() == 0 => true,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "terminal client of another user refused");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "terminal client of unknown user refused");
            false
        }
    }
}

fn turn_away(stream: &UnixStream) {
    let frame = ServerFrame::Error {
        detail: format!("{} clients are connected already", limits::TERMINAL_CLIENTS_MAX),
        code: "overloaded".into(),
        chat_id: None,
        turn: None,
    };
    // A fresh socket's buffer takes one line; if it does not, the close says enough.
    let _ = stream.try_write(frame.to_line().as_bytes());
}

#[cfg(test)]
mod tests;
