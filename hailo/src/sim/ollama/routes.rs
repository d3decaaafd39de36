//! Connections and routes: gin's habits, the Host check, and every call that needs no runner.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use serde_json::Value;

use super::{
    answers,
    answers::{End, Metrics, Part},
    engine::Sim,
    life::{self, Accepted, After},
    out::{self, Out},
    prompt,
    request::{self, Endpoint, Refusal, Request},
};
use crate::sim::{
    log::{self, Event, fingerprint},
    server::lock,
    wire::{Conn, Head, ReadError},
};

/// Go's default bound of a request head.
const HEAD_BYTES_MAX: usize = 1024 * 1024;

/// What embeddings answer: none of the models can.
const NO_EMBEDDINGS: &str = "this model does not support embeddings";

/// Routes by path, with the methods they take. A known path with another method is a 405.
const ROUTES: [(&str, &[&str]); 11] = [
    ("/", &["GET", "HEAD"]),
    ("/api/version", &["GET", "HEAD"]),
    ("/api/tags", &["GET", "HEAD"]),
    ("/api/ps", &["GET"]),
    ("/api/show", &["POST"]),
    ("/api/chat", &["POST"]),
    ("/api/generate", &["POST"]),
    ("/api/delete", &["DELETE"]),
    ("/api/embed", &["POST"]),
    ("/api/embeddings", &["POST"]),
    ("/api/pull", &["POST"]),
];

/// One request, read.
struct Call<'a> {
    number: u64,
    head: &'a Head,
    body: &'a [u8],
}

/// Serves a connection until one side ends it.
pub(super) fn serve(sim: &Sim, mut conn: Conn) {
    loop {
        let read = conn.read_head(HEAD_BYTES_MAX).and_then(|head| {
            let body = conn.read_body(&head)?;
            Ok((head, body))
        });
        let (head, body) = match read {
            Ok(read) => read,
            Err(ReadError::Closed | ReadError::Io(_)) => return,
            Err(ReadError::TooLarge) => return refuse_bytes(conn, 431),
            Err(ReadError::Malformed(_)) => return refuse_bytes(conn, 400),
        };
        let number = sim.seen(&head, &body);
        let close = head.wants_close();
        match answer(sim, &mut conn, &Call { number, head: &head, body: &body }) {
            After::Keep if !close => {}
            After::Keep | After::Close => return conn.close(),
            After::Reset => return conn.reset(),
        }
    }
}

/// Go's answer to what is no HTTP request, and the end of the connection.
fn refuse_bytes(mut conn: Conn, status: u16) {
    let body = match status {
        431 => "431 Request Header Fields Too Large",
        _ => "400 Bad Request",
    };
    let reason = body.split_once(' ').map_or("", |(_, reason)| reason);
    let headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")];
    if conn.write_head(status, reason, &headers).is_ok() {
        let _ = conn.write(body.as_bytes());
    }
    conn.close();
}

impl Sim {
    /// Counts and logs a request; answers its number.
    fn seen(&self, head: &Head, body: &[u8]) -> u64 {
        let mut number = 0;
        self.presence.count(|counters| {
            counters.requests += 1;
            number = counters.requests;
        });
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let endpoint = endpoint_of(&head.path);
        let request = endpoint.and_then(|endpoint| request::decode(endpoint, body).ok());
        let tokens = request.map_or(0, |request| prompt::render("", &request.messages).len());
        self.log.add(
            number,
            Event::Seen {
                route: format!("{} {}", head.method, head.path),
                body_hash: fingerprint(body),
                model: value.get("model").and_then(Value::as_str).map(str::to_owned),
                messages: value.get("messages").and_then(Value::as_array).map(Vec::len),
                prompt_tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
                num_predict: value.pointer("/options/num_predict").and_then(Value::as_i64),
            },
        );
        number
    }

    fn forbid(&self, call: &Call<'_>) {
        for field in request::forbidden(call.body) {
            self.presence
                .count(|counters| *counters.forbidden.entry(field.to_owned()).or_default() += 1);
            self.log.add(call.number, Event::Forbidden { field: field.to_owned() });
        }
    }
}

