//! The program: its line, its signals (H27), its scenario file and its borrowed voice.

use std::{
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use hailo::{
    model::Release::V5_1_1,
    sim::{
        log::Event,
        scenario::{Kind, Phase, Reply},
        server::Server,
    },
};

use crate::client::{
    Call, Ending, LIMIT, ask, chat, fault, hello, sim, until, wait_for, wait_of, with,
};

/// The child, killed when a test fails before it ended.
struct Program {
    child: Child,
    addr: SocketAddr,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hailo-sim"))
            .args(["--port", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addr = line.split("http://").nth(1).unwrap().split(' ').next().unwrap();
        Self { addr: addr.parse().unwrap(), child }
    }

    fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn h27_sigterm_waits_for_the_running_generation() {
    let path = std::env::temp_dir().join(format!("hailo-sim-{}.json", std::process::id()));
    let scenario = r#"{"replies": [{"text": "the very last words"}],
        "faults": [{"at": 1, "phase": {"token": 1}, "kind": {"stall": 200000}}]}"#;
    std::fs::write(&path, scenario).unwrap();
    let mut program = Program::start(&["--pace", "200", "--scenario", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    let mut call = Call::send(program.addr, "POST", "/api/chat", &hello(V5_1_1).to_string());
    call.head().unwrap();
    let mut body = call.chunk().unwrap().unwrap();
    program.terminate();
    until(|| TcpStream::connect(program.addr).is_err());
    while let Some(chunk) = call.chunk().unwrap() {
        body.push_str(&chunk);
    }
    assert!(body.contains("\"done\":true"), "{body}");
    assert!(program.child.wait().unwrap().success());
}

#[test]
fn h27_a_drain_ends_idle_connections_and_says_whether_all_is_over() {
    let mut running = sim(V5_1_1, vec![Reply::text("last")]);
    running.fault(fault(Phase::Token(1), Kind::Stall(100_000)));
    let idle = Call::raw(running.addr(), b"");
    let call = chat(&running, &hello(V5_1_1));
    wait_of(&running, 1, |event| matches!(event, Event::Fault { .. }));
    assert!(running.drain(LIMIT));
    assert_eq!(call.answer().unwrap().text(), "last");
    assert_eq!(idle.answer().unwrap_err(), Ending::Eof);
}

#[test]
fn a_taken_port_a_bad_word_and_a_bad_scenario_end_the_program_with_a_sentence() {
    let running = sim(V5_1_1, vec![]);
    let port = running.addr().port().to_string();
    for arguments in [
        vec!["--port", &port],
        vec!["--port", "0", "--pace", "fast"],
        vec!["--port", "0", "--profile", "v6"],
        vec!["--port", "0", "--scenario", "/nowhere.json"],
        vec!["--port", "0", "--voice", "https://secret"],
        vec!["--port", "0", "--model", "nope:1b"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_hailo-sim")).args(&arguments).output();
        let output = output.unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_borrowed_voice_gives_the_words_and_its_silence_is_made_up_for() {
    let voice = Server::start(
        0,
        std::sync::Arc::new(|mut conn| {
            let head = conn.read_head(4096).unwrap();
            conn.read_body(&head).unwrap();
            let body = match head.path.as_str() {
                "/v1/models" => r#"{"data":[{"id":"tiny"}]}"#,
                "/v1/chat/completions" => {
                    "data: {\"choices\":[{\"delta\":{\"content\":\"Borrowed words.\"}}]}\n\n"
                }
                _ => "",
            };
            let _ = conn.write_answer(200, "OK", &[], body.as_bytes());
            conn.close();
        }),
    )
    .unwrap();
    let running =
        with(V5_1_1, |options| options.voice = Some(format!("http://{}/v1", voice.addr())));
    assert_eq!(ask(&running, &hello(V5_1_1)).text(), "Borrowed words.");
    drop(voice);
    let made_up = ask(&running, &hello(V5_1_1)).text();
    assert!(made_up.split_whitespace().count() >= 20, "{made_up}");
    wait_for(&running, |entry| matches!(entry.event, Event::VoiceFailed { .. }));
}

#[test]
fn stopping_ends_a_hang_at_once() {
    let running = sim(V5_1_1, vec![]);
    running.fault(fault(Phase::BeforeHead, Kind::Hang));
    let call = chat(&running, &hello(V5_1_1));
    wait_of(&running, 1, |event| matches!(event, Event::Fault { .. }));
    let begun = std::time::Instant::now();
    running.stop();
    assert!(begun.elapsed() < LIMIT + Duration::from_secs(1));
    assert!(call.answer().is_err());
}
