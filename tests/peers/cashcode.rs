//! CashCode's protocol, spoken by a client in Python as CashCode's users write theirs: another
//! WebSocket library than ours, and nothing of ours around it.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::rig::{Daemon, Plan, Simulator, told};

/// Tokens a second: a story of a thousand words does not end before it is stopped.
const PACE: &str = "20";

#[test]
fn a_client_written_for_cashcode_is_served() {
    let story: Vec<_> = (1..1_000).map(|n| format!("and on to {n}")).collect();
    let scenario = json!({ "replies": [
        { "when": "long story", "text": story.join(", ") },
        { "when": "", "text": "Nice to meet you, Cash. What shall we do today?" },
    ] });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.json");
    std::fs::write(&file, scenario.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let simulator = Simulator::start(&["--pace", PACE, "--scenario", file]);
    let daemon = Daemon::online(&Plan { hailo: simulator.address, ..Plan::of("hailo", 200) });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/cashcode.py");
    let client = Command::new(told("PEERS_PYTHON"))
        .arg(script)
        .arg(daemon.http.port().to_string())
        .arg("--stop")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&client.stdout);
    let complained = String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success(), "{said}{complained}");
    assert!(said.lines().count() > 15 && !said.contains("FAILED"), "{said}");
}