fn endpoint_of(path: &str) -> Option<Endpoint> {
    match path {
        "/api/chat" => Some(Endpoint::Chat),
        "/api/generate" => Some(Endpoint::Generate),
        _ => None,
    }
}

fn answer(sim: &Sim, conn: &mut Conn, call: &Call<'_>) -> After {
    let head = call.head;
    let host = head.header("host").unwrap_or_default();
    let only_head = head.method == "HEAD";
    let written = if !allowed_host(host) {
        out::bare(conn, 403)
    } else {
        match ROUTES.iter().find(|(path, _)| *path == head.path) {
            None => out::text(conn, only_head, 404, "404 page not found"),
            Some((_, methods)) if !methods.contains(&head.method.as_str()) => {
                out::text(conn, only_head, 405, "405 method not allowed")
            }
            Some((path, _)) => match endpoint_of(path) {
                Some(endpoint) => return generation(sim, conn, call, endpoint),
                None => plain(sim, conn, call, only_head),
            },
        }
    };
    ended(sim, call.number, &written)
}

fn ended(sim: &Sim, number: u64, written: &io::Result<()>) -> After {
    let (after, end) = match written {
        Ok(()) => (After::Keep, log::End::Done),
        Err(_) => (After::Close, log::End::Gone),
    };
    sim.log.add(number, Event::Ended { end, sent: 0 });
    after
}

/// Whether Ollama listening on a loopback address serves this `Host`: local names and addresses
/// only, so that a page in a browser cannot rebind its way in.
fn allowed_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    match name.parse() {
        Ok(IpAddr::V4(address)) => {
            address.is_loopback() || address.is_private() || address == Ipv4Addr::UNSPECIFIED
        }
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.is_unspecified(),
        Err(_) => {
            let name = name.to_ascii_lowercase();
            let local = [".localhost", ".local", ".internal"];
            name.is_empty() || name == "localhost" || local.iter().any(|end| name.ends_with(end))
        }
    }
}

/// The calls that take no runner; none of them waits for one.
fn plain(sim: &Sim, conn: &mut Conn, call: &Call<'_>, only_head: bool) -> io::Result<()> {
    let result = match call.head.path.as_str() {
        "/" => return out::text(conn, only_head, 200, "Ollama is running"),
        "/api/version" => Ok(answers::go_json(&serde_json::json!({"version": sim.version_text}))),
        "/api/tags" => Ok(answers::tags(&lock(&sim.models))),
        "/api/ps" => Ok(answers::ps(&sim.scheduler.residents(sim.clock.now()))),
        "/api/show" => named(sim, call.body).map(|model| answers::show(&model)),
        "/api/delete" => match named(sim, call.body) {
            Ok(model) => {
                lock(&sim.models).retain(|other| other.name != model.name);
                sim.scheduler.unload(&model.name);
                return out::bare(conn, 200);
            }
            Err(refusal) => Err(refusal),
        },
        "/api/pull" => Err(Refusal::new(500, "pull model manifest: no network in the simulator")),
        _ => Err(Refusal::new(501, NO_EMBEDDINGS)),
    };
    match result {
        Ok(body) => out::json(conn, only_head, 200, &body),
        Err(refusal) => out::json(conn, only_head, refusal.status, &answers::error(&refusal.error)),
    }
}

/// The model that a body names as `model` or, as older clients do, as `name`.
fn named(sim: &Sim, body: &[u8]) -> Result<super::Model, Refusal> {
    let value = request::json_body(body)?;
    let name = ["model", "name"].iter().find_map(|key| value.get(*key).and_then(Value::as_str));
    let name = name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refusal::new(400, "model is required"))?;
    sim.model(name).ok_or_else(|| not_found(name))
}

fn not_found(name: &str) -> Refusal {
    Refusal::new(404, format!("model '{name}' not found"))
}

