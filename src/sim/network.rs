//! The network: hyper's client over pipes in memory, so that framing, bounds and early ends are
//! the real ones.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;

use super::checks;
use super::model::{Presence, Server};
use super::nursery::Nursery;
use crate::net::{Http, HttpError, HttpRequest, HttpResponse, Method};
use crate::provider::Provider;

/// Bytes on their way in one direction: a socket's buffer.
const PIPE_BYTES: usize = 64 * 1024;

/// The way to the servers.
pub(super) struct SimHttp {
    servers: Vec<Arc<Server>>,
    nursery: Nursery,
    /// Whose breakers are looked at when something is sent.
    provider: Mutex<Weak<Provider>>,
}

type Pipe = http1::Connection<TokioIo<DuplexStream>, Full<Bytes>>;

impl SimHttp {
    /// A network with these servers.
    pub(super) fn new(servers: Vec<Arc<Server>>, nursery: Nursery) -> Self {
        Self { servers, nursery, provider: Mutex::default() }
    }

    /// Says whose requests go through it.
    pub(super) fn watch(&self, provider: &Arc<Provider>) {
        *self.provider.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(provider);
    }

    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let found = self.servers.iter().find_map(|server| {
            request.url.strip_prefix(server.kind.base()).map(|path| (path.to_owned(), server))
        });
        let Some((path, server)) = found else {
            return Err(HttpError::Unsendable(format!("no such host: {}", request.url)));
        };
        let provider = self.provider.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(provider) = provider {
            checks::outgoing(server, &provider, &request);
        }
        let presence = server.state().presence;
        match presence {
            Presence::Down => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                return Err(HttpError::Refused("connection refused".into()));
            }
            Presence::Unplugged => {
                tokio::time::sleep(request.connect_timeout).await;
                return Err(HttpError::Refused("timed out".into()));
            }
            Presence::Up | Presence::Wedged => {}
        }
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        self.nursery.start(Arc::clone(server).serve(theirs));
        let (mut sender, pipe) = http1::handshake(TokioIo::new(ours))
            .await
            .map_err(|error| HttpError::Refused(error.to_string()))?;
        let request = message(&path, request)?;
        let mut sending = Box::pin(async move { (sender.send_request(request).await, sender) });
        let mut pipe = Some(Box::pin(pipe));
        let (response, sender) = poll_fn(|cx| {
            if let Poll::Ready(done) = sending.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            drive(&mut pipe, cx);
            sending.as_mut().poll(cx)
        })
        .await;
        let response = response.map_err(|error| match error.is_parse() {
            true => HttpError::Malformed(error.to_string()),
            false => HttpError::NoAnswer(error.to_string()),
        })?;
        let header = |name| response.headers().get(name)?.to_str().ok();
        let retry_after = header(RETRY_AFTER).and_then(|s| s.parse().ok()).map(Duration::from_secs);
        let content_type = header(CONTENT_TYPE).map(str::to_owned);
        let status = response.status().as_u16();
        let body = Reading { body: response.into_body(), pipe, _sender: sender };
        // Nothing is fetched in the simulated world, so nothing is sent on and no length is told.
        let (location, length) = (None, None);
        let body = body.stream();
        Ok(HttpResponse { status, content_type, retry_after, location, length, body })
    }
}

impl Http for SimHttp {
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        Box::pin(self.exchange(request))
    }
}

/// Moves bytes until there are none to move.
fn drive(pipe: &mut Option<Pin<Box<Pipe>>>, cx: &mut std::task::Context<'_>) {
    if let Some(open) = pipe
        && open.as_mut().poll(cx).is_ready()
    {
        *pipe = None;
    }
}

/// A response's body with the connection it comes from.
struct Reading {
    body: Incoming,
    pipe: Option<Pin<Box<Pipe>>>,
    _sender: http1::SendRequest<Full<Bytes>>,
}

impl Reading {
    fn stream(self) -> crate::net::HttpBody {
        stream::unfold(self, |mut reading| async move {
            let frame = poll_fn(|cx| {
                if let Poll::Ready(frame) = Pin::new(&mut reading.body).poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                drive(&mut reading.pipe, cx);
                Pin::new(&mut reading.body).poll_frame(cx)
            })
            .await?;
            let piece = match frame {
                Ok(frame) => Ok(frame.into_data().map(|data| data.to_vec()).unwrap_or_default()),
                Err(error) => Err(HttpError::Cut(error.to_string())),
            };
            Some((piece, reading))
        })
        .boxed()
    }
}

fn message(path: &str, request: HttpRequest) -> Result<hyper::Request<Full<Bytes>>, HttpError> {
    let method = match request.method {
        Method::Get | Method::GetFrom(_) => hyper::Method::GET,
        Method::Post => hyper::Method::POST,
        Method::Delete => hyper::Method::DELETE,
    };
    hyper::Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "127.0.0.1")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(request.body.unwrap_or_default())))
        .map_err(|error| HttpError::Unsendable(error.to_string()))
}
