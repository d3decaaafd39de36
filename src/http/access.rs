//! Who may use the HTTP door (pure).
//!
//! A server on loopback is reachable by every web page in the operator's browser: by a plain
//! cross-site request, and by a name that the attacker's DNS points at 127.0.0.1 after the page
//! was loaded. The first is told by `Origin` and `Sec-Fetch-Site`, the second by `Host`, so both
//! are checked on every route. A token is for machines that other people can reach.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;

use super::socket::handshake;

/// The seed's header for the token.
const TOKEN: HeaderName = HeaderName::from_static("x-ocf-token");
/// What browsers say about where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// What browsers say about how it came about.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// What browsers say about what the answer is for.
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// How a page gives the token, which cannot set a header on a WebSocket: as a subprotocol of this
/// beginning, with the token's bytes in hexadecimal. It is never chosen, so it is never told back.
const PROTOCOL_TOKEN: &str = "crayfish.token.";

/// Names under which every loopback server is known.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Whom to let in.
#[derive(Clone)]
pub struct Access {
    /// Lower case, without port; IPv6 in brackets.
    names: Vec<String>,
    /// Bound to all addresses: any address is ours, names are still checked.
    any_address: bool,
    token: Option<Vec<u8>>,
}

/// Access that must not be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Others can reach the address and nothing would stop them.
    #[error("{0} can be reached from other machines: set a token first, or bind 127.0.0.1")]
    OpenToOthers(SocketAddr),
    /// A token that no header can carry.
    #[error("the token must be 1 or more visible ASCII characters")]
    BadToken,
}

/// What a request asks for, as far as it matters who may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// The page itself, which is the same for everybody: a link on another site may lead to it.
    Page,
    /// What is the same for everybody, and no page.
    Open,
    /// What needs the token, if there is one.
    Own,
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// No `Host`, more than one, or not a host.
    HostMalformed,
    /// Not one of our names.
    HostForeign,
    /// A page of another origin sent it.
    OriginForeign,
    /// No token, or a wrong one.
    Unauthorised,
}

impl Access {
    /// Access for a server bound to `bound`. `extra_names` are host names without port, for a
    /// reverse proxy or a name in the LAN.
    ///
    /// # Errors
    /// If the address can be reached by others and there is no token, or the token is unusable.
    pub fn new(
        bound: SocketAddr,
        extra_names: &[String],
        token: Option<&str>,
    ) -> Result<Self, AccessError> {
        if token
            .is_some_and(|token| token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()))
        {
            return Err(AccessError::BadToken);
        }
        if token.is_none() && !bound.ip().is_loopback() {
            return Err(AccessError::OpenToOthers(bound));
        }
        let mut names: Vec<String> = LOOPBACK_NAMES.iter().map(|&name| name.to_owned()).collect();
        names.push(match bound.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        names.extend(extra_names.iter().map(|name| name.to_ascii_lowercase()));
        Ok(Self {
            names,
            any_address: bound.ip().is_unspecified(),
            token: token.map(|token| token.as_bytes().to_vec()),
        })
    }

    /// Lets a request in or not. `target` is the authority of an absolute request target, which
    /// counts instead of `Host`.
    pub(super) fn check(
        &self,
        headers: &HeaderMap,
        target: Option<&Authority>,
        wants: Wants,
    ) -> Result<(), Denied> {
        let host = one_host(headers, target)?;
        if !self.knows(name_of(&host).ok_or(Denied::HostMalformed)?) {
            return Err(Denied::HostForeign);
        }
        let followed = wants == Wants::Page && is_followed_link(headers);
        if !followed && headers.get_all(FETCH_SITE).iter().any(|site| site == "cross-site") {
            return Err(Denied::OriginForeign);
        }
        // A browser sends `Origin` with everything that may change something. Programs do not.
        if !headers.get_all(ORIGIN).iter().all(|origin| is_own(origin, &host)) {
            return Err(Denied::OriginForeign);
        }
        if wants == Wants::Own && !self.token_fits(headers) {
            return Err(Denied::Unauthorised);
        }
        Ok(())
    }

    fn knows(&self, name: &str) -> bool {
        let address = || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        self.names.iter().any(|known| known == name) || (self.any_address && address())
    }

    fn token_fits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let bearer = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, rest) = value.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(rest)
        });
        let given = headers.get(TOKEN).map(HeaderValue::as_bytes).or(bearer);
        match given {
            Some(given) => same_bytes(given.trim_ascii(), token),
            None => handshake::offered(headers)
                .filter_map(|protocol| from_hex(protocol.strip_prefix(PROTOCOL_TOKEN)?))
                .any(|given| same_bytes(&given, token)),
        }
    }
}

/// Without the token: it must not reach a log.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("names", &self.names)
            .field("token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

/// The host a request means, in lower case, as it was sent with or without port.
fn one_host(headers: &HeaderMap, target: Option<&Authority>) -> Result<String, Denied> {
    let mut hosts = headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(Denied::HostMalformed);
    }
    let host = match (target, first) {
        (Some(target), _) => target.as_str(),
        (None, Some(host)) => host.to_str().map_err(|_| Denied::HostMalformed)?,
        (None, None) => return Err(Denied::HostMalformed),
    };
    Ok(host.to_ascii_lowercase())
}

/// The name in `name`, `name:port` or `[v6]:port`, without the root's dot.
fn name_of(host: &str) -> Option<&str> {
    let port_at = match host.strip_prefix('[') {
        Some(v6) => v6.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(port_at)?;
    let port_fits = match port.strip_prefix(':') {
        Some(port) => port.parse::<u16>().is_ok(),
        None => port.is_empty(),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    (port_fits && !name.is_empty()).then_some(name)
}

/// Whether a person follows a link: the answer becomes a page of its own, which the page with the
/// link can neither read nor frame.
fn is_followed_link(headers: &HeaderMap) -> bool {
    let says = |name: HeaderName, word: &str| {
        let mut values = headers.get_all(name).iter();
        values.next().is_some_and(|value| value == word) && values.next().is_none()
    };
    says(FETCH_MODE, "navigate") && says(FETCH_DEST, "document")
}

/// Whether an `Origin` is the one the request was sent to. The scheme may differ: a proxy in
/// front of us may speak TLS.
fn is_own(origin: &HeaderValue, host: &str) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let origin = origin.to_ascii_lowercase();
    let sent_from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    sent_from == Some(host)
}

/// The bytes that pairs of hexadecimal digits stand for.
fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        let hex = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        hex.then(|| u8::from_str_radix(pair, 16).ok())?
    });
    pairs.collect()
}

/// Compares in a time that depends only on the lengths.
fn same_bytes(given: &[u8], secret: &[u8]) -> bool {
    let mut differs = given.len() ^ secret.len();
    for (index, &byte) in secret.iter().enumerate() {
        let other = given.get(index).copied().unwrap_or_default();
        differs |= usize::from(std::hint::black_box(byte ^ other));
    }
    std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests;