/// Decides whether a request may run at all.
fn admitted(sim: &Sim, request: &Request) -> Result<super::Model, Refusal> {
    let name = &request.model;
    let model = sim.model(name).ok_or_else(|| not_found(name))?;
    if request.think == Some(true) && !model.thinking {
        return Err(Refusal::new(400, format!("{name:?} does not support thinking")));
    }
    if !request.tools.is_empty() && !model.tools {
        let full = format!("registry.ollama.ai/library/{}", model.name);
        return Err(Refusal::new(400, format!("{full} does not support tools")));
    }
    Ok(model)
}

fn generation(sim: &Sim, conn: &mut Conn, call: &Call<'_>, endpoint: Endpoint) -> After {
    sim.forbid(call);
    let decoded = request::decode(endpoint, call.body)
        .and_then(|request| admitted(sim, &request).map(|model| (request, model)));
    let (request, model) = match decoded {
        Ok(decoded) => decoded,
        Err(refusal) => {
            let body = answers::error(&refusal.error);
            let written = out::json(conn, false, refusal.status, &body);
            if written.is_ok() {
                sim.log.add(call.number, Event::Ended { end: log::End::Error, sent: 0 });
                return After::Keep;
            }
            return ended(sim, call.number, &written);
        }
    };
    let Ok(witness) = conn.witness() else { return After::Close };
    let halt = conn.halt().clone();
    let number = call.number;
    if request.is_load() {
        let accepted = Accepted {
            number,
            request: &request,
            model: &model,
            faults: Vec::new(),
            witness: &witness,
            halt,
        };
        return load(sim, conn, &accepted);
    }
    let inside = sim.presence.enter(conn.witness().ok());
    if inside.overlaps {
        sim.log.add(number, Event::Overlap);
    }
    let mut generation = 0;
    sim.presence.count(|counters| {
        counters.generations += 1;
        generation = counters.generations;
    });
    let faults = sim.faults.take(generation);
    let accepted =
        Accepted { number, request: &request, model: &model, faults, witness: &witness, halt };
    let mut out = Out::new(conn, endpoint, &request.model, request.stream);
    let after = life::run(sim, accepted, &mut out);
    drop(inside);
    after
}

/// `messages: []` or an empty prompt: one object, whatever `stream` says.
fn load(sim: &Sim, conn: &mut Conn, accepted: &Accepted<'_>) -> After {
    let (number, request, model) = (accepted.number, accepted.request, accepted.model);
    let unload = request.keep_alive.is_some_and(super::keep_alive::KeepAlive::is_zero);
    let reason = if unload { "unload" } else { "load" };
    let mut taken = Duration::ZERO;
    if unload {
        sim.scheduler.unload(&model.name);
        sim.log.add(number, Event::Unloaded { why: "asked".to_owned() });
    } else {
        match life::load(sim, accepted) {
            Ok(load) => taken = load,
            Err(Some(refusal)) => {
                let body = answers::error(&refusal.error);
                return ended(sim, number, &out::json(conn, false, refusal.status, &body));
            }
            Err(None) => {
                sim.log.add(number, Event::Ended { end: log::End::Gone, sent: 0 });
                return After::Close;
            }
        }
    }
    let nanos = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
    let metrics = Metrics { total_duration: nanos, load_duration: nanos, ..Metrics::default() };
    let end = Some(End { reason, metrics });
    let part = Part { end, ..Part::default() };
    let body = answers::part(request.endpoint, &request.model, &part);
    ended(sim, number, &out::json(conn, false, 200, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_hosts_are_served() {
        for host in [
            "",
            "localhost",
            "127.0.0.1:11434",
            "[::1]:11434",
            "pi.local",
            "192.168.1.9",
            "0.0.0.0:1",
            "a.localhost:80",
        ] {
            assert!(allowed_host(host), "{host}");
        }
        for host in ["example.com", "evil.test:11434", "8.8.8.8", "localhost.example.com"] {
            assert!(!allowed_host(host), "{host}");
        }
    }
}
