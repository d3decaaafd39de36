//! The page, embedded: its files gzipped when the program was built, and the headers they need.
//!
//! # Invariants
//! - Nothing here is secret and nothing depends on who asks, so no token is needed: the page asks
//!   for one when the daemon does.
//! - The address of a file names the whole set of files, so it may be kept for ever; the page
//!   itself is asked for again each time and answered with 304 while it is the same.
//! - The page runs our scripts only, shows our styles only, and talks to its own origin only.
//!
//! # Absences
//! - No file that is not compressed. Every browser takes gzip, and so does whoever says nothing;
//!   who refuses it is told so.

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG,
    HeaderMap, HeaderValue, IF_NONE_MATCH, VARY,
};

use super::reply::{self, Reply};
use super::router::NoRoute;

/// Where the files are, before the name of their set.
pub(super) const PREFIX: &str = "/assets/";

/// The page's file.
const INDEX: &str = "index.html";

/// Everything comes from here or not at all; nothing is framed, posted or evaluated, and markup
/// becomes elements only through the sanitiser's policy.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types dompurify";

/// For files whose address changes with their content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// For the page: kept, but asked for again each time.
const ASK_AGAIN: &str = "no-cache";

/// A file of the page.
struct Asset {
    /// Below the directory of the page's files.
    path: &'static str,
    content_type: &'static str,
    gzip: &'static [u8],
}

// `SET` and `ASSETS`, from build.rs.
include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Whether a request for `/` is a browser's, which wants the page and not the plain welcome.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/html")
    })
}

/// The page.
pub(super) fn page(headers: &HeaderMap) -> Reply {
    match ASSETS.iter().find(|asset| asset.path == INDEX) {
        Some(asset) => serve(asset, headers, ASK_AGAIN),
        None => NoRoute::NotFound.into(),
    }
}

/// One of the page's files, by its whole path.
pub(super) fn asset(path: &str, headers: &HeaderMap) -> Reply {
    let named = path.strip_prefix(PREFIX).and_then(|rest| rest.split_once('/'));
    let found = named.and_then(|(set, path)| {
        let known = ASSETS.iter().find(|asset| asset.path == path && path != INDEX);
        known.filter(|_| set == SET)
    });
    match found {
        Some(asset) => serve(asset, headers, FOR_EVER),
        None => NoRoute::NotFound.into(),
    }
}

fn serve(asset: &Asset, headers: &HeaderMap, keep: &'static str) -> Reply {
    let tag = format!("\"{SET}\"");
    if !takes_gzip(headers) {
        let why = "the page is kept compressed: accept gzip";
        return reply::text(StatusCode::NOT_ACCEPTABLE, why);
    }
    let mut answer = if is_known(headers, &tag) {
        reply::unchanged()
    } else {
        reply::bytes(asset.content_type, Bytes::from_static(asset.gzip))
    };
    let fields = answer.headers_mut();
    fields.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    fields.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    // Hexadecimal digits in quotes are always a header value.
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        fields.insert(ETAG, tag);
    }
    if answer.status() == StatusCode::OK {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

/// Whether the client has what it asks for, as `If-None-Match` says it.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.flat_map(|value| value.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    })
}

/// Whether gzip may be sent: yes unless `Accept-Encoding` leaves it out or gives it no weight.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let mut any = None;
    for value in headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()) {
        for coding in value.split(',') {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
            let taken = weight.is_ok_and(|weight| weight > 0.0);
            match name.trim() {
                name if name.eq_ignore_ascii_case("gzip") => return taken,
                "*" => any = Some(taken),
                _ => any = any.or(Some(false)),
            }
        }
    }
    any.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(hyper::header::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn header<'a>(reply: &'a Reply, name: &hyper::header::HeaderName) -> &'a str {
        reply.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// What all files weigh as they travel: read once by a phone in a garden. The charts' library
    /// is more than a quarter of it, and only a page that shows a chart reads it.
    const BYTES_MAX: usize = 160 * 1024;

    #[test]
    fn all_files_together_are_light() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes, at most {BYTES_MAX}");
        assert!(bytes > 20 * 1024, "the page is there: {bytes} bytes");
    }

    #[test]
    fn a_browser_gets_the_page_and_a_program_the_welcome() {
        let table = [
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("application/json, TEXT/HTML;q=0.5", true),
            ("*/*", false),
            ("application/json", false),
            ("text/htmlx", false),
        ];
        for (accept, page) in table {
            assert_eq!(wants_page(&headers(&[(ACCEPT, accept)])), page, "{accept}");
        }
        assert!(!wants_page(&HeaderMap::new()));
    }

    #[test]
    fn gzip_is_sent_unless_it_is_refused() {
        let table = [
            ("gzip, deflate, br, zstd", true),
            ("br, GZIP;q=0.2", true),
            ("*", true),
            ("br, *;q=0.1", true),
            ("identity", false),
            ("br", false),
            ("gzip;q=0, *", false),
            ("*;q=0", false),
            ("gzip;q=x", false),
        ];
        for (accept, taken) in table {
            let asked = headers(&[(ACCEPT_ENCODING, accept)]);
            assert_eq!(takes_gzip(&asked), taken, "{accept}");
            let expected = if taken { StatusCode::OK } else { StatusCode::NOT_ACCEPTABLE };
            assert_eq!(page(&asked).status(), expected, "{accept}");
        }
        assert!(takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn the_page_is_asked_for_again_and_its_files_are_kept_for_ever() {
        let reply = page(&HeaderMap::new());
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(header(&reply, &CACHE_CONTROL), "no-cache");
        assert_eq!(header(&reply, &CONTENT_ENCODING), "gzip");
        let tag = header(&reply, &ETAG).to_owned();
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
            let again = page(&headers(&[(IF_NONE_MATCH, &known)]));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(header(&again, &ETAG), tag);
        }
        let other = page(&headers(&[(IF_NONE_MATCH, "\"x\"")]));
        assert_eq!(other.status(), StatusCode::OK);
        let style = asset(&format!("{PREFIX}{SET}/style.css"), &HeaderMap::new());
        assert_eq!(style.status(), StatusCode::OK);
        assert!(header(&style, &CACHE_CONTROL).contains("immutable"));
    }

    #[test]
    fn what_is_no_file_of_this_page_is_not_found() {
        for path in [
            "/assets/",
            "/assets/style.css",
            "/assets/0000000000000000/style.css",
            &format!("{PREFIX}{SET}/"),
            &format!("{PREFIX}{SET}/index.html"),
            &format!("{PREFIX}{SET}/vendor/LIBRARIES.md"),
            &format!("{PREFIX}{SET}/../{SET}/style.css"),
            &format!("{PREFIX}{SET}/style.css/"),
        ] {
            let reply = asset(path, &HeaderMap::new());
            assert_eq!(reply.status(), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn the_page_runs_nothing_but_its_own_files() {
        let policy = header(&page(&HeaderMap::new()), &CONTENT_SECURITY_POLICY).to_owned();
        assert!(policy.starts_with("default-src 'none'"));
        for open in ["unsafe", "http:", "https:", "data:", "*"] {
            assert!(!policy.contains(open), "{open} in {policy}");
        }
        let text = include_str!("assets/index.html");
        for inline in ["style=", "<style", " onclick", " onload", "javascript:"] {
            assert!(!text.contains(inline), "{inline}");
        }
        for script in text.split("<script").skip(1) {
            assert!(script.contains("src=\"/assets/") && script.contains("></script>"));
        }
    }
}
