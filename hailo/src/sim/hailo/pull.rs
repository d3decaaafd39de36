//! `POST /api/pull` and its hazards: an exception or a disconnect in a streaming pull kills the
//! process; after `success` the connection is closed without the last chunk.

use std::{io, time::Duration};

use serde::Serialize;

use super::{
    reply::json,
    routes::{After, Exchange},
};
use crate::{
    model::{Model, Release},
    sim::{
        clock::Woke,
        log::{End, Event, fingerprint},
    },
};

/// Bytes a second on the wire: some 2.3 GB were seen to take 6 minutes.
const BYTES_PER_S: u64 = 6_400_000;
/// Progress lines of a pull.
const STEPS: u64 = 24;

#[derive(Serialize)]
struct Progress<'a> {
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<u64>,
}

pub(super) fn run(exchange: &mut Exchange<'_>, name: &str, stream: bool) -> After {
    let Some(model) = exchange.sim.store.manifest(name) else { return exchange.not_found(name) };
    if !stream {
        return quietly(exchange, model);
    }
    match lines(exchange, model) {
        Ok(()) => {
            exchange.sim.store.add(model);
            // The handler's thread ends with the connection, before the last chunk.
            exchange.conn.shut();
            end(exchange, End::Done)
        }
        Err(Stop::Halted) => end(exchange, End::Halted),
        Err(Stop::Terminate(why)) => {
            let after = end(exchange, End::Reset);
            exchange.sim.crash(exchange.conn.server(), exchange.id, why);
            after
        }
    }
}

enum Stop {
    Halted,
    Terminate(&'static str),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Terminate("the client left a pull")
    }
}

/// Minutes of silence, then one answer; an exception is an ordinary error.
fn quietly(exchange: &mut Exchange<'_>, model: &'static Model) -> After {
    let whole = Duration::from_secs(model.size_bytes / BYTES_PER_S);
    if exchange.sim.clock.sleep(whole, exchange.conn.halt()) == Woke::Halted {
        return end(exchange, End::Halted);
    }
    if let Some(error) = exchange.sim.options.pull_error.clone() {
        return exchange.failed(&[&error]);
    }
    exchange.sim.store.add(model);
    exchange.json(200, r#"{"status":"success"}"#)
}

fn lines(exchange: &mut Exchange<'_>, model: &'static Model) -> Result<(), Stop> {
    exchange.conn.write_head(
        200,
        "OK",
        &[
            ("Content-Type", "application/x-ndjson"),
            ("Connection", "keep-alive"),
            ("Server", "oatpp/1.4.0"),
            ("Transfer-Encoding", "chunked"),
        ],
    )?;
    exchange.sim.log.add(exchange.id, Event::HeadSent { status: 200 });
    if exchange.sim.release == Release::V5_4 {
        say(exchange, "resolved_version: 5.4.0", None)?;
    }
    let hash = fingerprint(model.name.as_bytes());
    let digest = format!("sha256:{}", hash.repeat(4));
    let status = format!("pulling {}", &hash[..12]);
    let total = model.size_bytes;
    let step = Duration::from_millis(total * 1000 / BYTES_PER_S / STEPS);
    for part in 1..=STEPS {
        if exchange.sim.clock.sleep(step, exchange.conn.halt()) == Woke::Halted {
            return Err(Stop::Halted);
        }
        say(exchange, &status, Some((&digest, total, total / STEPS * part)))?;
        if part == STEPS / 2 && exchange.sim.options.pull_error.is_some() {
            return Err(Stop::Terminate("an exception in the download thread"));
        }
    }
    say(exchange, "verifying sha256 digest", None)?;
    say(exchange, "success", None)
}

fn say(
    exchange: &mut Exchange<'_>,
    status: &str,
    part: Option<(&str, u64, u64)>,
) -> Result<(), Stop> {
    let line = json(&Progress {
        status,
        digest: part.map(|(digest, _, _)| digest),
        total: part.map(|(_, total, _)| total),
        completed: part.map(|(_, _, completed)| completed),
    });
    Ok(exchange.conn.write_chunk(format!("{line}\r\n").as_bytes())?)
}

fn end(exchange: &Exchange<'_>, end: End) -> After {
    exchange.sim.log.add(exchange.id, Event::Ended { end, sent: 0 });
    After::Ended
}
