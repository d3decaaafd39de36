//! Autobahn's test suite, the conformance suite of WebSocket: every case but those of compression,
//! which is not offered, against the handshake, the settings and the goodbyes of the daemon's door.
//!
//! Started by `bash tests/peers/run --autobahn`; the suite needs Python 2.7, so that nothing else
//! runs it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that starts programs, tells its counts and ends by panicking"
)]

use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// What the suite calls a case that went as it should. The others are told below, one by one.
const FINE: [&str; 3] = ["OK", "NON-STRICT", "INFORMATIONAL"];

/// Cases with messages beyond the door's bound of 1 MiB; it ends the socket, as it must.
const BEYOND_THE_BOUND: [&str; 4] = ["9.1.", "9.2.", "9.3.", "9.4."];

/// Starts the suite from the directory it is installed in, whose packages share a name and are only
/// found in a directory of that kind.
const START: &str = "import site, sys; site.addsitedir(sys.argv.pop(1)); \
    from autobahntestsuite import wstest; wstest.run()";

/// What `tests/peers/run` says in the environment.
fn told(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: bash tests/peers/run --autobahn"))
}

#[test]
fn the_conformance_suite_finds_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || runtime.block_on(crayfish::http::foreign::echo(listener)));
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let spec = json!({
        "outdir": at("reports"),
        "servers": [{ "agent": "crayfish", "url": format!("ws://{address}") }],
        "cases": ["*"],
        "exclude-cases": ["12.*", "13.*"],
        "exclude-agent-cases": {},
    });
    std::fs::write(at("spec.json"), spec.to_string()).unwrap();
    let suite = Command::new(told("PEERS_PYTHON2"))
        .args(["-c", START, &told("PEERS_AUTOBAHN"), "--mode", "fuzzingclient", "--spec"])
        .arg(at("spec.json"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report = std::fs::read(at("reports/index.json"))
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&suite.stderr)));
    let report: Value = serde_json::from_slice(&report).unwrap();
    let cases = report["crayfish"].as_object().unwrap();
    let mut counts = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    for (case, result) in cases {
        let verdicts = [&result["behavior"], &result["behaviorClose"]].map(|v| v.as_str().unwrap());
        *counts.entry(verdicts).or_insert(0) += 1;
        let bound = BEYOND_THE_BOUND.iter().any(|group| case.starts_with(group))
            && result["remoteCloseCode"] == 1009;
        if !bound && verdicts.iter().any(|verdict| !FINE.contains(verdict)) {
            wrong.push(format!("{case}: {verdicts:?}"));
        }
    }
    println!("{} cases: {counts:?}", cases.len());
    assert!(wrong.is_empty() && cases.len() > 290, "{} cases, {wrong:#?}", cases.len());
}
