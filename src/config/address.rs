//! Reading of URLs, listening addresses and host names (pure). By hand, as the few forms that are
//! wanted are simpler than the rules for all that a URL can be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::rule::{Rule, Wrong};
use super::value::Url;

/// Longest host name, in bytes (RFC 1035).
const HOST_BYTES_MAX: usize = 253;

/// Reads a server's URL. `shown` is what messages quote.
pub(super) fn url(text: &str, shown: &str) -> Result<Url, Wrong> {
    let wrong = |says: &str| Err(Wrong::new(format!("{shown} {says}"), Rule::Url.hint()));
    // First, as every other message quotes the text, password and all.
    if text.contains('@') {
        return Err(Wrong::new(
            "a user or password inside the URL would end up in logs",
            "remove the part up to \"@\"; use the key for secrets",
        ));
    }
    let lower = text.to_ascii_lowercase();
    let (tls, rest) = if lower.starts_with("http://") {
        (false, &text["http://".len()..])
    } else if lower.starts_with("https://") {
        (true, &text["https://".len()..])
    } else {
        return wrong("is not an http:// or https:// URL");
    };
    if rest.contains(['?', '#', ' ', '\\']) || !rest.is_ascii() {
        return wrong("contains a query, fragment, space or other character not allowed here");
    }
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let (host_text, port) = split_port(authority)?;
    let host = match host_text.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inner) if inner.parse::<Ipv6Addr>().is_ok() => inner.to_ascii_lowercase(),
        Some(_) => return wrong("has a malformed IPv6 address"),
        None if host_text.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST.to_string(),
        None => host(host_text, shown)?,
    };
    let scheme = if tls { "https" } else { "http" };
    let mut whole = format!("{scheme}://");
    if host.contains(':') {
        whole.push_str(&format!("[{host}]"));
    } else {
        whole.push_str(&host);
    }
    if let Some(port) = port {
        whole.push_str(&format!(":{port}"));
    }
    whole.push_str(path.trim_end_matches('/'));
    Ok(Url { text: whole, host, tls })
}

/// The host and the port of a URL's authority.
fn split_port(authority: &str) -> Result<(&str, Option<u16>), Wrong> {
    let after_bracket = authority.rfind(']').map_or(0, |at| at + 1);
    let Some(colon) = authority[after_bracket..].find(':') else {
        return Ok((authority, None));
    };
    let (host, port) = authority.split_at(after_bracket + colon);
    let digits = &port[1..];
    let number = digits.parse::<u16>().ok().filter(|port| *port > 0);
    match number {
        Some(port) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok((host, Some(port))),
        _ => Err(Wrong::new("the port is not a number from 1 to 65535", Rule::Url.hint())),
    }
}

/// Reads an address to listen on.
pub(super) fn listen(text: &str, shown: &str) -> Result<IpAddr, Wrong> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    text.parse().map_err(|_| {
        Wrong::new(
            format!("{shown} is not an IP address"),
            "write 127.0.0.1 for this machine only, or 0.0.0.0 for all networks",
        )
    })
}

/// Reads a host name or IPv4 address, and puts it in lower case.
pub(super) fn host(text: &str, shown: &str) -> Result<String, Wrong> {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if text.len() > HOST_BYTES_MAX || !text.split('.').all(label) {
        return Err(Wrong::new(
            format!("{shown} does not hold a host name"),
            "write a name or address without spaces, such as crayfish.local",
        ));
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::{listen, url};

    #[test]
    fn urls_are_brought_into_one_form() {
        for (text, whole, host) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1"),
            ("http://localhost:8000/", "http://127.0.0.1:8000", "127.0.0.1"),
            ("HTTP://LocalHost", "http://127.0.0.1", "127.0.0.1"),
            ("http://Pi5.local:11434/v1/", "http://pi5.local:11434/v1", "pi5.local"),
            ("http://[::1]:80", "http://[::1]:80", "::1"),
            ("https://api.example.org", "https://api.example.org", "api.example.org"),
        ] {
            let read = url(text, "").unwrap();
            assert_eq!((read.as_str(), read.host()), (whole, host), "{text}");
            assert_eq!(read.is_tls(), whole.starts_with("https"));
            assert_eq!(url(read.as_str(), "").unwrap(), read, "reading again changes nothing");
        }
    }

    #[test]
    fn what_is_no_server_url_is_refused() {
        for text in [
            "",
            "127.0.0.1:8000",
            "ftp://host",
            "http://",
            "http://:80",
            "http://host:",
            "http://host:0",
            "http://host:65536",
            "http://host:+80",
            "http://host:80x",
            "http://user:pw@host",
            "http://host/?q=1",
            "http://host/#x",
            "http://ho st",
            "http://[::g]:1",
            "http://[::1",
            "http://-a.b",
            "http://ü.example",
        ] {
            assert!(url(text, "it").is_err(), "{text}");
        }
    }

    #[test]
    fn only_addresses_can_be_listened_on() {
        assert!(listen("localhost", "").unwrap().is_loopback());
        assert!(listen("::1", "").unwrap().is_loopback());
        assert!(listen("0.0.0.0", "").unwrap().is_unspecified());
        for text in ["", "*", "my-pi", "127.0.0.1:80"] {
            assert!(listen(text, "it").is_err(), "{text}");
        }
    }
}
