//! The reserve with a real model: no server answers, and then one does.

use serde_json::{Value, json};

use crate::rig::{Daemon, Llama, Plan, free_address, until};
use crate::wire::{self, Frames};

/// Far above the program without a model, far below it with one of 98 MB.
const UNLOADED_BYTES_MAX: u64 = 60_000_000;

fn is_active(daemon: &Daemon, backend: &str) -> Option<Value> {
    let state = daemon.state();
    (state["active_backend"] == backend).then_some(state)
}

#[test]
fn without_any_server_the_reserve_answers_in_real_words_and_short() {
    let daemon = Daemon::with_model(&Plan::alone());
    let state = until("the reserve is ready", || is_active(&daemon, "reserve"));
    let reserve = state["backends"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&reserve["slot"], &reserve["model"], &state["online"]),
        (&json!("reserve"), &json!("smollm2"), &json!(true)),
        "{state}"
    );
    let mut frames = Frames::over_http(daemon.http, "main", "Tell me a very long story of a cat.");
    let done = frames.end();
    assert_eq!((&done["event"], &done["backend"]), (&json!("done"), &json!("reserve")), "{done}");
    assert!(frames.pieces > 3, "{} pieces: {:?}", frames.pieces, frames.text);
    let words = frames.text.split_whitespace().filter(|word| word.chars().all(char::is_alphabetic));
    assert!(words.count() > 10, "{:?}", frames.text);
    assert!(done["tokens"].as_u64().unwrap() <= 160, "short: {done}");

    let mut second = Frames::over_socket(&daemon.socket(), "main", "What is the cat called?");
    let done = second.end();
    assert_eq!((&done["event"], &done["turn"]), (&json!("done"), &json!(2)), "{done}");
    let said: Vec<Value> =
        daemon.history("main").iter().map(|line| line["content"].clone()).collect();
    assert_eq!((&said[1], &said[3]), (&json!(frames.text), &json!(second.text)));
}

#[test]
fn a_stopped_answer_of_the_reserve_is_stopped_and_the_next_one_is_its_own() {
    let daemon = Daemon::with_model(&Plan::alone());
    let mut frames = Frames::over_http(daemon.http, "main", "Tell me a very long story of a dog.");
    frames.read_pieces(2);
    let (_, stopped) = wire::post(daemon.http, "/cancel", &json!({ "session": "main" }));
    assert_eq!(stopped, json!({ "cancelled": true }));
    assert_eq!(frames.end()["event"], "cancelled");
    let mut next = Frames::over_http(daemon.http, "other", "Say hello.");
    let done = next.end();
    assert_eq!((&done["event"], &done["backend"]), (&json!("done"), &json!("reserve")), "{done}");
}

#[test]
fn the_reserve_gives_its_memory_back_when_a_server_is_back() {
    let address = free_address();
    let daemon = Daemon::with_model(&Plan { openai: address, ..Plan::alone() });
    until("the reserve is ready", || is_active(&daemon, "reserve"));
    Frames::over_http(daemon.http, "main", "Hello!").end();
    assert!(daemon.resident_bytes() > UNLOADED_BYTES_MAX, "the model is loaded");
    let _server = Llama::start(address);
    until("the server answers", || is_active(&daemon, "openai"));
    until("the model is let go", || (daemon.resident_bytes() < UNLOADED_BYTES_MAX).then_some(()));
}

#[test]
fn a_model_that_comes_while_the_daemon_runs_is_used_without_a_restart() {
    let daemon = Daemon::start(&Plan::alone());
    let hello = json!({ "message": "Hello?" });
    let (_, answer) = wire::post(daemon.http, "/chat", &hello);
    assert_eq!(answer["error"], "offline", "{answer}");
    assert!(answer["reply"].as_str().unwrap().contains("crayfish model fetch"), "{answer}");
    daemon.put_model();
    let (_, answer) = wire::post(daemon.http, "/chat", &hello);
    assert_eq!(
        (&answer["error"], &answer["backend"]),
        (&Value::Null, &json!("reserve")),
        "{answer}"
    );
    let state = until("the status knows it", || is_active(&daemon, "reserve"));
    assert!(!state["backends"].to_string().contains("no model is here"), "{state}");
}

#[test]
fn a_body_under_stress_has_no_model_in_its_memory_and_says_why() {
    let daemon = Daemon::with_model(&Plan { stressed: true, ..Plan::alone() });
    // The start may have loaded it before the first beat; then it is let go.
    until("the reserve is spared, and says so", || {
        let (_, answer) = wire::post(daemon.http, "/chat", &json!({ "message": "Hello?" }));
        answer["reply"].as_str().unwrap().contains("the machine is strained").then_some(())
    });
    until("its memory is free", || (daemon.resident_bytes() < UNLOADED_BYTES_MAX).then_some(()));
}
