//! From bytes to a route and back: reading requests, the routes that take no lock, error bodies.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use super::{
    dto::{self, Mismatch},
    engine::{Life, Sim},
    generation, prompt, pull,
    reply::{Shape, error, text_error},
};
use crate::{
    model::Release,
    sim::{
        clock::stamp,
        forbidden::{self, Rules},
        log::{End, Event, fingerprint},
        presence::Inside,
        tokens,
        voice::Said,
        wire::{Conn, Head, ReadError},
    },
};

/// Largest request head the server reads.
const HEAD_BOUND: usize = 4096;
/// What the server says when a handler threw, after the cause.
const PROCESSING: &str = "Error processing request";
const NO_MAPPER: &str = "No suitable mapper found to deserialize the request body";

/// What becomes of the connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It waits for the next request.
    Keep,
    /// It is closed with FIN.
    Close,
    /// It has ended already.
    Ended,
}

/// One request on its connection.
pub(super) struct Exchange<'a> {
    pub(super) sim: &'a Arc<Sim>,
    pub(super) life: &'a Life,
    pub(super) conn: &'a mut Conn,
    /// Its number.
    pub(super) id: u64,
    /// Simulated time at which it was read.
    pub(super) start: Duration,
    /// A generation that is inside. It leaves *before* its last bytes are written: a client that
    /// has read them may send its next request at once.
    pub(super) inside: Option<Inside>,
}

/// The thread of one connection.
pub(super) fn serve(sim: &Arc<Sim>, mut conn: Conn) {
    let life = sim.life(conn.halt());
    loop {
        let head = match conn.read_head(HEAD_BOUND) {
            Ok(head) => head,
            Err(ReadError::TooLarge) => return refuse(conn, "Headers are too large"),
            Err(ReadError::Malformed(what)) => return refuse(conn, what),
            Err(ReadError::Closed | ReadError::Io(_)) => return,
        };
        let body = match conn.read_body(&head) {
            Ok(body) => body,
            Err(ReadError::TooLarge | ReadError::Malformed(_)) => return refuse(conn, "Body"),
            Err(ReadError::Closed | ReadError::Io(_)) => return,
        };
        let id = sim.next_request();
        sim.presence.count(|counters| counters.requests += 1);
        let start = sim.clock.now();
        let mut exchange = Exchange { sim, life: &life, conn: &mut conn, id, start, inside: None };
        match exchange.route(&head, &body) {
            After::Keep if !head.wants_close() => {}
            After::Keep | After::Close => return conn.close(),
            After::Ended => return,
        }
    }
}

fn refuse(mut conn: Conn, cause: &str) {
    let body = text_error(400, "Bad Request", &[cause]);
    let headers = [("Server", "oatpp/1.4.0"), ("Connection", "close")];
    let _ = conn.write_answer(400, "Bad Request", &headers, body.as_bytes());
    conn.close();
}

