//! What goes wrong: H14, H17, H20, H21, H23 to H25, and the fields nobody may send.

use std::net::TcpStream;

use hailo::{
    model::Release::{V5_1_1, V5_3, V5_4},
    sim::{
        clock::Pace,
        hailo::Running,
        log::{End, Event},
        scenario::{Fault, Kind, Phase, Reply},
    },
};
use serde_json::{Value, json};

use crate::client::{
    Answer, Call, Ending, ask, body, chat, fault, get, hello, loads, post, qwen, sim, until,
    wait_of, with, words,
};

fn refused(running: &Running) -> bool {
    TcpStream::connect(running.addr())
        .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// A dead process refuses, then comes back and answers.
fn comes_back(running: &Running) {
    until(|| refused(running));
    until(|| !refused(running));
    assert_eq!(get(running, "/").status, 200);
}

fn ending(call: Call) -> Ending {
    match call.answer() {
        Ok(answer) => answer.ending,
        Err(ending) => ending,
    }
}

#[test]
fn h14_a_zero_penalty_gives_garbage_and_a_zero_top_k_kills_the_process() {
    let running = with(V5_1_1, |options| options.restart_s = 60.0);
    let mut body = hello(V5_1_1);
    body["options"]["frequency_penalty"] = json!(0);
    let garbage = ask(&running, &body).text();
    assert!(garbage.contains("!") && garbage.contains('\u{fffd}'), "{garbage}");
    assert_eq!(running.state().counters.forbidden["frequency_penalty"], 1);
    body["options"] = json!({"num_predict": 5, "top_k": 0});
    assert_eq!(ending(chat(&running, &body)), Ending::Reset);
    comes_back(&running);
    assert_eq!(running.state().counters.forbidden["top_k"], 1);
    let milder = with(V5_1_1, |options| options.top_k_zero_crashes = false);
    assert_eq!(ask(&milder, &body).lines().len(), 6);
}

fn poison(running: &Running, release: hailo::model::Release) {
    running.hold_device(true);
    let answer = ask(running, &hello(release));
    assert_eq!(answer.status, 500);
    assert!(answer.body().contains("  - Failed to create VDevice\n"), "{}", answer.body());
    assert!(running.state().poisoned);
    running.hold_device(false);
    // Load and ps both lie.
    let load = post(running, "/api/chat", &json!({"model": qwen(release), "keep_alive": -1}));
    assert_eq!(load.json()["done_reason"], "load");
    assert_eq!(get(running, "/api/ps").json()["models"][0]["name"], qwen(release));
    assert!(running.state().poisoned);
}

#[test]
fn h17_a_failed_load_poisons_the_server_until_an_unload() {
    for release in [V5_1_1, V5_3, V5_4] {
        let running = sim(release, vec![Reply::text("healed")]);
        poison(&running, release);
        let unload = json!({"model": qwen(release), "keep_alive": 0});
        assert_eq!(post(&running, "/api/chat", &unload).json()["done_reason"], "unload");
        assert!(!running.state().poisoned);
        assert_eq!(ask(&running, &hello(release)).text(), "healed");
    }
}

#[test]
fn h17_a_poisoned_old_server_dies_and_a_newer_one_says_that_nothing_is_loaded() {
    let running = with(V5_1_1, |options| options.restart_s = 60.0);
    poison(&running, V5_1_1);
    assert_eq!(ending(chat(&running, &hello(V5_1_1))), Ending::Reset);
    comes_back(&running);
    assert_eq!(running.state().crashes, 1);
    let running = sim(V5_4, vec![]);
    poison(&running, V5_4);
    for _ in 0..2 {
        let answer = ask(&running, &hello(V5_4));
        assert_eq!(answer.status, 500);
        assert!(answer.body().contains("  - LLM not loaded\n"), "{}", answer.body());
    }
    let mut with_tools = hello(V5_4);
    with_tools["tools"] = json!([{"type": "function"}]);
    let answer = ask(&running, &with_tools);
    assert_eq!(answer.status, 400);
    assert!(answer.body().contains("does not support tools"));
}

fn statuses(answer: &Answer) -> Vec<String> {
    answer.lines().iter().map(|line| line["status"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn h20_a_pull_reports_progress_and_ends_without_its_last_chunk() {
    for release in [V5_1_1, V5_4] {
        let running = with(release, |options| {
            options.pace = Pace::Factor(5000.0);
            options.models = Some(vec![]);
        });
        assert_eq!(get(&running, "/api/tags").json()["models"], json!([]));
        let answer = post(&running, "/api/pull", &json!({"model": qwen(release)}));
        let statuses = statuses(&answer);
        assert_eq!(statuses.last().unwrap(), "success");
        assert_eq!(statuses[0].starts_with("resolved_version"), release == V5_4);
        let lines = answer.lines();
        let progress = lines.iter().find(|line| line["completed"].is_u64()).unwrap();
        assert_eq!(progress["total"], 1_760_936_591_u64);
        assert!(progress["digest"].as_str().unwrap().starts_with("sha256:"));
        assert_eq!(answer.ending, Ending::Eof);
        assert_eq!(get(&running, "/api/tags").json()["models"][0]["name"], qwen(release));
    }
}

#[test]
fn h20_a_client_that_leaves_a_pull_or_a_full_disk_kills_the_process() {
    let running = with(V5_1_1, |options| options.restart_s = 60.0);
    let mut call = Call::send(
        running.addr(),
        "POST",
        "/api/pull",
        &json!({"model": qwen(V5_1_1)}).to_string(),
    );
    call.head().unwrap();
    call.chunk().unwrap();
    drop(call);
    comes_back(&running);
    let running = with(V5_1_1, |options| {
        options.restart_s = 60.0;
        options.pull_error = Some("filesystem error: cannot rename".into());
    });
    let mut pull = json!({"model": qwen(V5_1_1)});
    let call = Call::send(running.addr(), "POST", "/api/pull", &pull.to_string());
    assert_eq!(ending(call), Ending::Reset);
    comes_back(&running);
    // Without a stream it is an error like any other.
    pull["stream"] = json!(false);
    let answer = post(&running, "/api/pull", &pull);
    assert_eq!(answer.status, 500);
    assert!(answer.body().contains("cannot rename"));
    assert_eq!(running.state().crashes, 1);
}

#[test]
fn h21_a_deleted_model_is_gone_and_a_second_delete_is_404() {
    let running = sim(V5_1_1, vec![]);
    let name = json!({"model": qwen(V5_1_1)}).to_string();
    let delete = || Call::send(running.addr(), "DELETE", "/api/delete", &name).answer().unwrap();
    let first = delete();
    assert_eq!((first.status, first.body().as_str()), (200, ""));
    let second = delete();
    assert_eq!(second.status, 404);
    assert_eq!(second.body(), r#"{"code":"not_found","error":"model not found"}"#);
    assert!(ask(&running, &hello(V5_1_1)).body().contains("not found"));
    // The manifest stays in the list of all models.
    let list = get(&running, "/hailo/v1/list").json();
    assert!(list["models"].as_array().unwrap().contains(&json!(qwen(V5_1_1))));
}

#[test]
fn h23_a_sudden_death_resets_in_the_middle_of_a_stream_and_of_a_load() {
    for phase in [Phase::Token(2), Phase::DuringLoad] {
        let running = with(V5_1_1, |options| options.restart_s = 60.0);
        running.fault(fault(phase, Kind::Crash));
        assert_eq!(ending(chat(&running, &hello(V5_1_1))), Ending::Reset, "{phase:?}");
        comes_back(&running);
        // The new process knows nothing of the old one's model.
        assert_eq!(running.state().loaded_model, None);
        let answer = ask(&running, &hello(V5_1_1));
        assert_eq!(answer.lines().last().unwrap()["done"], true);
        assert_eq!(loads(&running).len(), if phase == Phase::DuringLoad { 1 } else { 2 });
    }
}

#[test]
fn h24_a_hang_is_silent_with_or_without_a_head_and_keeps_the_lock() {
    for (phase, head) in [(Phase::AfterHead, true), (Phase::BeforeHead, false)] {
        let running = sim(V5_1_1, vec![]);
        running.fault(fault(phase, Kind::Hang));
        let mut call = chat(&running, &hello(V5_1_1));
        wait_of(&running, 1, |event| matches!(event, Event::Fault { .. }));
        if head {
            call.head().unwrap();
        }
        assert!(call.is_silent());
        assert!(running.state().lock_held);
        assert_eq!(get(&running, "/").status, 200);
        drop(call);
        wait_of(&running, 1, |event| *event == Event::LockFreed);
        assert_eq!(ask(&running, &hello(V5_1_1)).ending, Ending::Complete);
    }
}

#[test]
fn h24_a_reset_ends_a_hang_and_only_one_request_holds_the_lock() {
    let running = sim(V5_1_1, vec![]);
    running.fault(fault(Phase::AfterHead, Kind::Hang));
    let hung = chat(&running, &hello(V5_1_1));
    wait_of(&running, 1, |event| matches!(event, Event::Fault { .. }));
    running.reset();
    // The number of this request is the hung one's again.
    let answer = ask(&running, &hello(V5_1_1));
    assert_eq!(answer.lines().last().unwrap()["done"], true);
    assert_eq!(ending(hung), Ending::Eof);
    until(|| !running.state().lock_held);
}

#[test]
fn h24_a_wedged_server_keeps_the_lock_after_its_client_left_until_it_is_helped() {
    let running = sim(V5_1_1, vec![]);
    let day_ms = 86_400_000;
    running.fault(fault(Phase::BeforeHead, Kind::Stall(day_ms)));
    let stuck = chat(&running, &hello(V5_1_1));
    wait_of(&running, 1, |event| matches!(event, Event::Fault { .. }));
    drop(stuck);
    let probe = Call::send(running.addr(), "GET", "/api/ps", "");
    wait_of(&running, 2, |event| *event == Event::LockWait);
    assert_eq!(get(&running, "/").status, 200);
    assert!(probe.is_silent() && running.state().lock_held);
    running.reset();
    assert_eq!(probe.answer().unwrap().status, 200);
}

#[test]
fn the_model_that_kills_the_old_release_runs_in_the_newer_ones() {
    let question = [("system", "Be brief."), ("user", "Why?")];
    let running = with(V5_1_1, |options| options.restart_s = 60.0);
    let old = body("deepseek_r1_distill_qwen:1.5b", &question);
    assert_eq!(ending(chat(&running, &old)), Ending::Reset);
    comes_back(&running);
    let running = sim(V5_3, vec![]);
    let text = ask(&running, &body("deepseek_r1:1.5b", &question)).text();
    // It starts inside its thinking: only the closing tag is seen.
    assert!(text.contains("</think>") && !text.contains("<think>"), "{text}");
    let text = ask(&running, &body("qwen3:1.7b", &question)).text();
    assert!(text.starts_with("<think>\n") && text.contains("\n</think>\n\n"), "{text}");
    let quiet = [("system", "Be brief."), ("user", "Why? /no_think")];
    let text = ask(&running, &body("qwen3:1.7b", &quiet)).text();
    assert!(text.starts_with("<think>\n\n</think>\n\n"), "{text}");
}

fn decode_ms(running: &Running, request: u64) -> u64 {
    match wait_of(running, request, |event| matches!(event, Event::Generated { .. })).event {
        Event::Generated { decode_ms, .. } => decode_ms,
        _ => unreachable!(),
    }
}

#[test]
fn h25_throttling_halves_the_rate_until_it_is_over() {
    let say = || Reply::text(&words(40));
    let running = sim(V5_3, vec![say(), say(), say()]);
    ask(&running, &hello(V5_3));
    running.fault(fault(Phase::AfterHead, Kind::Slow(0.5)));
    ask(&running, &hello(V5_3));
    let (healthy, throttled) = (decode_ms(&running, 1), decode_ms(&running, 2));
    // 52 tokens, the first at the end of prefill, and the hidden end: 52 intervals of 136 ms.
    assert!(healthy.abs_diff(52 * 136) < 30, "{healthy}");
    assert!(throttled.abs_diff(2 * healthy) < 30, "{healthy} {throttled}");
    running.reset();
    ask(&running, &hello(V5_3));
    assert!(decode_ms(&running, 1).abs_diff(healthy) < 30);
}

#[test]
fn every_kind_of_fault_acts_at_every_phase_and_the_next_request_is_answered() {
    let kinds = [
        Kind::Reset,
        Kind::Close,
        Kind::Truncate,
        Kind::Garbage,
        Kind::ErrorLine("boom".into()),
        Kind::Status { code: 500, text: "boom".into() },
        Kind::Status { code: 503, text: "boom".into() },
        Kind::Stall(100),
    ];
    for phase in [Phase::BeforeHead, Phase::AfterHead, Phase::Token(1), Phase::BeforeDone] {
        for kind in &kinds {
            let running = with(V5_1_1, |options| {
                options.pace = Pace::Factor(2000.0);
                options.scenario.replies = vec![Reply::text("one two three"), Reply::text("well")];
            });
            running.fault(fault(phase, kind.clone()));
            let before = phase == Phase::BeforeHead;
            match (kind, chat(&running, &hello(V5_1_1)).answer()) {
                (Kind::Reset, Err(ending)) => assert_eq!(ending, Ending::Reset),
                (Kind::Reset, Ok(answer)) => assert_eq!(answer.ending, Ending::Reset),
                (Kind::Close | Kind::Truncate, Err(ending)) => {
                    assert_eq!((ending, before), (Ending::Eof, true));
                }
                (Kind::Close, Ok(answer)) => assert_eq!(answer.ending, Ending::Eof),
                (Kind::Truncate, Ok(answer)) => {
                    assert_eq!(answer.ending, Ending::Complete);
                    assert!(!answer.body().contains("\"done\":true"));
                }
                (Kind::Garbage, Ok(answer)) => {
                    assert_eq!(answer.body().contains("not json"), !before);
                }
                (Kind::ErrorLine(_), Ok(answer)) => {
                    assert!(answer.body().contains(r#"{"error":"boom"}"#), "{}", answer.body());
                    assert_eq!(answer.ending, Ending::Complete);
                }
                (Kind::Status { code, .. }, Ok(answer)) if before => {
                    assert_eq!(answer.status, *code);
                    assert!(answer.body().contains("  - boom\n"));
                }
                (Kind::Status { .. }, Ok(answer)) => assert_eq!(answer.ending, Ending::Eof),
                (Kind::Stall(_), Ok(answer)) => assert_eq!(answer.text(), "one two three"),
                (kind, other) => panic!("{kind:?} at {phase:?}: {other:?}"),
            }
            wait_of(&running, 1, |event| *event == Event::LockFreed);
            let next = ask(&running, &hello(V5_1_1));
            assert_eq!(next.ending, Ending::Complete, "{kind:?} at {phase:?}");
            assert_eq!(running.state().counters.overlapping, 0);
        }
    }
}

#[test]
fn a_failing_load_of_the_device_poisons_as_a_held_device_does() {
    let running = sim(V5_4, vec![]);
    let text = "Failed to create LLM".into();
    running.fault(fault(Phase::DuringLoad, Kind::Status { code: 500, text }));
    assert!(ask(&running, &hello(V5_4)).body().contains("  - Failed to create LLM\n"));
    assert!(ask(&running, &hello(V5_4)).body().contains("LLM not loaded"));
}

#[test]
fn a_clean_conversation_has_nothing_forbidden_and_no_overlap() {
    let running = sim(V5_3, vec![]);
    for _ in 0..20 {
        ask(&running, &hello(V5_3));
    }
    let counters = running.state().counters;
    assert_eq!((counters.generations, counters.overlapping), (20, 0));
    assert!(counters.forbidden.is_empty(), "{counters:?}");
    // A connection that is kept does not make its last request an overlap either.
    let body = hello(V5_3).to_string();
    let mut kept = Vec::new();
    for _ in 0..10 {
        let mut call = Call::send(running.addr(), "POST", "/api/chat", &body);
        call.head().unwrap();
        while call.chunk().unwrap().is_some() {}
        kept.push(call);
    }
    assert_eq!(running.state().counters.overlapping, 0);
}

#[test]
fn the_control_port_tells_the_state_and_plans_faults() {
    let running = sim(V5_1_1, vec![Reply::text("one two"), Reply::text("three")]);
    let control = running.control_addr();
    let call = |method: &str, path: &str, body: &Value| {
        Call::send(control, method, path, &body.to_string()).answer().unwrap()
    };
    let plan = Fault::next(Phase::Token(1), Kind::Close);
    assert_eq!(call("POST", "/__sim/fault", &json!(plan)).status, 200);
    assert_eq!(call("POST", "/__sim/fault", &json!({"phase": "tomorrow"})).status, 400);
    assert_eq!(ask(&running, &hello(V5_1_1)).ending, Ending::Eof);
    wait_of(&running, 1, |event| *event == Event::LockFreed);
    let state = call("GET", "/__sim/state", &Value::Null).json();
    assert_eq!(state["generations"], 1);
    assert_eq!(state["loaded_model"], qwen(V5_1_1));
    let log = call("GET", "/__sim/log", &Value::Null).json();
    assert!(log.as_array().unwrap().iter().any(|entry| entry["event"] == "fault"));
    assert_eq!(call("POST", "/__sim/reset", &Value::Null).status, 200);
    assert_eq!(running.state().counters.generations, 0);
    assert_eq!(get(&running, "/__sim/state").status, 404, "not on the product's port");
    assert!(
        running
            .log()
            .iter()
            .all(|entry| !matches!(entry.event, Event::Ended { end: End::Cut, .. }))
    );
}
