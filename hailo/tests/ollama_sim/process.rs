//! The program `ollama-sim`.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use serde_json::json;

use crate::client::{Client, Ended, hello, read_stream};

/// A running program; killed when dropped.
struct Program {
    child: Child,
    addr: SocketAddr,
    control: SocketAddr,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ollama-sim"))
            .args(["--port", "0", "--pace", "instant"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let mut found = line
            .split("http://")
            .skip(1)
            .map(|rest| rest.split([',', '\n']).next().unwrap().parse().expect("an address"));
        let (addr, control) = (found.next().unwrap(), found.next().unwrap());
        Self { child, addr, control }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_program_runs_a_scenario_under_its_options_and_ends_at_sigterm() {
    let folder = std::env::temp_dir().join(format!("ollama-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (scenario, log) = (folder.join("scenario.json"), folder.join("log.jsonl"));
    std::fs::write(&scenario, json!({"replies": [{"text": "As written."}]}).to_string()).unwrap();
    let mut program = Program::start(&[
        "--version",
        "0.29.0",
        "--seed",
        "3",
        "--model",
        "qwen2.5:1.5b",
        "mine",
        "--scenario",
        scenario.to_str().unwrap(),
        "--log",
        log.to_str().unwrap(),
    ]);
    let mut client = Client::connect(program.addr);
    client.send("GET", "/api/version", "");
    assert_eq!(client.answer().1["version"], "0.29.0");
    client.send("GET", "/api/tags", "");
    assert_eq!(client.answer().1["models"].as_array().unwrap().len(), 2);
    client.send("POST", "/api/chat", &hello().to_string());
    let said = read_stream(&mut client);
    assert_eq!((said.text.as_str(), said.ended), ("As written.", Ended::Whole));
    let mut control = Client::connect(program.control);
    control.send("GET", "/__sim/state", "");
    assert_eq!(control.answer().1["generations"], 1);
    let pid = program.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(program.child.wait().unwrap().code(), Some(0));
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(written.contains("\"event\":\"first_token\""), "{written}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_wrong_scenario_is_refused_with_its_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_ollama-sim"))
        .args(["--scenario", "/nonexistent/scenario.json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/scenario.json"));
}
