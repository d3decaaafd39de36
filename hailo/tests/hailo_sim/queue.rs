//! One lock, its waiters, and the ghosts of those who left: H1 to H5.

use hailo::{
    model::Release::{V5_1_1, V5_3, V5_4},
    sim::{
        log::{End, Event},
        scenario::{Kind, Phase, Reply},
    },
};
use serde_json::json;

use crate::client::{Call, ask, chat, fault, get, hello, post, qwen, sim, until, wait_of};

fn is_generated(event: &Event) -> bool {
    matches!(event, Event::Generated { .. })
}

fn long() -> Reply {
    Reply { repeat: Some("and on ".into()), times: Some(300), ..Reply::default() }
}

/// A simulator whose first generation hangs after its head until its client leaves.
fn busy(release: hailo::model::Release) -> (hailo::sim::hailo::Running, Call) {
    let running = sim(release, vec![long(), Reply::text("the end")]);
    running.fault(fault(Phase::AfterHead, Kind::Hang));
    let mut first = chat(&running, &hello(release));
    first.head().unwrap();
    wait_of(&running, 1, |event| matches!(event, Event::Fault { .. }));
    (running, first)
}

#[test]
fn h01_a_second_chat_gets_no_byte_until_the_first_ends() {
    for release in [V5_1_1, V5_3, V5_4] {
        let (running, first) = busy(release);
        let second = chat(&running, &hello(release));
        wait_of(&running, 2, |event| *event == Event::LockWait);
        until(|| running.state().lock_waiting == 1);
        assert!(second.is_silent());
        assert_eq!(running.state().counters.overlapping, 1);
        drop(first);
        assert_eq!(second.answer().unwrap().lines().last().unwrap()["done"], true);
        let freed = wait_of(&running, 1, |event| *event == Event::LockFreed);
        let head = wait_of(&running, 2, |event| matches!(event, Event::HeadSent { .. }));
        assert!(freed.seq < head.seq);
    }
}

#[test]
fn h02_ps_waits_for_the_lock_and_the_routes_without_a_lock_do_not() {
    let (running, first) = busy(V5_1_1);
    let ps = Call::send(running.addr(), "GET", "/api/ps", "");
    wait_of(&running, 2, |event| *event == Event::LockWait);
    for path in ["/", "/api/version", "/api/tags", "/hailo/v1/list"] {
        assert_eq!(get(&running, path).status, 200, "{path}");
    }
    assert_eq!(post(&running, "/api/show", &json!({"model": qwen(V5_1_1)})).status, 200);
    assert!(ps.is_silent());
    assert_eq!(running.state().ps_while_busy, 1);
    drop(first);
    let models = ps.answer().unwrap().json();
    assert_eq!(models["models"][0]["name"], qwen(V5_1_1));
    assert!(models["models"][0]["expires_at"].is_string());
    assert!(models["models"][0].get("size_vram").is_none());
}

#[test]
fn h03_a_waiter_that_left_is_executed_as_a_ghost() {
    // Streaming: until a write fails, then one token to recover.
    let (running, first) = busy(V5_1_1);
    let ghost = chat(&running, &hello(V5_1_1));
    wait_of(&running, 2, |event| *event == Event::LockWait);
    drop(ghost);
    drop(first);
    wait_of(&running, 2, |event| matches!(event, Event::LockTaken { ghost: true, .. }));
    let generated = wait_of(&running, 2, is_generated);
    let Event::Generated { tokens, reason, .. } = generated.event else { unreachable!() };
    assert!((2..=3).contains(&tokens), "{tokens}");
    assert_eq!(reason, "aborted");
    // Not streaming: to the end, for nobody.
    let (running, first) = busy(V5_1_1);
    let mut body = hello(V5_1_1);
    body["stream"] = json!(false);
    let ghost = chat(&running, &body);
    wait_of(&running, 2, |event| *event == Event::LockWait);
    drop(ghost);
    drop(first);
    let generated = wait_of(&running, 2, is_generated);
    assert!(matches!(generated.event, Event::Generated { tokens: 300, .. }), "{generated:?}");
}

#[test]
fn h04_a_stream_whose_client_left_frees_the_lock_after_the_recovery_token() {
    let running = sim(V5_1_1, vec![long(), Reply::text("next")]);
    // A stop at the third token gives the client all the time it needs to leave.
    running.fault(fault(Phase::Token(3), Kind::Stall(200_000)));
    let mut call = chat(&running, &hello(V5_1_1));
    call.head().unwrap();
    for _ in 0..3 {
        call.chunk().unwrap();
    }
    drop(call);
    let ended = wait_of(&running, 1, |event| matches!(event, Event::Ended { .. }));
    let Event::Ended { end: End::Gone, sent } = ended.event else { panic!("{ended:?}") };
    assert!((3..=5).contains(&sent), "the first write may still succeed: {sent}");
    let generated = wait_of(&running, 1, is_generated);
    let Event::Generated { tokens, .. } = generated.event else { unreachable!() };
    assert_eq!(tokens, sent + 2);
    let freed = wait_of(&running, 1, |event| *event == Event::LockFreed);
    assert!(generated.seq < freed.seq);
    assert_eq!(ask(&running, &hello(V5_1_1)).text(), "next");
}

#[test]
fn h05_a_generation_without_a_stream_does_not_notice_that_its_client_left() {
    let running = sim(V5_1_1, vec![long()]);
    let mut body = hello(V5_1_1);
    body["stream"] = json!(false);
    running.fault(fault(Phase::BeforeHead, Kind::Stall(100_000)));
    let call = chat(&running, &body);
    wait_of(&running, 1, |event| matches!(event, Event::Fault { .. }));
    drop(call);
    let generated = wait_of(&running, 1, is_generated);
    assert!(matches!(generated.event, Event::Generated { tokens: 300, .. }), "{generated:?}");
    let freed = wait_of(&running, 1, |event| *event == Event::LockFreed);
    assert!(generated.seq < freed.seq);
}
