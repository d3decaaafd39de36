//! `--voice URL`: the words come from a real model, wire and pace stay simulated.
//!
//! The server behind the URL is asked once what it is: Ollama says so on `/`; anything else is
//! taken for OpenAI-compatible. The whole answer is fetched first and then cut into the
//! simulator's tokens, so that the real model's speed does not show. `http://` only.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::OnceLock,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Longest wait for the connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Longest silence of the real model: a cold start on a slow machine.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// Largest answer read.
const ANSWER_BOUND: u64 = 4 * 1024 * 1024;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text.
    pub content: String,
}

/// A real model to speak with.
#[derive(Debug)]
pub struct Voice {
    host: String,
    base: String,
    dialect: OnceLock<Dialect>,
}

#[derive(Clone, Debug)]
struct Dialect {
    path: String,
    model: String,
    ollama: bool,
}

impl Voice {
    /// A voice behind `http://host[:port][/path]`. A final `/v1` is understood.
    ///
    /// # Errors
    /// When the URL is not plain HTTP.
    pub fn new(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").ok_or(format!("{url}: only http:// is spoken"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.is_empty() || authority.contains('@') {
            return Err(format!("{url}: no host"));
        }
        let host =
            if authority.contains(':') { authority.into() } else { format!("{authority}:80") };
        let path = path.trim_end_matches('/').trim_end_matches("v1").trim_end_matches('/');
        let base = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { host, base, dialect: OnceLock::new() })
    }

    /// The model's whole answer to a conversation, at most about `limit` tokens.
    ///
    /// # Errors
    /// Why there is none, in words for the log.
    pub fn answer(&self, messages: &[Said], limit: u32) -> Result<String, String> {
        let dialect = match self.dialect.get() {
            Some(known) => known,
            None => {
                let found = self.probe()?;
                self.dialect.get_or_init(|| found)
            }
        };
        let mut body = json!({"model": dialect.model, "messages": messages, "stream": true});
        if dialect.ollama {
            body["options"] = json!({"num_predict": limit});
        } else {
            body["max_tokens"] = json!(limit);
        }
        let (status, answer) = self.call("POST", &dialect.path, &body.to_string())?;
        if status != 200 {
            return Err(format!("status {status}"));
        }
        let text = collect(&answer)?;
        if text.trim().is_empty() { Err("an empty answer".into()) } else { Ok(text) }
    }

    fn probe(&self) -> Result<Dialect, String> {
        let ollama =
            self.call("GET", "/", "").is_ok_and(|(_, body)| body.contains("Ollama is running"));
        let (list, names, path) = if ollama {
            ("/api/tags", ["/models", "name"], "/api/chat")
        } else {
            ("/v1/models", ["/data", "id"], "/v1/chat/completions")
        };
        let (_, body) = self.call("GET", list, "")?;
        let value: Value = serde_json::from_str(&body).unwrap_or_default();
        let model = value
            .pointer(names[0])
            .and_then(|models| models.get(0)?.get(names[1])?.as_str())
            .map(str::to_owned);
        if ollama && model.is_none() {
            return Err("no model is installed there".into());
        }
        Ok(Dialect { path: path.into(), model: model.unwrap_or("default".into()), ollama })
    }

    /// One request on a connection of its own; the body as text.
    fn call(&self, method: &str, path: &str, body: &str) -> Result<(u16, String), String> {
        let said = |error: io::Error| format!("{}: {error}", self.host);
        let mut addresses = self.host.to_socket_addrs().map_err(said)?;
        let address = addresses.next().ok_or(format!("{}: no address", self.host))?;
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(said)?;
        stream.set_read_timeout(Some(SILENCE_LIMIT)).map_err(said)?;
        let request = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.base,
            self.host,
            body.len()
        );
        stream.write_all(request.as_bytes()).map_err(said)?;
        let mut bytes = Vec::new();
        stream.take(ANSWER_BOUND).read_to_end(&mut bytes).map_err(said)?;
        parse(&bytes).ok_or(format!("{}: no HTTP answer", self.host))
    }
}

/// Status and body of a complete HTTP/1.1 answer.
fn parse(bytes: &[u8]) -> Option<(u16, String)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = &bytes[end + 4..];
    let chunked =
        head.lines().any(|l| l.starts_with("transfer-encoding:") && l.contains("chunked"));
    let body = if chunked { join_chunks(body) } else { body.to_vec() };
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

