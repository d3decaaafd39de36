//! Doors: what only one place may import, and the files that may import nothing of the kind.

use crate::source::{Tree, assert_finds, assert_tidy};

/// A path prefix, the files (or directories) that may use it, and why nobody else.
type Door = (&'static str, &'static [&'static str], &'static str);

/// Checked in the product code of `src/`. `hailo/` is std and threads by design.
const DOORS: &[Door] = &[
    ("reqwest", &["src/net/"], "net is the only door out: its limits and checks hold for all"),
    ("rustls", &["src/net/"], "TLS is the transport's business"),
    ("rusqlite", &["src/store/"], "one file, one connection that writes"),
    ("hyper", &["src/http/", "src/net/", "src/sim/"], "HTTP is spoken at the two doors"),
    ("hyper::server", &["src/http/", "src/sim/"], "one server, with its limits and timeouts"),
    ("hyper::service", &["src/http/", "src/sim/"], "one server, with its limits and timeouts"),
    ("hyper_util", &["src/http/", "src/sim/"], "one server, with its limits and timeouts"),
    ("rppal", &["src/vitals/gpio"], "pins have one owner"),
    ("sd_notify", &[], "daemon/systemd.rs speaks the protocol itself"),
    ("std::os::unix::net::UnixDatagram", &["src/daemon/systemd.rs"], "only the manager is told"),
    ("tokio::net::UnixDatagram", &[], "only the manager is told, by daemon/systemd.rs"),
    ("std::process::Command", &["src/process.rs"], "children need limits, a sandbox and an end"),
    ("tokio::process", &["src/process.rs"], "children need limits, a sandbox and an end"),
    ("std::process::exit", &[], "exit skips the drain; return the code"),
    ("tokio::spawn", SUPERVISOR, "a task has a name, a policy and a place in the drain"),
    ("tokio::task::spawn", SUPERVISOR, "a task has a name, a policy and a place in the drain"),
    ("tokio::task::spawn_local", SUPERVISOR, "a task has a name, a policy, a place in the drain"),
    ("tokio::task::JoinSet", SUPERVISOR, "a set of tasks spawns too, without names"),
    ("tokio_util::task", SUPERVISOR, "a tracker spawns too, without names"),
    ("std::time::Instant", &[], "tokio::time::Instant: the simulation steps it"),
    ("std::time::SystemTime", &["src/clock.rs"], "clock::WallClock: a Pi boots in 1970"),
    ("SystemTime::now", &["src/clock.rs"], "clock::WallClock: a Pi boots in 1970"),
    ("jiff::Timestamp::now", &["src/clock.rs"], "clock::WallClock: tests set the date"),
    ("Timestamp::now", &["src/clock.rs"], "clock::WallClock: tests set the date"),
    ("jiff::Zoned::now", &["src/clock.rs"], "clock::WallClock: tests set the date"),
    ("Zoned::now", &["src/clock.rs"], "clock::WallClock: tests set the date"),
    ("tokio::sync::Mutex", &[], "one owner per state; no lock across an await"),
    ("tokio::sync::RwLock", &[], "readers take snapshots; no lock across an await"),
    ("tokio::sync::mpsc::unbounded_channel", &[], "every queue is bounded"),
    ("mpsc::unbounded_channel", &[], "every queue is bounded"),
    ("tokio::fs", &[], "files are the store's, on its blocking thread"),
    ("tokio::net::TcpListener", &["src/http/", "src/daemon/"], "one listener, with access rules"),
    ("tokio::net::TcpStream", &["src/http/", "src/net/"], "connections out go through net"),
    ("std::net::TcpStream", &[], "blocking sockets stop every task"),
    ("std::net::TcpListener", &["src/daemon/"], "bound in the wiring, before READY"),
    ("std::net::UdpSocket", &[], "nothing here speaks UDP"),
    (
        "std::fs",
        &[
            "src/store/",
            "src/config/",
            "src/soul/",
            "src/daemon/",
            "src/cli/",
            "src/connector/",
            "src/model/",
            "src/vitals/tree.rs",
            "src/doctor/",
        ],
        "files have owners: state is the store's, models the shelf's, the rest people's text",
    ),
    (
        "std::env",
        &["src/daemon/", "src/config/", "src/cli/", "src/main.rs"],
        "the environment is read at the start; parts are handed what they need",
    ),
    ("rayon", &["src/provider/reserve/"], "threads of arithmetic, below normal priority"),
    ("pulp", &["src/provider/reserve/"], "instruction sets are the arithmetic's business"),
    ("regex_automata", &["src/provider/reserve/"], "schemas are kept to by the engine"),
    ("sha2", &["src/model/"], "what is fetched is checked where it is fetched"),
    ("clap", &["src/cli/", "src/main.rs"], "the command line is parsed in one place"),
    ("rustyline", &["src/cli/", "src/connector/"], "line editing belongs to the terminal"),
    ("saphyr_parser", &["src/config/"], "YAML is the configuration's"),
    ("tracing_subscriber", &["src/daemon/log.rs"], "one place decides where logs go"),
    ("tracing_journald", &["src/daemon/log.rs"], "one place decides where logs go"),
    (
        "tokio::signal",
        &["src/daemon/signals.rs", "src/cli/"],
        "a process has one reader of signals",
    ),
];

const SUPERVISOR: &[&str] = &["src/daemon/supervisor"];

/// Files whose functions are decisions: `(state, input, now) -> actions`. Those of rooms to come
/// are here already; a file that does not exist yet is passed over.
const PURE: &[&str] = &[
    "src/limits.rs",
    "src/mood/mod.rs",
    "src/mood/tone.rs",
    "src/mood/sentiment/mod.rs",
    "src/mood/sentiment/fold.rs",
    "src/mood/sentiment/lexicon.rs",
    "src/net/split.rs",
    "src/net/backoff.rs",
    "src/provider/breaker.rs",
    "src/provider/budget.rs",
    "src/provider/fault.rs",
    "src/provider/parse.rs",
    "src/provider/aliases.rs",
    "src/config/check.rs",
    "src/config/secrets.rs",
    "src/config/document.rs",
    "src/session/window.rs",
    "src/session/wire.rs",
    "src/http/router.rs",
    "src/http/access.rs",
    "src/agent/profile.rs",
    "src/agent/intent.rs",
    "src/agent/filter.rs",
    "src/agent/words.rs",
    "src/agent/prompt.rs",
    "src/soul/regions.rs",
    "src/vitals/gpio/button.rs",
    "src/vitals/gpio/lamp.rs",
    "src/snapshot/body.rs",
    "src/clock/duty.rs",
    "src/heartbeat/sums.rs",
    "src/vitals/procfs.rs",
    "src/vitals/stress.rs",
    "src/vitals/governor.rs",
    "src/vitals/words.rs",
    "src/heartbeat/pulse.rs",
    "src/daemon/exit.rs",
    "src/daemon/tasks.rs",
];

/// What a decision must not reach.
const IMPURE: &[&str] = &[
    "tokio",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::os",
    "fastrand",
    "reqwest",
    "rusqlite",
    "hyper",
    "rustix",
    "crate::clock",
    "crate::store",
    "crate::net::client",
];

/// Values that only share a roof with I/O.
const PURE_AFTER_ALL: &[&str] = &[
    "tokio::time::Instant",
    "std::net::IpAddr",
    "std::net::Ipv4Addr",
    "std::net::Ipv6Addr",
    "std::net::SocketAddr",
    "hyper::header",
    "crate::clock::duty",
    "hyper::http",
    "hyper::Method",
    "hyper::StatusCode",
    "hyper::Uri",
];

fn is_at_or_under(path: &str, prefix: &str) -> bool {
    path == prefix || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("::"))
}

