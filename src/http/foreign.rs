//! What a stranger's request meets first, for the fuzz targets: router, access rules, and how
//! bodies and queries are read.

use std::net::{Ipv4Addr, SocketAddr};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Uri};

use super::access::{Access, Wants};
use super::request::{self, ChatBody, HistoryQuery};
use super::router;
#[cfg(feature = "sim")]
pub use super::socket::echo::serve as echo;

/// Judges a request's head, lines of text as a client may send them: method and target first, then
/// headers. True if a door with a token would let it in without one; that must never happen for a
/// name that is not this machine's.
#[must_use]
pub fn lets_in(head: &str) -> bool {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split_whitespace();
    let (method, target) = (words.next().unwrap_or("GET"), words.next().unwrap_or("/"));
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return false };
    let Ok(uri) = target.parse::<Uri>() else { return false };
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let name = HeaderName::from_bytes(name.trim().as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value.trim())) else { continue };
        headers.append(name, value);
    }
    let bound = SocketAddr::from((Ipv4Addr::LOCALHOST, 8765));
    let Ok(access) = Access::new(bound, &[], None) else { return false };
    let routed = router::route(&method, uri.path()).is_ok();
    let check = |wants| access.check(&headers, uri.authority(), wants).is_ok();
    routed && (check(Wants::Open) || check(Wants::Page))
}

/// Reads the body of `POST /chat`: the message and the session, or what its sender is told.
///
/// # Errors
/// The sentence about what is wrong with it.
pub fn chat(body: &[u8]) -> Result<(String, Option<String>), String> {
    let chat = ChatBody::parse(body).map_err(|error| format!("{error}: {}", error.hint()))?;
    Ok((chat.message, chat.session))
}

/// Reads the bodies of the other requests: the session to cancel, the new title.
#[must_use]
pub fn others(body: &[u8]) -> (Option<String>, Option<String>) {
    (request::cancel_session(body).ok().flatten(), request::title(body).ok())
}

/// Reads the query of `GET /history`: the number of lines, and the session.
#[must_use]
pub fn history(query: &str) -> Option<(usize, Option<String>)> {
    HistoryQuery::parse(Some(query)).ok().map(|query| (query.lines.limit, query.session))
}