/// The chunks that are complete; a cut body gives what came.
fn join_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = String::from_utf8_lossy(&rest[..end]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else { break };
        let Some(chunk) = rest.get(end + 2..(end + 2).saturating_add(size)) else { break };
        if size == 0 {
            break;
        }
        body.extend_from_slice(chunk);
        rest = rest.get(end + 2 + size + 2..).unwrap_or_default();
    }
    body
}

/// Joins the text of all lines, whichever dialect they are in.
fn collect(body: &str) -> Result<String, String> {
    let mut text = String::new();
    for line in body.lines() {
        let line = line.strip_prefix("data:").unwrap_or(line).trim();
        if line.is_empty() || line == "[DONE]" {
            continue;
        }
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(error) = value.get("error") {
            return Err(error.to_string());
        }
        let places = ["/message/content", "/choices/0/delta/content", "/choices/0/message/content"];
        for place in places {
            text.push_str(value.pointer(place).and_then(Value::as_str).unwrap_or_default());
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::server::Server;
    use std::sync::Arc;

    #[test]
    fn urls_are_plain_http_with_or_without_the_version() {
        for (url, host, base) in [
            ("http://127.0.0.1:11434", "127.0.0.1:11434", ""),
            ("http://box/v1/", "box:80", ""),
            ("http://box:1/proxy/v1", "box:1", "/proxy"),
        ] {
            let voice = Voice::new(url).unwrap();
            assert_eq!((voice.host.as_str(), voice.base.as_str()), (host, base), "{url}");
        }
        assert!(Voice::new("https://box").is_err());
        assert!(Voice::new("http://").is_err());
    }

    /// A server that answers by path, each answer in one chunk of a chunked body.
    fn serving(routes: &'static [(&'static str, &'static str)]) -> Server {
        Server::start(
            0,
            Arc::new(move |mut conn| {
                let head = conn.read_head(4096).unwrap();
                conn.read_body(&head).unwrap();
                let found = routes.iter().find(|(path, _)| *path == head.path);
                let (status, body) = found.map_or((404, "none"), |(_, body)| (200, *body));
                conn.write_head(status, "-", &[("Transfer-Encoding", "chunked")]).unwrap();
                conn.write_chunk(body.as_bytes()).unwrap();
                conn.write_last_chunk().unwrap();
                conn.close();
            }),
        )
        .unwrap()
    }

    fn hello() -> Vec<Said> {
        vec![Said { role: "user".into(), content: "hello".into() }]
    }

    #[test]
    fn ollama_is_recognised_and_its_lines_are_joined() {
        let server = serving(&[
            ("/", "Ollama is running"),
            ("/api/tags", r#"{"models":[{"name":"tiny"}]}"#),
            (
                "/api/chat",
                "{\"message\":{\"content\":\"Good \"}}\n\
                 {\"message\":{\"content\":\"day.\"},\"done\":true}\n",
            ),
        ]);
        let voice = Voice::new(&format!("http://{}", server.addr())).unwrap();
        assert_eq!(voice.answer(&hello(), 9).unwrap(), "Good day.");
    }

    #[test]
    fn anything_else_is_spoken_to_as_openai() {
        let server = serving(&[
            ("/v1/models", r#"{"data":[{"id":"tiny"}]}"#),
            (
                "/v1/chat/completions",
                "data: {\"choices\":[{\"delta\":{\"content\":\"Good \"}}]}\n\n\
                 data: {\"choices\":[{\"delta\":{\"content\":\"day.\"}}]}\n\ndata: [DONE]\n\n",
            ),
        ]);
        let voice = Voice::new(&format!("http://{}/v1", server.addr())).unwrap();
        assert_eq!(voice.answer(&hello(), 9).unwrap(), "Good day.");
    }

    #[test]
    fn a_silent_place_is_an_error_in_words() {
        let server = serving(&[]);
        let voice = Voice::new(&format!("http://{}", server.addr())).unwrap();
        assert_eq!(voice.answer(&hello(), 9), Err("status 404".into()));
        let address = server.addr();
        drop(server);
        assert!(Voice::new(&format!("http://{address}")).unwrap().answer(&hello(), 9).is_err());
    }
}
