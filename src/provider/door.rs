//! One server as a backend reaches it: base URL, credentials and bounds, short calls, and what a
//! failed connection means.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::backend::ChatRequest;
use super::fault::{Class, Fault, Phase};
use super::parse::{Dialect, detail, error_line, parse_json, refusal, stated_error};
use crate::limits::SERVER_BODY_BYTES_MAX;
use crate::net::{Http, HttpBody, HttpError, HttpRequest, HttpResponse, Method, shown};

/// How to reach a server. Cheap to clone; prints without its credentials.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) http: Arc<dyn Http>,
    /// Without a slash at its end.
    pub(crate) base: String,
    pub(crate) bearer: Option<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) dialect: Dialect,
}

/// A model's exact name on its server, once it was found.
#[derive(Debug, Default)]
pub(crate) struct Resolved(Mutex<Option<String>>);

/// One model in `/api/tags`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) name: String,
    /// `details.format` is `hef`: only hailo-ollama has such models.
    pub(crate) hef: bool,
}

/// A short answer, whole.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) text: String,
}

// === impl Door (printing) ===

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("base", &shown(&self.base)).finish_non_exhaustive()
    }
}

// === impl Resolved ===

impl Resolved {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, name: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }
}

// === impl Door ===

impl Door {
    pub(crate) fn request(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> HttpRequest {
        HttpRequest {
            method,
            url: format!("{}{path}", self.base),
            body,
            bearer: self.bearer.clone(),
            connect_timeout: self.connect_timeout,
        }
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let rest = self.base.split_once("://").map_or(self.base.as_str(), |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default();
        let host = match authority.strip_prefix('[') {
            Some(inside) => inside.split(']').next(),
            None => authority.split(':').next(),
        };
        let address = host.and_then(|host| host.parse::<IpAddr>().ok());
        host == Some("localhost") || address.is_some_and(|address| address.is_loopback())
    }

    /// Sends a prompt. The future does nothing until it is polled.
    pub(crate) fn open<B: Serialize>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<BoxFuture<'static, Result<HttpResponse, HttpError>>, Fault> {
        let request = self.request(Method::Post, path, Some(json(body)?));
        let http = Arc::clone(&self.http);
        Ok(Box::pin(async move { http.send(request).await }))
    }

    /// A short call: its whole answer within `limit`, whatever its status.
    pub(crate) async fn fetch(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        limit: Duration,
    ) -> Result<Reply, Fault> {
        let deadline = Instant::now() + limit;
        let late = || {
            let text = format!("{path} did not answer within {limit:?}");
            Fault::new(Class::Wedged, Phase::Head, text)
        };
        let sending = self.http.send(self.request(method, path, body));
        let response = timeout_at(deadline, sending)
            .await
            .map_err(|_| late())?
            .map_err(|error| unanswered(&error))?;
        let (status, retry_after) = (response.status, response.retry_after);
        let text = timeout_at(deadline, collect(response.body)).await.map_err(|_| late())??;
        Ok(Reply { status, retry_after, text })
    }

    /// A short call whose answer is JSON; errors in any form become faults.
    pub(crate) async fn fetch_json(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        limit: Duration,
    ) -> Result<Value, Fault> {
        let reply = self.fetch(method, path, body, limit).await?;
        reply.json(self.dialect)
    }

    /// A load or unload: one JSON object, or a stream of them from a proxy that generates instead.
    pub(crate) async fn command<B: Serialize>(
        &self,
        path: &str,
        body: &B,
        limit: Duration,
    ) -> Result<(), Fault> {
        let reply = self.fetch(Method::Post, path, Some(json(body)?), limit).await?;
        let (status, text) = (reply.status, reply.text.as_str());
        let parts: Vec<&str> = if (200..300).contains(&status) && parse_json(text).is_err() {
            text.lines().filter(|line| !line.trim().is_empty()).collect()
        } else {
            vec![text]
        };
        if parts.is_empty() {
            let text = format!("{path} answered {status} with nothing");
            return Err(Fault::new(Class::ServerError, Phase::Head, text));
        }
        for part in parts {
            read_json(self.dialect, status, reply.retry_after, part)?;
        }
        Ok(())
    }

    /// The models of a server that speaks Ollama's dialect.
    pub(crate) async fn tags(&self, limit: Duration) -> Result<Vec<Tag>, Fault> {
        let value = self.fetch_json(Method::Get, "/api/tags", None, limit).await?;
        let models = value.get("models").and_then(Value::as_array);
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let tag = |model: &Value| {
            let name = text(model.get("name")).or_else(|| text(model.get("model")))?;
            let format = model.get("details").and_then(|details| details.get("format"));
            Some(Tag { name, hef: format.and_then(Value::as_str) == Some("hef") })
        };
        match models {
            Some(models) => Ok(models.iter().filter_map(tag).collect()),
            None => {
                let text = format!("{} does not list models", shown(&self.base));
                Err(Fault::new(Class::ServerError, Phase::Head, text))
            }
        }
    }

    /// The fault of a model that is not there, for the operator.
    pub(crate) fn missing(&self, model: &str, offered: &[String]) -> Fault {
        let offers = match offered {
            [] => "no model at all".to_owned(),
            names => names.join(", "),
        };
        let text = format!("{} has no {model}; it offers {offers}", shown(&self.base));
        Fault::new(Class::ModelMissing, Phase::Head, detail(&text))
    }

    /// The fault of another program answering at this address.
    pub(crate) fn foreign(&self, wanted: &str, found: &str) -> Fault {
        let text = format!("{} answers as {found}, not as {wanted}", shown(&self.base));
        Fault::new(Class::ServerError, Phase::Head, detail(&text))
    }
}

impl Reply {
    /// Whether it is a page for people, as other programs answer to any path.
    pub(crate) fn is_page(&self) -> bool {
        self.text.trim_start().starts_with('<')
    }

