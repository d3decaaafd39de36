//! The calls that use no model, tool calls, what is counted, and the shared parts as they show on
//! this simulator's wire.

use hailo::sim::{
    clock::Pace,
    log::Event,
    ollama::{Model, Options, State},
    scenario::{Kind, Phase, Reply},
};
use serde_json::{Value, json};

use crate::client::{
    Client, Ended, QWEN, ask, call, chat, hello, hold, instant, quick, saying, start, until, words,
};

fn get(client: &mut Client, path: &str) -> (u16, Value) {
    client.send("GET", path, "");
    client.answer()
}

#[test]
fn the_root_answers_get_with_its_words_and_head_without() {
    let running = start(instant());
    let mut client = Client::connect(running.addr());
    client.send("HEAD", "/", "");
    let head = client.head().unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, Some("17")));
    // The next answer begins where a body would have been.
    client.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let head = client.head().unwrap();
    assert_eq!(head.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(get(&mut Client::connect(running.addr()), "/api/version").1["version"], "0.33.0");
}

#[test]
fn lists_tell_digests_and_capabilities() {
    let running = start(instant());
    let mut client = Client::connect(running.addr());
    let (status, tags) = get(&mut client, "/api/tags");
    assert_eq!(status, 200);
    let models = tags["models"].as_array().unwrap();
    assert_eq!(models.len(), 5);
    for model in models {
        assert_eq!(model["digest"].as_str().unwrap().len(), 64);
        assert_eq!(model["details"]["format"], "gguf");
    }
    let capabilities = |name: &str| {
        let (status, shown) = call(&running, "POST", "/api/show", &json!({"model": name}));
        assert_eq!(status, 200, "{name}");
        assert!(shown["model_info"].is_object());
        shown["capabilities"].clone()
    };
    assert_eq!(capabilities("qwen3:1.7b"), json!(["completion", "tools", "thinking"]));
    assert_eq!(capabilities("qwen2:1.5b"), json!(["completion"]));
    let (status, error) = call(&running, "POST", "/api/show", &json!({"model": "nope"}));
    assert_eq!((status, error), (404, json!({"error": "model 'nope' not found"})));
}

#[test]
fn ps_does_not_wait_for_a_running_generation() {
    let running = start(quick());
    hold(&running, 1);
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &hello().to_string());
    client.head().unwrap();
    let (status, ps) = get(&mut Client::connect(running.addr()), "/api/ps");
    assert_eq!(status, 200);
    let model = &ps["models"][0];
    assert_eq!(model["name"], QWEN);
    assert_eq!((&model["size_vram"], &model["context_length"]), (&json!(0), &json!(4096)));
    assert!(model["expires_at"].as_str().unwrap() > "2300", "keep_alive -1: {model}");
    client.leave();
}

#[test]
fn a_deleted_model_is_gone_and_unloaded() {
    let running = start(instant());
    chat(&running, &hello()).done();
    let mut client = Client::connect(running.addr());
    client.send("DELETE", "/api/delete", &json!({"model": QWEN}).to_string());
    assert_eq!(client.answer(), (200, Value::Null));
    assert!(running.state().loaded.is_empty());
    assert_eq!(call(&running, "POST", "/api/chat", &hello()).0, 404);
    assert_eq!(call(&running, "DELETE", "/api/delete", &json!({"model": QWEN})).0, 404);
}

#[test]
fn what_is_not_simulated_says_so() {
    let running = start(instant());
    let body = json!({"model": QWEN, "input": "x"});
    let (status, error) = call(&running, "POST", "/api/embed", &body);
    assert_eq!(
        (status, error["error"].as_str()),
        (501, Some("this model does not support embeddings"))
    );
    assert_eq!(call(&running, "GET", "/api/nope", &json!({})).0, 404);
    assert_eq!(call(&running, "GET", "/api/chat", &json!({})).0, 405);
}

