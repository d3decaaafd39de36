//! The only door out: HTTP to model servers, behind a trait so that the simulation can put an
//! in-memory network in its place.

pub mod client;
#[cfg(test)]
pub(crate) mod peer;
pub mod split;

use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;

/// Request method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET, without a body.
    Get,
    /// GET of what follows the first bytes. A server may ignore it and send all, with 200.
    GetFrom(u64),
    /// POST of a JSON body.
    Post,
    /// DELETE with a JSON body.
    Delete,
}

/// One request. Headers beyond the fixed ones are few and short: hailo-ollama drops a connection
/// whose headers exceed 4,096 bytes in all.
#[derive(Clone)]
pub struct HttpRequest {
    /// Method.
    pub method: Method,
    /// Absolute `http://` or, with feature `tls`, `https://` URL.
    pub url: String,
    /// JSON body.
    pub body: Option<Vec<u8>>,
    /// Value of an `Authorization: Bearer` header; never logged.
    pub bearer: Option<String>,
    /// Bound on opening the connection.
    pub connect_timeout: Duration,
}

/// A URL as it may be shown and logged: without a name and password before its host.
#[must_use]
pub fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

/// The response's head, and its body as it arrives.
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// `Content-Type`, lower case, without parameters.
    pub content_type: Option<String>,
    /// `Retry-After` in seconds, where it is a number.
    pub retry_after: Option<Duration>,
    /// `Location`, where to ask instead; nothing here follows it.
    pub location: Option<String>,
    /// `Content-Length`, where it is told.
    pub length: Option<u64>,
    /// The body in the pieces in which it arrived.
    pub body: HttpBody,
}

/// A body as it arrives. Dropping it closes the connection.
pub type HttpBody = Pin<Box<dyn Stream<Item = Result<Vec<u8>, HttpError>> + Send>>;

/// Why a request failed. Variants are what the caller decides by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Nobody listens, or the connection could not be opened in time.
    #[error("cannot connect: {0}")]
    Refused(String),
    /// The connection ended before the response head.
    #[error("closed before an answer: {0}")]
    NoAnswer(String),
    /// The connection ended inside the body (reset, or no terminal chunk).
    #[error("cut inside the answer: {0}")]
    Cut(String),
    /// What arrived is not HTTP, or exceeds a bound.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// The request itself cannot be sent (bad URL, scheme not built in).
    #[error("cannot send: {0}")]
    Unsendable(String),
}

/// Sends requests. One connection for each request, closed after it.
pub trait Http: Send + Sync {
    /// Sends and awaits the head. There is no timeout here but the connect bound: the caller
    /// knows how long which phase may take.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>>;
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_url_is_shown_without_its_credentials() {
        let table = [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("https://me:secret@host/v1", "https://host/v1"),
            ("https://me:se@cret@host?x=a@b", "https://host?x=a@b"),
            ("me:secret@host", "host"),
            ("http://host/a@b", "http://host/a@b"),
            ("", ""),
        ];
        for (url, want) in table {
            assert_eq!(super::shown(url), want);
        }
    }
}