impl Exchange<'_> {
    fn route(&mut self, head: &Head, body: &[u8]) -> After {
        self.see(head, body);
        match (head.method.as_str(), head.path.as_str()) {
            ("GET", "/") => self.answer(200, None, "hailo-ollama is running"),
            ("GET", "/api/version") => self.json(200, r#"{"version":"0.5.1"}"#),
            ("GET", "/hailo/v1/list") => self.json(200, &self.sim.store.list()),
            ("GET", "/api/tags") => self.json(200, &self.sim.store.tags()),
            ("GET", "/api/ps") => self.ps(),
            (method @ ("POST" | "DELETE"), path) if known(method, path) => {
                let kind = head.header("content-type").unwrap_or("application/json");
                let kind = kind.split(';').next().unwrap_or_default().trim();
                if kind.eq_ignore_ascii_case("application/json") {
                    self.with_body(path, body)
                } else {
                    self.failed(&[NO_MAPPER])
                }
            }
            (method, path) => {
                let cause = format!("No mapping for HTTP-method: '{method}', URL: '{path}'");
                self.text(404, "Not Found", &[&cause])
            }
        }
    }

    fn with_body(&mut self, path: &str, body: &[u8]) -> After {
        let release = self.sim.release;
        let done = match path {
            "/api/chat" => {
                dto::chat(body, release).map(|request| generation::run(self, request, Shape::Chat))
            }
            "/api/generate" => dto::generate(body, release)
                .map(|request| generation::run(self, request, Shape::Generate)),
            "/v1/chat/completions" => {
                dto::openai(body).map(|request| super::openai::run(self, request))
            }
            "/api/pull" => dto::named(body).map(|(name, stream)| pull::run(self, &name, stream)),
            "/api/show" => dto::named(body).map(|(name, _)| self.show(&name)),
            _ => dto::named(body).map(|(name, _)| self.delete(&name)),
        };
        done.unwrap_or_else(|Mismatch(field)| {
            let what = format!("body does not fit at {field}");
            self.sim.log.add(self.id, Event::Note { what });
            self.failed(&["Failed to deserialize the request body"])
        })
    }

    /// Writes the request into the log and counts what it must not have.
    fn see(&self, head: &Head, body: &[u8]) {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = value.get("model").and_then(Value::as_str);
        let messages: Option<Vec<Said>> =
            value.get("messages").and_then(|list| serde_json::from_value(list.clone()).ok());
        let rendered = name
            .and_then(|name| self.sim.store.manifest(name))
            .zip(messages.as_ref())
            .and_then(|(model, messages)| prompt::render(model, messages));
        self.sim.log.add(
            self.id,
            Event::Seen {
                route: format!("{} {}", head.method, head.path),
                body_hash: fingerprint(body),
                model: name.map(str::to_owned),
                messages: messages.as_ref().map(Vec::len),
                prompt_tokens: rendered.map_or(0, |text| tokens::count(&text)),
                num_predict: value.pointer("/options/num_predict").and_then(Value::as_i64),
            },
        );
        if self.sim.options.strict && matches!(head.path.as_str(), "/api/chat" | "/api/generate") {
            for field in forbidden::found(&value, Rules::Hailo) {
                self.sim.log.add(self.id, Event::Forbidden { field: field.into() });
                self.sim.presence.count(|counters| {
                    *counters.forbidden.entry(field.into()).or_default() += 1;
                });
            }
        }
    }

    /// Waits for the server's lock. False: the life ended before.
    pub(super) fn take_lock(&mut self) -> bool {
        let halt = self.conn.halt().clone();
        // A connection has one request at a time, and its number is never used again.
        let holder = self.conn.id();
        if !self.life.lock.try_take(holder) {
            self.sim.log.add(self.id, Event::LockWait);
            if !self.life.lock.take(holder, &halt) {
                return false;
            }
        }
        let now = self.sim.clock.now();
        let waited = now.saturating_sub(self.start);
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let ghost = self.conn.peer_gone();
        self.sim.log.add(self.id, Event::LockTaken { waited_ms, ghost });
        if self.life.npu(|npu| npu.expire(now)) {
            self.sim.log.add(self.id, Event::Unloaded { why: "expired".into() });
        }
        true
    }

    pub(super) fn free_lock(&mut self) {
        self.sim.log.add(self.id, Event::LockFreed);
        self.life.lock.free();
    }

    fn ps(&mut self) -> After {
        self.sim.count_ps_while_busy();
        if !self.take_lock() {
            return After::Ended;
        }
        let now = self.sim.clock.now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let loaded = self.life.npu(|npu| {
            let end = match npu.expires {
                Some(at) => stamp(wall + at.saturating_sub(now)),
                // "For ever" is a negative duration added to a clock: a date without sense.
                None => "1754-08-30T22:43:41.128654848Z".into(),
            };
            npu.path.map(|name| (name, end))
        });
        let after = self.json(200, &self.sim.store.ps(loaded));
        self.free_lock();
        after
    }

    fn show(&mut self, name: &str) -> After {
        match self.sim.store.model(name) {
            Some(model) => self.json(200, &self.sim.store.show(model)),
            None => self.not_found(name),
        }
    }

    fn delete(&mut self, name: &str) -> After {
        if self.sim.store.delete(name) {
            self.answer(200, None, "")
        } else {
            self.json(404, r#"{"code":"not_found","error":"model not found"}"#)
        }
    }

    /// `model 'x' not found`: 200 in 5.1.1, 404 later.
    pub(super) fn not_found(&mut self, name: &str) -> After {
        self.refused(404, &format!("model '{name}' not found"))
    }

    /// An error in JSON, which 5.1.1 sends with status 200.
    pub(super) fn refused(&mut self, status: u16, text: &str) -> After {
        let status = if self.sim.release == Release::V5_1_1 { 200 } else { status };
        self.json(status, &error(text))
    }

    /// 500 in the text form, after which the connection is closed.
    pub(super) fn failed(&mut self, causes: &[&str]) -> After {
        let mut all = causes.to_vec();
        all.push(PROCESSING);
        self.text(500, "Internal Server Error", &all)
    }

    /// An error in the text form, after which the connection is closed.
    pub(super) fn text(&mut self, status: u16, reason: &str, causes: &[&str]) -> After {
        let body = text_error(status, reason, causes);
        let headers = [("Server", "oatpp/1.4.0"), ("Connection", "close")];
        self.inside = None;
        let sent = self.conn.write_answer(status, reason, &headers, body.as_bytes());
        self.ended(status, sent.is_ok(), 0);
        After::Close
    }

    pub(super) fn json(&mut self, status: u16, body: &str) -> After {
        self.answer(status, Some("application/json"), body)
    }

    fn answer(&mut self, status: u16, kind: Option<&str>, body: &str) -> After {
        let mut headers = vec![("Connection", "keep-alive"), ("Server", "oatpp/1.4.0")];
        headers.extend(kind.map(|kind| ("Content-Type", kind)));
        self.inside = None;
        let sent = self.conn.write_answer(status, reason(status), &headers, body.as_bytes());
        self.ended(status, sent.is_ok(), 0);
        if sent.is_ok() { After::Keep } else { After::Ended }
    }

    fn ended(&self, status: u16, reached: bool, sent: u32) {
        self.sim.log.add(self.id, Event::HeadSent { status });
        let end = match (reached, status) {
            (false, _) => End::Gone,
            (true, 200..=299) => End::Done,
            (true, _) => End::Error,
        };
        self.sim.log.add(self.id, Event::Ended { end, sent });
    }
}

fn known(method: &str, path: &str) -> bool {
    match method {
        "DELETE" => path == "/api/delete",
        _ => matches!(
            path,
            "/api/chat" | "/api/generate" | "/v1/chat/completions" | "/api/pull" | "/api/show"
        ),
    }
}

/// The words beside the statuses in use.
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
