//! The upgrade of a request to a WebSocket (pure; RFC 6455, section 4.2).

use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, Version};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The subprotocol of clients that know our frames. One that offers none is taken for CashCode's.
pub(in crate::http) const PROTOCOL: &str = "crayfish.v1";

/// The only version there is.
pub(in crate::http) const VERSION: &str = "13";

/// A key is 16 bytes in base64.
const KEY_CHARS: usize = 24;

/// An upgrade that may be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct Handshake {
    /// Value of `Sec-WebSocket-Accept`.
    pub(in crate::http) accept: String,
    /// Whether the client offered [`PROTOCOL`].
    pub(in crate::http) knows_us: bool,
}

/// Why there is no WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum BadHandshake {
    /// An ordinary request where only WebSockets live, or another version.
    #[error("this address speaks WebSocket version 13 only")]
    Required,
    /// A WebSocket's request that is not sound.
    #[error("not a WebSocket handshake: {0}")]
    Malformed(&'static str),
    /// `limits::SOCKETS_MAX` are served already.
    #[error("too many WebSockets are open; try again later")]
    TooMany,
}

/// Whether a request wants to become a WebSocket.
pub(in crate::http) fn is_wanted(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET && names(headers, &UPGRADE, "websocket")
}

/// Reads the request's head.
pub(in crate::http) fn read(
    version: Version,
    headers: &HeaderMap,
) -> Result<Handshake, BadHandshake> {
    if version != Version::HTTP_11 {
        return Err(BadHandshake::Malformed("it takes HTTP/1.1"));
    }
    if !names(headers, &CONNECTION, "upgrade") {
        return Err(BadHandshake::Malformed("Connection must name Upgrade"));
    }
    if one(headers, &SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        return Err(BadHandshake::Required);
    }
    let key = one(headers, &SEC_WEBSOCKET_KEY).filter(|key| {
        let base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
        let padded = key.strip_suffix("==");
        key.len() == KEY_CHARS && padded.is_some_and(|key| key.bytes().all(base64))
    });
    let key = key.ok_or(BadHandshake::Malformed("Sec-WebSocket-Key must be 16 bytes in base64"))?;
    Ok(Handshake {
        accept: derive_accept_key(key.as_bytes()),
        knows_us: offered(headers).any(|protocol| protocol == PROTOCOL),
    })
}

/// The subprotocols that a client offers.
pub(in crate::http) fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

fn names(headers: &HeaderMap, header: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}

/// The value of a header that is there exactly once.
fn one<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(header).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    const SOUND: [(&str, &str); 4] = [
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn the_example_of_the_rfc_is_granted() {
        let headers = headers(&SOUND);
        assert!(is_wanted(&Method::GET, &headers));
        assert!(!is_wanted(&Method::POST, &headers));
        let granted = read(Version::HTTP_11, &headers).unwrap();
        assert_eq!(granted.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!granted.knows_us);
    }

    #[test]
    fn a_client_that_offers_our_protocol_knows_us() {
        let mut headers = headers(&SOUND);
        let offer = "chat, crayfish.v1,crayfish.token.ff".parse().unwrap();
        headers.append("sec-websocket-protocol", offer);
        assert!(read(Version::HTTP_11, &headers).unwrap().knows_us);
        assert_eq!(offered(&headers).last(), Some("crayfish.token.ff"));
    }

    #[test]
    fn what_is_not_sound_is_named() {
        let replaced = |name: &str, value: &'static str| {
            let pairs =
                SOUND.map(|(known, kept)| (known, if known == name { value } else { kept }));
            read(Version::HTTP_11, &headers(&pairs)).unwrap_err()
        };
        assert_eq!(replaced("sec-websocket-version", "8"), BadHandshake::Required);
        for (name, value) in [
            ("connection", "close"),
            ("sec-websocket-key", ""),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=!"),
            ("sec-websocket-key", "AAAA"),
        ] {
            assert!(matches!(replaced(name, value), BadHandshake::Malformed(_)), "{name} {value}");
        }
        let twice = headers(&[&SOUND[..], &SOUND[3..]].concat());
        assert!(read(Version::HTTP_11, &twice).is_err(), "two keys");
        assert!(read(Version::HTTP_10, &headers(&SOUND)).is_err());
    }
}