#[test]
fn bytes_that_are_no_http_end_the_connection() {
    let running = start(instant());
    let mut client = Client::connect(running.addr());
    client.raw(b"BLA\r\n\r\n");
    let head = client.head().unwrap();
    assert_eq!((head.status, head.header("connection")), (400, Some("close")));
    let mut client = Client::connect(running.addr());
    client.raw(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    client.leave();
    assert_eq!(get(&mut Client::connect(running.addr()), "/api/tags").0, 200);
    assert_eq!(running.state().counters.generations, 0);
}

#[test]
fn a_body_in_chunks_is_read_and_a_connection_serves_many_requests() {
    let running = saying(instant(), vec![Reply::text("One."), Reply::text("Two.")]);
    let mut client = Client::connect(running.addr());
    let body = hello().to_string();
    let (left, right) = body.split_at(body.len() / 2);
    let head = "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.raw(head.as_bytes());
    for part in [left, right] {
        client.raw(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes());
    }
    client.raw(b"0\r\n\r\n");
    assert_eq!(crate::client::read_stream(&mut client).text, "One.");
    client.send("POST", "/api/chat", &body);
    assert_eq!(crate::client::read_stream(&mut client).text, "Two.");
}

#[test]
fn generate_has_its_own_shape_and_knows_the_system_text() {
    let running = saying(instant(), vec![Reply::text("Fine <b>."), Reply::text("Again.")]);
    let body = json!({"model": QWEN, "prompt": "How?", "system": words(30), "stream": false,
        "truncate": false, "options": {"num_predict": 50}});
    let (status, answer) = call(&running, "POST", "/api/generate", &body);
    assert_eq!((status, &answer["response"]), (200, &json!("Fine <b>.")));
    assert!(answer.get("message").is_none() && answer["done"] == true, "{answer}");
    assert!(answer["prompt_eval_count"].as_u64().unwrap() > 39);
    let mut client = Client::connect(running.addr());
    let mut streamed = body;
    streamed["stream"] = json!(true);
    client.send("POST", "/api/generate", &streamed.to_string());
    client.head().unwrap();
    assert_eq!(client.line()["response"], "Aga");
    assert_eq!(running.state().counters.forbidden, Default::default());
}

#[test]
fn a_scripted_call_comes_when_its_tool_is_offered_and_not_otherwise() {
    let scripted = Reply {
        when: Some("time".into()),
        call: Some(json!({"name": "now", "arguments": {"zone": "UTC"}})),
        ..Reply::text("I have no clock.")
    };
    let running = saying(instant(), vec![scripted]);
    let mut body = ask(&[("system", "Be brief."), ("user", "What time is it?")]);
    assert_eq!(chat(&running, &body).text, "I have no clock.");
    body["tools"] = json!([{"type": "function", "function": {"name": "now", "parameters": {}}}]);
    let called = chat(&running, &body);
    assert_eq!(called.text, "");
    let function = &called.lines[0]["message"]["tool_calls"][0]["function"];
    assert_eq!((&function["name"], &function["arguments"]["zone"]), (&json!("now"), &json!("UTC")));
    assert_eq!(called.done()["done_reason"], "stop");
    body["stream"] = json!(false);
    let (_, whole) = call(&running, "POST", "/api/chat", &body);
    assert_eq!(whole["message"]["tool_calls"][0]["function"]["name"], "now");
    // The result goes back under the role tool, which is no forbidden one.
    let answered = json!([{"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": "", "tool_calls": whole["message"]["tool_calls"]},
        {"role": "tool", "content": "12:00"}]);
    body["messages"] = answered;
    body["stream"] = json!(true);
    assert_eq!(chat(&running, &body).status, 200);
    assert_eq!(running.state().counters.forbidden, Default::default());
}

#[test]
fn num_predict_ends_an_answer_with_length() {
    let running = saying(instant(), vec![Reply::text(&words(50))]);
    let mut body = hello();
    body["options"]["num_predict"] = json!(7);
    let cut = chat(&running, &body);
    assert_eq!(cut.lines.len(), 8);
    let done = cut.done();
    assert_eq!((&done["done_reason"], &done["eval_count"]), (&json!("length"), &json!(7)));
}

#[test]
fn a_half_emoji_is_held_back_and_counted() {
    let emoji = Reply { emoji: Some("🦞".into()), ..Reply::text(" yes") };
    let running = saying(instant(), vec![emoji]);
    let said = chat(&running, &hello());
    assert_eq!(said.text, "🦞 yes");
    assert!(said.lines[..2].iter().all(|line| line["message"]["content"] != ""));
    assert_eq!(said.done()["eval_count"], 4);
}

#[test]
fn what_our_client_must_not_send_is_counted_each_time() {
    let running = start(instant());
    chat(&running, &hello()).done();
    assert_eq!(running.state().counters.forbidden, Default::default());
    let bad = json!({"model": QWEN, "think": false,
        "messages": [{"role": "critic", "content": "bell \u{7}"}]});
    chat(&running, &bad).done();
    chat(&running, &bad).done();
    let counted = running.state().counters.forbidden;
    let expected = ["control", "num_predict", "role", "truncate"];
    assert_eq!(counted.keys().collect::<Vec<_>>(), expected);
    assert!(counted.values().all(|count| *count == 2), "{counted:?}");
    let named = running.log().iter().filter(|e| matches!(e.event, Event::Forbidden { .. })).count();
    assert_eq!(named, 8);
    running.reset();
    assert_eq!(running.state().counters, Default::default());
}

#[test]
fn a_seed_repeats_every_answer() {
    let speak = |seed| {
        let running = start(Options { seed: Some(seed), ..instant() });
        (0..3).map(|_| chat(&running, &hello()).text).collect::<Vec<_>>()
    };
    assert_eq!(speak(5), speak(5));
    assert_ne!(speak(5), speak(6));
}

#[test]
fn pace_decides_how_long_the_same_plan_takes() {
    let plan = |pace| {
        let running = start(Options { pace, decode_tps: 200.0, ..quick() });
        chat(&running, &hello()).done();
        let generated = running.log().into_iter().find_map(|entry| match entry.event {
            Event::Generated { tokens, decode_ms, .. } => Some((tokens, decode_ms)),
            _ => None,
        });
        generated.unwrap()
    };
    let (tokens, decode_ms) = plan(Pace::Published);
    assert_eq!(decode_ms, u64::from(tokens) * 5);
    assert_eq!(plan(Pace::Instant), (tokens, decode_ms));
    assert_eq!(plan(Pace::Factor(20.0)), (tokens, decode_ms));
}

#[test]
fn the_first_load_reads_the_card_and_the_next_one_the_cache() {
    let running = start(instant());
    chat(&running, &hello()).done();
    call(&running, "POST", "/api/chat", &json!({"model": QWEN, "messages": [], "keep_alive": 0}));
    chat(&running, &hello()).done();
    let loads: Vec<u64> = running
        .log()
        .iter()
        .filter_map(|entry| match entry.event {
            Event::Loaded { load_ms, .. } => Some(load_ms / 100),
            _ => None,
        })
        .collect();
    assert_eq!(loads.len(), 2);
    assert!((116..126).contains(&loads[0]), "986 MB at 85 MB/s: {loads:?}");
    assert!((15..25).contains(&loads[1]), "1.5 s from the page cache: {loads:?}");
}

#[test]
fn the_control_port_shows_breaks_and_resets() {
    let running = start(instant());
    chat(&running, &hello()).done();
    let mut control = Client::connect(running.control_addr());
    let (status, state) = get(&mut control, "/__sim/state");
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_value::<State>(state).unwrap(), running.state());
    let fault = r#"{"phase": {"token": 1}, "kind": "close"}"#;
    control.send("POST", "/__sim/fault", fault);
    assert_eq!(control.answer().0, 200);
    assert_eq!(chat(&running, &hello()).ended, Ended::Closed);
    assert_eq!(get(&mut control, "/__sim/log").1.as_array().unwrap().len(), running.log().len());
    control.send("POST", "/__sim/reset", "");
    assert_eq!(control.answer().0, 200);
    assert_eq!(running.state().counters.requests, 0);
    assert!(running.log().is_empty());
}

