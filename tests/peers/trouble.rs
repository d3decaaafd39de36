//! What goes wrong with real servers, and what does not fit into them.

use serde_json::json;

use crate::rig::{Daemon, Llama, Plan, free_address, llama, slot, until};
use crate::wire::{self, Frames};

#[test]
fn an_answer_that_reaches_its_bound_says_that_it_is_cut() {
    let daemon = Daemon::online(&Plan::of("openai", 16));
    let message = json!({ "message": "Tell me a long story about a cat, a dog and a boat." });
    let (_, answer) = wire::post(daemon.http, "/chat", &message);
    assert_eq!(
        (&answer["cut"], &answer["tokens"], &answer["backend"]),
        (&json!(true), &json!(16), &json!("openai")),
        "{answer}"
    );
}

#[test]
fn a_message_longer_than_the_context_is_clipped_in_its_middle_and_answered() {
    let plan = Plan { context_tokens: 640, ..Plan::of("openai", 16) };
    let daemon = Daemon::online(&plan);
    let long = format!("Alpha begins. {}Omega ends.", "And so it went on and on. ".repeat(2_000));
    let (status, answer) = wire::post(daemon.http, "/chat", &json!({ "message": long }));
    assert_eq!((status, &answer["clipped"]), (200, &json!(true)), "{answer}");
    assert_eq!(answer["backend"], "openai", "{answer}");
    let slot = slot(llama());
    let prompt = slot["prompt"].as_str().unwrap();
    assert!(prompt.contains("Alpha begins.") && prompt.contains("Omega ends."), "{prompt:?}");
    // Ours is an estimate; the server counted.
    let tokens = slot["n_prompt_tokens"].as_u64().unwrap();
    assert!(tokens <= 640, "{tokens} tokens");
}

#[test]
fn a_model_the_server_does_not_have_is_said_by_name() {
    let plan = Plan { ollama_model: "nope:1b", ..Plan::of("ollama", 16) };
    let daemon = Daemon::start(&plan);
    let (status, answer) = wire::post(daemon.http, "/chat", &json!({ "message": "Hello?" }));
    assert_eq!((status, &answer["error"]), (200, &json!("offline")), "{answer}");
    let reply = answer["reply"].as_str().unwrap();
    assert!(reply.contains(" has no nope:1b; it offers "), "{reply}");
}

#[test]
fn a_server_that_dies_in_the_middle_is_replaced_and_taken_back_when_it_returns() {
    let server = Llama::start(free_address());
    let address = server.address();
    let daemon = Daemon::online(&Plan { openai: address, ..Plan::of("openai", 64) });
    let story = "Tell me a very long story about a lighthouse and its keeper.";
    let mut frames = Frames::over_http(daemon.http, "main", story);
    frames.read_pieces(3);
    server.kill();
    let end = frames.end();
    assert_eq!((&end["event"], &end["code"]), (&json!("error"), &json!("broke_off")), "{end}");
    let detail = end["detail"].as_str().unwrap();
    assert!(detail.starts_with("The answer broke off: its server "), "{detail}");
    let line = daemon.history("main")[1].clone();
    assert_eq!(line["outcome"], "error");
    let kept = line["content"].as_str().unwrap();
    assert!(kept.contains(frames.text.trim()), "{kept:?} has not {:?}", frames.text);

    let again = json!({ "message": "Are you still there?" });
    let (_, answer) = wire::post(daemon.http, "/chat", &again);
    assert_eq!(answer["backend"], "ollama", "{answer}");

    let _server = Llama::start(address);
    until("the daemon found its server again", || {
        (daemon.state()["active_backend"] == json!("openai")).then_some(())
    });
    let (_, answer) = wire::post(daemon.http, "/chat", &again);
    assert_eq!(answer["backend"], "openai", "{answer}");
}
