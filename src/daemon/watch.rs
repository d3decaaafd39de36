//! Tells when a file changes, through inotify: no polling, no wake-ups while nothing happens.
//!
//! The directory is watched, not the file: editors write a new file and move it into place.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;

/// Room for some dozens of events; more wait in the kernel for the next read.
const BUFFER_BYTES: usize = 4096;

/// A watch on one file.
pub(super) struct Watch {
    events: AsyncFd<OwnedFd>,
    name: OsString,
}

impl Watch {
    /// Watches `path`, which need not exist but whose directory must.
    ///
    /// # Errors
    /// No such directory, or no inotify instances left.
    #[expect(deprecated, reason = "unsound for borrowed descriptors only; this one is owned")]
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let fd = inotify::init(flags)?;
        let wanted = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&fd, &directory, wanted)?;
        Ok(Self { events: AsyncFd::new(fd)?, name })
    }

    /// Resolves when the file was written or moved into place.
    ///
    /// # Errors
    /// inotify failed; there is no more to be had of this watch.
    ///
    /// # Cancel safety
    /// A change that was read and not told is lost with the future.
    pub(super) async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
            let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
            let mut ours = false;
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                        ours |= name == Some(self.name.as_os_str());
                    }
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            ready.clear_ready();
            if ours {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn writing_and_moving_into_place_are_told_and_neighbours_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        let mut watch = Watch::new(&path).unwrap();
        std::fs::write(dir.path().join("other.yaml"), "x").unwrap();
        std::fs::write(&path, "x").unwrap();
        tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap().unwrap();
        std::fs::rename(dir.path().join("other.yaml"), &path).unwrap();
        tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap().unwrap();
        std::fs::write(dir.path().join("neighbour"), "x").unwrap();
        let told = tokio::time::timeout(Duration::from_millis(200), watch.changed()).await;
        assert!(told.is_err(), "a neighbour's change is not ours");
    }
}
