//! The HTTP client: the only file that names reqwest.
//!
//! Model servers of this kind are fragile about connections: a restarted one leaves stale sockets,
//! hailo-ollama refuses heads beyond 4 KiB and listens on IPv4 only. So every request opens its
//! own connection, carries the fewest headers, follows no redirect and asks no proxy.
//!
//! # Absences
//! - No time limits but the one on connecting: who sends knows how long which phase may take.
//! - No TLS state until the first `https://` request; certificates are megabytes of heap.

use std::error::Error as StdError;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RANGE, RETRY_AFTER,
};
use reqwest::{Client, ClientBuilder, Url};

use super::{Http, HttpError, HttpRequest, HttpResponse, Method, shown};

/// Clients kept, one for each bound on connecting. The configuration knows a handful of bounds; a
/// caller with more pays for building the client each time.
const CLIENTS_MAX: usize = 8;

/// Longest text of an error kept for the log, in characters: causes, not whole pages.
const ERROR_CHARS_MAX: usize = 300;

/// Sends requests over TCP, one connection for each.
#[derive(Debug, Default)]
pub struct ReqwestHttp {
    clients: Mutex<Vec<(Kind, Client)>>,
}

/// What distinguishes one client from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    tls: bool,
    connect_timeout: Duration,
}

// === impl ReqwestHttp ===

impl ReqwestHttp {
    /// A client without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn client(&self, kind: Kind) -> Result<Client, HttpError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(known, _)| *known == kind) {
            return Ok(client.clone());
        }
        let client = with_tls(bare(kind.connect_timeout), kind.tls)?
            .build()
            .map_err(|error| HttpError::Unsendable(chain(&error)))?;
        if clients.len() < CLIENTS_MAX {
            clients.push((kind, client.clone()));
        }
        Ok(client)
    }

    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let url = target(&request.url)?;
        let tls = url.scheme() == "https";
        let client = self.client(Kind { tls, connect_timeout: request.connect_timeout })?;
        let method = match request.method {
            Method::Get | Method::GetFrom(_) => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut call = client.request(method, url);
        if let Method::GetFrom(bytes) = request.method {
            call = call.header(
                RANGE,
                HeaderValue::from_str(&format!("bytes={bytes}-"))
                    .map_err(|_| HttpError::Unsendable("no such range".into()))?,
            );
        }
        if let Some(token) = &request.bearer {
            call = call.header(AUTHORIZATION, bearer(token)?);
        }
        if let Some(body) = request.body {
            call = call.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            call = call.body(body);
        }
        let response = call.send().await.map_err(|error| before_head(&error))?;
        Ok(HttpResponse {
            status: response.status().as_u16(),
            content_type: content_type(response.headers()),
            retry_after: retry_after(response.headers()),
            location: response
                .headers()
                .get(LOCATION)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
            length: response.content_length(),
            body: response
                .bytes_stream()
                .map(|piece| piece.map(Vec::from).map_err(|error| inside_body(&error)))
                .boxed(),
        })
    }
}

impl Http for ReqwestHttp {
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        Box::pin(self.exchange(request))
    }
}

// === building ===

#[expect(clippy::disallowed_methods, reason = "the one place that builds clients")]
fn bare(connect_timeout: Duration) -> ClientBuilder {
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .pool_max_idle_per_host(0)
        .tcp_nodelay(true)
        .http1_only()
        .connect_timeout(connect_timeout)
}

/// Hands rustls its provider and roots explicitly: nothing is installed for the whole process, so
/// nobody can be first. A client for plain HTTP gets an empty store, because reqwest would load
/// the system's certificates otherwise.
#[cfg(feature = "tls")]
fn with_tls(builder: ClientBuilder, tls: bool) -> Result<ClientBuilder, HttpError> {
    use std::sync::Arc;

    use rustls::{ClientConfig, RootCertStore};
    use rustls_platform_verifier::Verifier;

    let unusable = |error: rustls::Error| HttpError::Unsendable(format!("no TLS: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let mut config = if tls {
        let verifier = Verifier::new(provider).map_err(unusable)?;
        config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    } else {
        config.with_root_certificates(RootCertStore::empty())
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(builder.tls_backend_preconfigured(config))
}

#[cfg(not(feature = "tls"))]
fn with_tls(builder: ClientBuilder, _tls: bool) -> Result<ClientBuilder, HttpError> {
    Ok(builder)
}

/// The URL to send to. `localhost` becomes 127.0.0.1: hailo-ollama listens on IPv4 only, Ollama
/// refuses other names in `Host`, and a resolver may put ::1 first or need the network.
fn target(url: &str) -> Result<Url, HttpError> {
    let unsendable = |why: &str| HttpError::Unsendable(format!("{why} in {:?}", shown(url)));
    let mut parsed = Url::parse(url).map_err(|error| unsendable(&error.to_string()))?;
    match parsed.scheme() {
        "http" => {}
        "https" if cfg!(feature = "tls") => {}
        "https" => return Err(unsendable("TLS is not built in")),
        _ => return Err(unsendable("neither http nor https")),
    }
    if parsed.host_str() == Some("localhost") && parsed.set_host(Some("127.0.0.1")).is_err() {
        return Err(unsendable("no host"));
    }
    Ok(parsed)
}

fn bearer(token: &str) -> Result<HeaderValue, HttpError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
        HttpError::Unsendable("the API key has characters no header can hold".into())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

// === reading ===

fn content_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim().to_ascii_lowercase())
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn before_head(error: &reqwest::Error) -> HttpError {
    let detail = chain(error);
    if error.is_builder() {
        HttpError::Unsendable(detail)
    } else if error.is_connect() {
        HttpError::Refused(refusal(error))
    } else if cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse) {
        HttpError::Malformed(detail)
    } else {
        HttpError::NoAnswer(detail)
    }
}

/// hyper reports a bad chunk size as an I/O error of a kind that sockets never report.
fn inside_body(error: &reqwest::Error) -> HttpError {
    let detail = chain(error);
    let malformed = cause::<io::Error>(error).is_some_and(|error| {
        matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
    });
    if malformed { HttpError::Malformed(detail) } else { HttpError::Cut(detail) }
}

/// The first error of type `E` among an error's causes.
fn cause<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Why there is no connection, as the innermost cause has it: people read this.
fn refusal(error: &reqwest::Error) -> String {
    let kind = cause::<io::Error>(error).map(io::Error::kind);
    if kind == Some(io::ErrorKind::ConnectionRefused) {
        return "nobody listens there".to_owned();
    }
    let mut innermost: &dyn StdError = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string().chars().take(ERROR_CHARS_MAX).collect()
}

/// An error with its causes in one line; the outer ones alone say only that something failed.
fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next = error.source();
    while let Some(error) = next {
        let part = error.to_string();
        if !text.ends_with(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        next = error.source();
    }
    if text.is_empty() {
        text = error.to_string();
    }
    text.chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
