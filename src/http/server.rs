//! The listener and its connections, all in one task.
//!
//! # Invariants
//! - At most `limits::HTTP_CONNECTIONS_MAX` connections. When one more comes, the oldest that is
//!   not at work on a whole request goes, but not before its request could be read; if all are at
//!   work, the newcomer waits.
//! - A head, a body, and each write have their timeouts; a connection at rest has the head's.
//! - At the stop nobody new comes in, running answers are told to their end, for a bounded time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::api;
pub use super::api::Service;
use super::connection::{Common, Patient, Upgrade, Work};
use super::socket;
use crate::agent::visit::Visit;
use crate::limits;

/// How long a connection without work is given at the stop to have its last bytes taken.
const LINGER: Duration = Duration::from_millis(250);

/// A connection as the listener sees it.
struct Place {
    number: u64,
    since: Instant,
    work: Work,
    leave: CancellationToken,
}

/// Serves `listener` until `stop`, then drains for at most `limits::DOOR_DRAIN_MAX`.
pub async fn serve(listener: TcpListener, service: Arc<Service>, stop: CancellationToken) {
    let common = Arc::new(Common::new(stop.clone()));
    // In the order in which they came.
    let mut places: VecDeque<Place> = VecDeque::new();
    let mut connections = FuturesUnordered::new();
    // Who came while all places were at work; behind it the kernel's queue begins.
    let mut waiting: Option<TcpStream> = None;
    let mut number = 0;
    loop {
        if let Some(stream) = waiting.take_if(|_| make_room(&mut places)) {
            number += 1;
            let place = Place {
                number,
                since: Instant::now(),
                work: Work::new(Arc::clone(&common)),
                leave: CancellationToken::new(),
            };
            let (work, leave) = (place.work.clone(), place.leave.clone());
            places.push_back(place);
            let served = connection(stream, Arc::clone(&service), work, leave, stop.clone());
            connections.push(async move {
                served.await;
                number
            });
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(left) = connections.next() => places.retain(|place| place.number != left),
            // A connection at rest again makes room.
            () = common.freed.notified(), if waiting.is_some() => {}
            () = settled(&places), if waiting.is_some() => {}
            stream = accept(&listener), if waiting.is_none() => waiting = Some(stream),
        }
    }
    drop(listener);
    let drain = async { while connections.next().await.is_some() {} };
    if tokio::time::timeout(limits::DOOR_DRAIN_MAX, drain).await.is_err() {
        tracing::warn!(connections = connections.len(), "HTTP connections left at shutdown");
    }
}

/// When the oldest connection at rest may be sent away; never if all are at work.
///
/// # Cancel safety
/// Cancel safe.
async fn settled(places: &VecDeque<Place>) {
    match places.iter().find(|place| !place.work.is_busy()) {
        Some(oldest) => tokio::time::sleep_until(oldest.since + limits::HTTP_SETTLE).await,
        None => std::future::pending().await,
    }
}

/// Sends the oldest connection at rest away if there is no place. False if all are at work or too
/// young to have been read.
fn make_room(places: &mut VecDeque<Place>) -> bool {
    if places.len() < limits::HTTP_CONNECTIONS_MAX {
        return true;
    }
    let oldest = places
        .iter()
        .position(|place| !place.work.is_busy())
        .filter(|at| places.get(*at).is_some_and(|p| p.since.elapsed() >= limits::HTTP_SETTLE));
    match oldest.and_then(|at| places.remove(at)) {
        Some(place) => {
            place.leave.cancel();
            true
        }
        None => false,
    }
}

/// The next connection. When the kernel has no descriptor left it rests and tries again.
///
/// # Cancel safety
/// No connection is lost.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Words are sent one by one; they must not wait for each other.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set nodelay");
                }
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "HTTP cannot accept");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection, and the WebSocket that it may become, until it ends, has to `leave`, or
/// is drained after `stop`.
async fn connection<T>(
    io: T,
    service: Arc<Service>,
    work: Work,
    leave: CancellationToken,
    stop: CancellationToken,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Patient::new(io, limits::DOOR_WRITE_TIMEOUT));
    let at_work = work.clone();
    let serving = Arc::clone(&service);
    let answer =
        service_fn(move |request| api::answer(Arc::clone(&serving), work.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HTTP_HEAD_TIMEOUT)
        .max_buf_size(limits::HTTP_HEAD_BYTES_MAX)
        .serve_connection(io, answer)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        () = leave.cancelled() => return,
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "HTTP connection ended early");
            } else if let Some(upgrade) = at_work.take_upgrade() {
                // Kept apart: most connections never need its room.
                let _busy = at_work.begin();
                Box::pin(upgraded::<T>(upgrade, &service, stop)).await;
            }
            return;
        }
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    while tokio::time::timeout(LINGER, connection.as_mut()).await.is_err() {
        if !at_work.is_busy() {
            return;
        }
    }
}

/// Serves the WebSocket that a connection has become.
async fn upgraded<T>(mut upgrade: Upgrade, service: &Service, stop: CancellationToken)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let upgraded = match (&mut upgrade.on).await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            tracing::debug!(%error, "WebSocket did not begin");
            return;
        }
    };
    let Ok(parts) = upgraded.downcast::<TokioIo<Patient<T>>>() else { return };
    let visit =
        Visit::new(Arc::clone(&service.converse), service.snapshot.clone(), upgrade.manners);
    socket::serve(parts.io.into_inner(), &parts.read_buf, visit, stop).await;
}

#[cfg(test)]
mod tests;