    pub(crate) fn json(&self, dialect: Dialect) -> Result<Value, Fault> {
        read_json(dialect, self.status, self.retry_after, &self.text)
    }
}

fn read_json(
    dialect: Dialect,
    status: u16,
    retry_after: Option<Duration>,
    text: &str,
) -> Result<Value, Fault> {
    if !(200..300).contains(&status) {
        return Err(refusal(dialect, status, retry_after, text));
    }
    let value = parse_json(text).map_err(|error| {
        let text = format!("not JSON ({error}): {text}");
        Fault::new(Class::ServerError, Phase::Head, detail(&text))
    })?;
    match stated_error(&value) {
        Some(error) => Err(error_line(dialect, &error, Phase::Head)),
        None => Ok(value),
    }
}

/// JSON bytes of a body.
pub(crate) fn json<B: Serialize>(body: &B) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(body)
        .map_err(|error| Fault::new(Class::OurBug, Phase::Connect, error.to_string()))
}

/// The fault behind a request that got no head.
pub(crate) fn unanswered(error: &HttpError) -> Fault {
    let (class, phase) = match error {
        HttpError::Refused(_) => (Class::Down, Phase::Connect),
        HttpError::NoAnswer(_) | HttpError::Cut(_) => (Class::Crashed, Phase::Head),
        HttpError::Malformed(_) => (Class::ServerError, Phase::Head),
        HttpError::Unsendable(_) => (Class::OurBug, Phase::Connect),
    };
    Fault::new(class, phase, detail(&error.to_string()))
}

/// A whole body within its bound, as text.
pub(crate) async fn collect(mut body: HttpBody) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        // What came before a cut still says what is wrong.
        let Ok(piece) = piece else { break };
        if bytes.len() + piece.len() > SERVER_BODY_BYTES_MAX {
            let text = format!("a body longer than {SERVER_BODY_BYTES_MAX} bytes");
            return Err(Fault::new(Class::ServerError, Phase::Head, text));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Refuses a prompt that no server may see: the budget's proof, asserted once more at the door.
pub(crate) fn check(request: &ChatRequest, context_tokens: u32) -> Result<(), Fault> {
    let bug = |text: String| Err(Fault::new(Class::OurBug, Phase::Connect, text));
    let total = request.prompt_tokens.saturating_add(request.num_predict);
    if request.messages.is_empty() {
        bug("a prompt without messages".into())
    } else if request.num_predict == 0 {
        bug("a prompt for no tokens".into())
    } else if total > context_tokens {
        bug(format!("{total} tokens for a context of {context_tokens}"))
    } else {
        Ok(())
    }
}