#[test]
fn a_voice_gives_the_words_and_its_loss_is_made_good() {
    let behind = saying(instant(), vec![Reply::text("Words of a real model.")]);
    let voice = Some(format!("http://{}", behind.addr()));
    let running = start(Options { voice, ..instant() });
    assert_eq!(chat(&running, &hello()).text, "Words of a real model.");
    behind.stop();
    let said = chat(&running, &hello());
    assert!(said.text.split_whitespace().count() >= 20, "{}", said.text);
    let failed = |entry: &hailo::sim::log::Entry| matches!(entry.event, Event::VoiceFailed { .. });
    assert!(running.log().iter().any(failed));
    assert!(
        hailo::sim::ollama::start(Options { voice: Some("ftp://x".into()), ..instant() }).is_err()
    );
}

#[test]
fn stopping_cuts_what_runs_as_ollama_does() {
    let running = start(quick());
    hold(&running, 1);
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &hello().to_string());
    client.head().unwrap();
    client.line();
    let addr = running.addr();
    running.stop();
    assert_ne!(client.rest().1, Ended::Whole);
    assert!(std::net::TcpStream::connect(addr).is_err());
}

#[test]
fn a_load_can_fail_half_way_and_leaves_no_model() {
    let running = start(instant());
    let phase = Phase::DuringLoad;
    let died = "llama-server process has terminated: exit status 1";
    crate::client::plan(&running, phase, Kind::Status { code: 500, text: died.into() });
    assert_eq!(call(&running, "POST", "/api/chat", &hello()), (500, json!({"error": died})));
    assert!(running.state().loaded.is_empty());
    crate::client::plan(&running, phase, Kind::Stall(60_000));
    let slow = chat(&running, &hello());
    assert!(slow.done()["load_duration"].as_u64().unwrap() > 60_000_000_000);
    // Loaded now: a load fault has nothing to act on.
    crate::client::plan(&running, phase, Kind::Reset);
    assert_eq!(chat(&running, &hello()).ended, Ended::Whole);
}

#[test]
fn models_named_on_the_command_line_are_the_models() {
    let models = vec![Model::named("mine"), Model::named("qwen3:1.7b")];
    let running = start(Options { models, ..instant() });
    let (_, tags) = get(&mut Client::connect(running.addr()), "/api/tags");
    assert_eq!(tags["models"][0]["name"], "mine:latest");
    let mut body = hello();
    body["model"] = json!("mine");
    let said = chat(&running, &body);
    assert_eq!(said.done()["model"], "mine", "the name as it was asked");
    until("it is loaded", || running.state().loaded[0].model == "mine:latest");
}
