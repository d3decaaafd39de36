//! Every kind of fault at every phase, as a client sees it, and that the simulator serves the next
//! request afterwards.

use hailo::sim::{
    ollama::{Options, Running},
    scenario::{At, Fault, Kind, Phase, Reply},
};
use serde_json::json;

use crate::client::{
    Client, Ended, Gathered, chat, hello, instant, plan, quick, read_stream, saying, start, until,
    words,
};

const PHASES: [Phase; 5] =
    [Phase::BeforeHead, Phase::AfterHead, Phase::Token(1), Phase::Token(4), Phase::BeforeDone];

/// Tokens of the answer in these tests: eight words.
const TOKENS: usize = 11;

/// Lines that a phase lets through.
fn lines_before(phase: Phase) -> usize {
    match phase {
        Phase::BeforeHead | Phase::DuringLoad | Phase::AfterHead => 0,
        Phase::Token(count) => count as usize,
        Phase::BeforeDone => TOKENS,
    }
}

fn running() -> Running {
    let said = Reply { when: Some(String::new()), ..Reply::text(&words(8)) };
    saying(Options { restart: std::time::Duration::from_millis(20), ..instant() }, vec![said])
}

fn recovers(running: &Running, why: &str) {
    let fine = chat(running, &hello());
    assert_eq!((fine.ended, fine.lines.len()), (Ended::Whole, TOKENS + 1), "after {why}");
    assert_eq!(fine.done()["done_reason"], "stop");
}

fn cut(running: &Running, phase: Phase, kind: Kind) -> Gathered {
    plan(running, phase, kind);
    chat(running, &hello())
}

#[test]
fn a_reset_or_a_close_cuts_at_its_phase_and_nowhere_else() {
    let running = running();
    for phase in PHASES {
        for (kind, ended) in [(Kind::Reset, Ended::Reset), (Kind::Close, Ended::Closed)] {
            let why = format!("{kind:?} at {phase:?}");
            let seen = cut(&running, phase, kind);
            assert_eq!(seen.ended, ended, "{why}");
            // A reset may overtake bytes on their way; a close does not.
            if ended == Ended::Closed {
                assert_eq!(seen.lines.len(), lines_before(phase), "{why}");
                assert_eq!(seen.status == 200, phase != Phase::BeforeHead, "{why}");
            } else {
                assert!(seen.lines.len() <= lines_before(phase), "{why}");
            }
            recovers(&running, &why);
        }
    }
}

#[test]
fn an_early_end_and_garbage_keep_the_body_whole() {
    let running = running();
    for phase in PHASES {
        let why = format!("{phase:?}");
        let short = cut(&running, phase, Kind::Truncate);
        assert_eq!((short.status, short.ended), (200, Ended::Whole), "{why}");
        assert_eq!(short.lines.len(), lines_before(phase), "{why}");
        assert!(short.lines.iter().all(|line| line["done"] == false), "{why}");

        plan(&running, phase, Kind::Garbage);
        let mut client = Client::connect(running.addr());
        client.send("POST", "/api/chat", &hello().to_string());
        client.head().unwrap();
        let (chunks, ended) = client.rest();
        assert_eq!((chunks.len(), ended), (TOKENS + 2, Ended::Whole), "{why}");
        let is_json = |chunk: &Vec<u8>| serde_json::from_slice::<serde_json::Value>(chunk).is_ok();
        let odd: Vec<usize> = (0..chunks.len()).filter(|at| !is_json(&chunks[*at])).collect();
        assert_eq!(odd, [lines_before(phase)], "{why}");
        recovers(&running, &why);
    }
}

