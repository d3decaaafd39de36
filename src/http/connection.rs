//! One connection: bytes with a patience, and whether it is at work.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::agent::visit::Manners;
use crate::limits;

/// What the connections of a listener have in common.
#[derive(Debug)]
pub(super) struct Common {
    /// Told when a connection is no longer at work.
    pub(super) freed: Notify,
    /// Places for WebSockets.
    sockets: Arc<Semaphore>,
    /// Places for readers of the feed.
    feeds: Arc<Semaphore>,
    /// Cancelled when the listener stops.
    stop: CancellationToken,
}

impl Common {
    pub(super) fn new(stop: CancellationToken) -> Self {
        let sockets = Arc::new(Semaphore::new(limits::SOCKETS_MAX));
        let feeds = Arc::new(Semaphore::new(limits::FEEDS_MAX));
        Self { freed: Notify::new(), sockets, feeds, stop }
    }
}

/// A connection that is to become a WebSocket.
#[derive(Debug)]
pub(super) struct Upgrade {
    /// Resolves when the answer that grants it was sent.
    pub(super) on: OnUpgrade,
    pub(super) manners: Manners,
    _place: OwnedSemaphorePermit,
}

/// Whether a connection is at work on a request that arrived whole. One that is not may be closed
/// when somebody else needs its place.
#[derive(Debug, Clone)]
pub(super) struct Work {
    requests: Arc<AtomicUsize>,
    upgrade: Arc<Mutex<Option<Upgrade>>>,
    common: Arc<Common>,
}

/// The connection is at work as long as this exists.
#[derive(Debug)]
pub(super) struct Busy(Work);

impl Work {
    pub(super) fn new(common: Arc<Common>) -> Self {
        Self { requests: Arc::default(), upgrade: Arc::default(), common }
    }

    /// Lets the connection become a WebSocket; false if there are too many.
    pub(super) fn upgrade(&self, on: OnUpgrade, manners: Manners) -> bool {
        let Ok(place) = Arc::clone(&self.common.sockets).try_acquire_owned() else { return false };
        let upgrade = Upgrade { on, manners, _place: place };
        *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
        true
    }

    /// What the connection is to become, if it is.
    pub(super) fn take_upgrade(&self) -> Option<Upgrade> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A place for a reader of the feed, if there is one.
    pub(super) fn feed(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.common.feeds).try_acquire_owned().ok()
    }

    /// Cancelled when the listener stops.
    pub(super) fn stop(&self) -> CancellationToken {
        self.common.stop.clone()
    }

    pub(super) fn begin(&self) -> Busy {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
        self.0.common.freed.notify_one();
    }
}

/// A stream whose writes fail when the peer takes nothing for too long. Reads are left alone:
/// hyper and the body reader have their own timeouts.
#[derive(Debug)]
pub(super) struct Patient<T> {
    io: T,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    pub(super) fn new(io: T, patience: Duration) -> Self {
        Self { io, patience, waiting: None }
    }

    /// Passes a finished write on, and fails one that waits for too long.
    fn watch<V>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<V>>,
    ) -> Poll<io::Result<V>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let patience = self.patience;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.watch(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watch(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_only_after_nothing_was_taken_for_the_whole_patience() {
        let (near, mut far) = tokio::io::duplex(8);
        let patience = Duration::from_secs(30);
        let mut near = Patient::new(near, patience);
        let began = Instant::now();
        let slow_reader = async {
            // Takes a little three times, each time just before the patience ends, then no more.
            for _ in 0..3 {
                tokio::time::sleep(patience - Duration::from_secs(1)).await;
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let written = tokio::select! {
            written = near.write_all(&[7; 64]) => written,
            () = slow_reader => Ok(()),
        };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), Duration::from_secs(29 * 3 + 30));
    }

    #[test]
    fn a_connection_is_busy_as_long_as_one_request_is() {
        let work = Work::new(Arc::new(Common::new(CancellationToken::new())));
        assert!(!work.is_busy());
        let (first, second) = (work.begin(), work.begin());
        drop(first);
        assert!(work.is_busy());
        drop(second);
        assert!(!work.is_busy());
    }
}
