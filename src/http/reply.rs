//! Answers: their bodies, and the headers every one of them carries.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue, REFERRER_POLICY, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use super::access::Denied;
use super::connection::Busy;
use super::request::BadRequest;
use super::router::NoRoute;
use super::socket::handshake::{self, BadHandshake, Handshake};
use crate::agent::Refused;

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const EVENTS: &str = "text/event-stream";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// On every answer: nobody may keep it, guess its type, run or frame it, or tell where it was.
const ALWAYS: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (REFERRER_POLICY, "no-referrer"),
];

/// When to try again after the house was too busy: about one short turn.
const BUSY_RETRY: Duration = Duration::from_secs(5);
/// When to try again after a shutdown: about a restart.
const STOPPING_RETRY: Duration = Duration::from_secs(10);

/// An answer.
pub(super) type Reply = Response<ReplyBody>;

/// A body that is there at once, or comes in pieces.
pub(super) struct ReplyBody {
    kind: Kind,
    /// While the body exists its connection is busy.
    busy: Option<Busy>,
}

enum Kind {
    Whole(Option<Bytes>),
    Pieces(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl ReplyBody {
    /// Keeps the connection counted as busy until the body is gone.
    pub(super) fn hold(&mut self, busy: Busy) {
        self.busy = Some(busy);
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.kind {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Pieces(pieces) => {
                pieces.poll_next_unpin(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Pieces(_) => SizeHint::default(),
        }
    }
}

fn reply(status: StatusCode, content_type: &'static str, kind: Kind) -> Reply {
    let mut reply = Response::new(ReplyBody { kind, busy: None });
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// A JSON answer.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Reply {
    match serde_json::to_vec(value) {
        Ok(bytes) => reply(status, JSON, Kind::Whole(Some(bytes.into()))),
        // Our types hold nothing JSON cannot; if one ever does, this is the honest answer.
        Err(_) => reply(
            StatusCode::INTERNAL_SERVER_ERROR,
            JSON,
            Kind::Whole(Some(Bytes::from_static(br#"{"error":"internal"}"#))),
        ),
    }
}

/// A file of the page, as it is stored.
pub(super) fn bytes(content_type: &'static str, bytes: Bytes) -> Reply {
    reply(StatusCode::OK, content_type, Kind::Whole(Some(bytes)))
}

/// What the client has is still true.
pub(super) fn unchanged() -> Reply {
    let mut reply = reply(StatusCode::NOT_MODIFIED, TEXT, Kind::Whole(None));
    reply.headers_mut().remove(CONTENT_TYPE);
    reply
}

/// A text answer.
pub(super) fn text(status: StatusCode, text: &str) -> Reply {
    reply(status, TEXT, Kind::Whole(Some(Bytes::copy_from_slice(text.as_bytes()))))
}

/// It is done, and there is nothing to say.
pub(super) fn nothing() -> Reply {
    let mut reply = reply(StatusCode::NO_CONTENT, TEXT, Kind::Whole(None));
    reply.headers_mut().remove(CONTENT_TYPE);
    reply
}

/// The connection becomes a WebSocket.
pub(super) fn switching(handshake: &Handshake) -> Reply {
    let mut reply = reply(StatusCode::SWITCHING_PROTOCOLS, TEXT, Kind::Whole(None));
    let headers = reply.headers_mut();
    headers.remove(CONTENT_TYPE);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&handshake.accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if handshake.knows_us {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(handshake::PROTOCOL));
    }
    reply
}

/// Lines of JSON as they come, each sent at once.
pub(super) fn lines(lines: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
    reply(StatusCode::OK, NDJSON, Kind::Pieces(Box::pin(lines)))
}

/// Server-sent events as they come.
pub(super) fn events(events: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
    reply(StatusCode::OK, EVENTS, Kind::Pieces(Box::pin(events)))
}

/// Prometheus' text format.
pub(super) fn metrics(page: String) -> Reply {
    reply(StatusCode::OK, METRICS, Kind::Whole(Some(page.into())))
}

/// All places for readers of the feed are taken.
pub(super) fn too_many_feeds() -> Reply {
    let reply = error(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many readers of the feed",
        "close a tab that shows the page",
    );
    retry(reply, BUSY_RETRY)
}

/// An error with a hint.
fn error(status: StatusCode, error: &str, hint: &str) -> Reply {
    json(status, &json!({ "error": error, "hint": hint }))
}

fn retry(mut reply: Reply, after: Duration) -> Reply {
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    reply
}

/// The connection ends with this answer: the rest of its request was not read.
pub(super) fn closing(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

impl From<NoRoute> for Reply {
    fn from(none: NoRoute) -> Self {
        match none {
            NoRoute::NotFound => {
                error(StatusCode::NOT_FOUND, "not found", "GET / names what there is")
            }
            NoRoute::WrongMethod { allow } => {
                let body = json!({ "error": "method not allowed", "allow": allow });
                let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, &body);
                reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
                reply
            }
        }
    }
}

impl From<Denied> for Reply {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::HostMalformed => error(
                StatusCode::BAD_REQUEST,
                "bad Host",
                "send exactly one Host header with a name and at most a port",
            ),
            Denied::HostForeign => error(
                StatusCode::FORBIDDEN,
                "host not allowed",
                "use 127.0.0.1 or localhost, or add the name to the configuration",
            ),
            Denied::OriginForeign => error(
                StatusCode::FORBIDDEN,
                "origin not allowed",
                "pages of other origins may not talk to the agent",
            ),
            Denied::Unauthorised => {
                let mut reply = error(
                    StatusCode::UNAUTHORIZED,
                    "unauthorised",
                    "send the configured token as X-OCF-Token or Authorization: Bearer",
                );
                reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                reply
            }
        }
    }
}

impl From<BadHandshake> for Reply {
    fn from(bad: BadHandshake) -> Self {
        let hint = "connect with a WebSocket client";
        match bad {
            BadHandshake::Malformed(_) => error(StatusCode::BAD_REQUEST, &bad.to_string(), hint),
            BadHandshake::Required => {
                let mut reply = error(StatusCode::UPGRADE_REQUIRED, &bad.to_string(), hint);
                let headers = reply.headers_mut();
                headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
                let version = HeaderValue::from_static(handshake::VERSION);
                headers.insert(SEC_WEBSOCKET_VERSION, version);
                reply
            }
            BadHandshake::TooMany => {
                let reply = error(StatusCode::SERVICE_UNAVAILABLE, &bad.to_string(), hint);
                retry(reply, BUSY_RETRY)
            }
        }
    }
}

impl From<BadRequest> for Reply {
    fn from(bad: BadRequest) -> Self {
        let status = match bad {
            BadRequest::NotJsonType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            BadRequest::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            BadRequest::TooSlow => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        };
        error(status, &bad.to_string(), bad.hint())
    }
}

impl From<Refused> for Reply {
    fn from(refused: Refused) -> Self {
        let status = match refused {
            Refused::Empty | Refused::BadSession | Refused::NoSuchBackend(_) => {
                StatusCode::BAD_REQUEST
            }
            Refused::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Refused::Overloaded | Refused::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Refused::NotStored(_) => StatusCode::INSUFFICIENT_STORAGE,
            Refused::NoSuchSession => StatusCode::NOT_FOUND,
            Refused::Running => StatusCode::CONFLICT,
            Refused::BadTitle { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let error = refused.to_string();
        // CashCode's clients look for `detail`.
        let body = json!({ "error": error, "detail": error, "code": refused.code() });
        let reply = json(status, &body);
        match refused {
            Refused::Overloaded => retry(reply, BUSY_RETRY),
            Refused::Stopping => retry(reply, STOPPING_RETRY),
            _ => reply,
        }
    }
}