fn door_problems(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.product() {
        for (line, path) in source.paths() {
            for (prefix, places, why) in DOORS {
                let open = places.iter().any(|place| source.path.starts_with(place));
                if !open && is_at_or_under(&path, prefix) {
                    let place = &source.path;
                    let only = if places.is_empty() { "nobody".into() } else { places.join(", ") };
                    found.push(format!("{place}:{line}: {path} is for {only}: {why}"));
                }
            }
        }
    }
    found
}

fn pure_problems(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in tree.product().filter(|source| PURE.contains(&source.path.as_str())) {
        for (line, path) in source.paths() {
            let pure = PURE_AFTER_ALL.iter().any(|prefix| is_at_or_under(&path, prefix));
            if !pure && IMPURE.iter().any(|prefix| is_at_or_under(&path, prefix)) {
                found.push(format!(
                    "{}:{line}: {path} in a pure file: decisions are functions of their arguments, \
                     so that a table can test them",
                    source.path
                ));
            }
        }
    }
    found
}

#[test]
fn each_door_is_used_by_its_owner_only() {
    assert_tidy(&door_problems(Tree::here()));
}

#[test]
fn pure_files_import_no_io_and_no_chance() {
    assert_tidy(&pure_problems(Tree::here()));
}

#[test]
fn a_second_importer_is_found_in_every_spelling() {
    let tree = Tree::sample(&[
        ("src/lib.rs", "mod agent;\nmod net;\n"),
        ("src/agent.rs", "use std::{time::{Duration, Instant}};\nfn f() { tokio::spawn(x); }\n"),
        ("src/net.rs", "mod client;\nuse reqwest::Client;\n"),
        ("src/net/client.rs", "use reqwest::Client;\nuse tokio::sync::{mpsc, Mutex};\n"),
    ]);
    assert_finds(
        &door_problems(&tree),
        &[
            "src/agent.rs:1: std::time::Instant is for nobody",
            "src/agent.rs:2: tokio::spawn is for src/daemon/supervisor",
            "src/net.rs:2: reqwest::Client is for src/net/",
            "src/net/client.rs:2: tokio::sync::Mutex is for nobody",
        ],
    );
}

#[test]
fn a_pure_file_that_reaches_out_is_found() {
    let tree = Tree::sample(&[
        ("src/lib.rs", "mod net;\n"),
        ("src/net.rs", "mod split;\nuse tokio::net::TcpStream;\n"),
        (
            "src/net/split.rs",
            "use std::net::{IpAddr, TcpStream};\nuse tokio::time::{Instant, sleep};\n",
        ),
    ]);
    assert_finds(
        &pure_problems(&tree),
        &["src/net/split.rs:1: std::net::TcpStream", "src/net/split.rs:2: tokio::time::sleep"],
    );
}