#[test]
fn errors_are_answers_before_the_head_and_lines_after_it() {
    let running = running();
    for phase in PHASES {
        let why = format!("{phase:?}");
        for kind in
            [Kind::ErrorLine("Boom".into()), Kind::Status { code: 502, text: "Boom".into() }]
        {
            let code = if matches!(kind, Kind::Status { .. }) { 502 } else { 500 };
            plan(&running, phase, kind);
            let mut client = Client::connect(running.addr());
            client.send("POST", "/api/chat", &hello().to_string());
            if phase == Phase::BeforeHead {
                assert_eq!(client.answer(), (code, json!({"error": "Boom"})), "{why}");
            } else {
                let seen = read_stream(&mut client);
                assert_eq!((seen.status, seen.ended), (200, Ended::Whole), "{why}");
                assert_eq!(seen.lines.len(), lines_before(phase) + 1, "{why}");
                assert_eq!(seen.lines.last(), Some(&json!({"error": "Boom"})), "{why}");
            }
            recovers(&running, &why);
        }
    }
}

#[test]
fn a_hang_or_a_stall_is_silence_until_the_client_leaves() {
    for (kind, options) in [(Kind::Hang, instant()), (Kind::Stall(3_600_000), quick())] {
        let said = Reply { when: Some(String::new()), ..Reply::text(&words(8)) };
        let running = saying(options, vec![said]);
        for (number, phase) in (1..).zip(PHASES) {
            let why = format!("{kind:?} at {phase:?}");
            plan(&running, phase, kind.clone());
            let mut client = Client::connect(running.addr());
            client.send("POST", "/api/chat", &hello().to_string());
            if phase != Phase::BeforeHead {
                client.head().unwrap();
            }
            for _ in 0..lines_before(phase) {
                client.line();
            }
            until("the fault acts", || {
                let log = serde_json::to_string(&running.log()).unwrap();
                log.matches("\"event\":\"fault\"").count() == number
            });
            assert!(client.is_silent(), "{why}");
            client.leave();
            recovers(&running, &why);
        }
    }
}

#[test]
fn a_crash_resets_refuses_and_comes_back_without_its_models() {
    let running = running();
    recovers(&running, "nothing");
    for phase in PHASES {
        let why = format!("{phase:?}");
        let loads = running.state().loads;
        let seen = cut(&running, phase, Kind::Crash);
        assert_ne!(seen.ended, Ended::Whole, "{why}");
        // Refused while it is down; the reset of the old life may still be under way after that.
        until("it serves again", || {
            let Ok(stream) = std::net::TcpStream::connect(running.addr()) else { return false };
            let mut client = Client::over(stream);
            client.try_send("/api/chat", &hello().to_string())
                && read_stream(&mut client).ended == Ended::Whole
        });
        assert_eq!(running.state().loads, loads + 1, "{why}: its models were gone");
        recovers(&running, &why);
    }
}

#[test]
fn a_slow_down_lasts_until_the_reset() {
    let running = running();
    let decode_ms = || {
        running.reset();
        chat(&running, &hello());
        eval_ms(&running)
    };
    let usual = decode_ms();
    running.fault(Fault { at: At::Next, phase: Phase::BeforeHead, kind: Kind::Slow(0.5) });
    chat(&running, &hello());
    chat(&running, &hello());
    assert_eq!(eval_ms(&running), usual * 2);
    assert_eq!(decode_ms(), usual);
}

fn eval_ms(running: &Running) -> u64 {
    let generated = running.log().into_iter().rev().find_map(|entry| match entry.event {
        hailo::sim::log::Event::Generated { decode_ms, .. } => Some(decode_ms / 10 * 10),
        _ => None,
    });
    generated.unwrap()
}

#[test]
fn a_gathered_answer_fails_as_a_whole() {
    let running = running();
    let mut body = hello();
    body["stream"] = json!(false);
    for phase in PHASES {
        plan(&running, phase, Kind::ErrorLine("Boom".into()));
        let answer = crate::client::call(&running, "POST", "/api/chat", &body);
        assert_eq!(answer, (500, json!({"error": "Boom"})), "{phase:?}");
        plan(&running, phase, Kind::Close);
        let mut client = Client::connect(running.addr());
        client.send("POST", "/api/chat", &body.to_string());
        assert_eq!(client.head().unwrap_err(), Ended::Closed, "{phase:?}");
    }
    recovers(&running, "gathered");
    assert_eq!(start(instant()).state().counters.generations, 0);
}
