//! States that heal: a poisoned server, prompts too long for the device, models that come and go,
//! answers that are cut, empty, or never end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crayfish::event::Event;
use hailo::model::Release;
use hailo::sim::clock::Pace;
use hailo::sim::hailo as hailo_sim;
use hailo::sim::log;
use hailo::sim::scenario::{Fault, Kind, Phase, Reply, Scenario};
use serde_json::{Value, json};

use super::house::{House, Parts, Recorder};
use super::servers::{HailoSim, OllamaSim, QWEN, always, instant, instant_ollama};

/// hailo-sim first, then Ollama, which always says the same.
struct Pair {
    hailo: HailoSim,
    _ollama: OllamaSim,
    house: House,
    _dir: tempfile::TempDir,
}

const CPU: [&str; 3] = ["From", " the", " CPU"];

fn pair(hailo: HailoSim, answer_tokens_max: u32) -> Pair {
    let config = hailo.config();
    pair_with(hailo, config, answer_tokens_max)
}

fn pair_with(
    hailo: HailoSim,
    config: crayfish::provider::hailo::HailoConfig,
    answer_tokens_max: u32,
) -> Pair {
    let ollama = OllamaSim::start(instant_ollama(always(&CPU)));
    let recorder = Arc::<Recorder>::default();
    let backends = vec![hailo.backend_with(&recorder, config), ollama.backend(&recorder)];
    let dir = tempfile::tempdir().unwrap();
    let mut parts = Parts::new(recorder, backends);
    parts.settings.answer_tokens_max = answer_tokens_max;
    let house = parts.start(dir.path());
    Pair { hailo, _ollama: ollama, house, _dir: dir }
}

impl Pair {
    fn generations(&self) -> u64 {
        self.hailo.state().counters.generations
    }
}

fn script(replies: Vec<Reply>) -> Scenario {
    Scenario { replies, ..Scenario::default() }
}

/// Somebody else's request: a POST on a connection of its own, and all that comes back.
async fn foreign(addr: SocketAddr, path: &str, body: Value) -> String {
    let path = path.to_owned();
    let call = move || {
        let body = body.to_string();
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        // A server that dies resets; what came before is the answer.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    tokio::task::spawn_blocking(call).await.unwrap()
}

/// The name the release gives our model.
fn qwen(release: Release) -> &'static str {
    if release == Release::V5_1_1 { QWEN } else { "qwen2.5:1.5b" }
}

/// A load by somebody else fails because the device is held: the server now believes in a model
/// that is not there.
async fn poison(sim: &HailoSim, release: Release) {
    sim.hold_device(true);
    let body = json!({"model": qwen(release), "keep_alive": 60});
    let answer = foreign(sim.addr(), "/api/chat", body).await;
    assert!(answer.contains("Failed to create VDevice"), "{answer}");
    sim.hold_device(false);
    assert!(sim.state().poisoned);
}

#[tokio::test]
async fn a_device_held_by_another_program_is_left_to_it_and_used_once_it_is_free() {
    for release in Release::ALL {
        let mut pair = pair(HailoSim::start(instant(release, always(&["NPU"]))), 50);
        pair.hailo.hold_device(true);
        assert_eq!(pair.house.ask("hello").await.text, CPU.concat());
        assert!(!pair.hailo.state().poisoned, "the failed load was cleared away");
        assert_eq!(pair.house.breaker(0), "open");
        assert!(pair.house.provider.states()[0].last_error.is_some());
        pair.hailo.hold_device(false);
        pair.house.recover();
        pair.house.closed(0).await;
        assert_eq!(pair.house.ask("hello").await.text, "NPU", "{release:?}");
        assert_eq!(pair.hailo.state().crashes, 0, "{release:?}: no request met the poison");
    }
}

#[tokio::test]
async fn a_server_poisoned_by_somebody_else_heals_by_an_unload_and_answers_the_same_turn() {
    for release in [Release::V5_3, Release::V5_4] {
        let mut pair = pair(HailoSim::start(instant(release, always(&["NPU"]))), 50);
        poison(&pair.hailo, release).await;
        assert_eq!(pair.house.ask("hello").await.text, "NPU", "{release:?}");
        assert_eq!(pair.generations(), 2, "one retry");
        assert_eq!(pair.house.breaker(0), "closed");
        let asked =
            |event: &log::Event| matches!(event, log::Event::Unloaded { why } if why == "asked");
        assert_eq!(pair.hailo.count(asked), 1);
        let moved = |event: &Event| matches!(event, Event::FellBack { .. });
        assert!(!pair.house.heard().iter().any(moved));
    }
}

#[tokio::test]
async fn the_oldest_release_dies_of_the_poison_and_is_used_again_after_its_restart() {
    let options = hailo_sim::Options {
        pace: Pace::Factor(20.0),
        restart_s: 6.0,
        ..instant(Release::V5_1_1, always(&["NPU"]))
    };
    let mut pair = pair(HailoSim::start(options), 50);
    poison(&pair.hailo, Release::V5_1_1).await;
    assert_eq!(pair.house.ask("hello").await.text, CPU.concat(), "the same turn is answered");
    assert_eq!(pair.hailo.state().crashes, 1);
    assert_eq!(pair.generations(), 1, "a dead server is not asked twice");
    assert_eq!(pair.house.breaker(0), "open");
    pair.house.recover();
    pair.house.closed(0).await;
    assert_eq!(pair.house.ask("hello").await.text, "NPU");
    assert_eq!(pair.hailo.state().crashes, 1);
}

#[tokio::test]
async fn a_prompt_too_long_for_the_device_is_run_shorter_and_the_bound_is_remembered() {
    let options = hailo_sim::Options {
        pace: Pace::Factor(20.0),
        ..instant(Release::V5_1_1, always(&["Short", " answer"]))
    };
    let hailo = HailoSim::start(options);
    let config =
        crayfish::provider::hailo::HailoConfig { model: "llama3.2:3b".into(), ..hailo.config() };
    let mut pair = pair_with(hailo, config, 50);
    pair.house.ask("hello").await;
    // The device needs longer than the model's table says.
    let text = "read failed!".to_owned();
    pair.hailo.fault(Fault::next(Phase::BeforeHead, Kind::Status { code: 500, text }));
    let long = "The crayfish walks. ".repeat(45);
    let answer = pair.house.ask(&long).await;
    assert_eq!(answer.text, "Short answer", "by the NPU, on the second try");
    assert!(answer.clipped, "and the person is told that it was shortened");
    assert_eq!(pair.house.breaker(0), "closed", "no fault of the server");
    let before = pair.house.recorder.chats().len();
    assert!(pair.house.ask(&long).await.clipped);
    assert_eq!(pair.house.recorder.chats().len(), before + 1, "short enough at once");
    assert!(pair.house.heard().iter().all(|event| !matches!(event, Event::FellBack { .. })));
}

#[tokio::test]
async fn a_missing_model_is_told_and_used_as_soon_as_it_is_there() {
    for release in Release::ALL {
        let options = hailo_sim::Options {
            models: Some(vec!["qwen2:1.5b".into()]),
            ..instant(release, always(&["NPU"]))
        };
        let mut pair = pair(HailoSim::start(options), 50);
        for _ in 0..4 {
            assert_eq!(pair.house.ask("hello").await.text, CPU.concat());
        }
        let told = pair.house.heard().into_iter().find_map(|event| match event {
            Event::ModelMissing { detail, .. } => Some(detail),
            _ => None,
        });
        let detail = told.expect("the person is told");
        assert!(detail.contains(QWEN) && detail.contains("qwen2:1.5b"), "{detail}");
        assert_eq!(pair.house.breaker(0), "closed", "the server is well");
        assert_eq!(pair.house.provider.active().as_deref(), Some("ollama"));
        let pull = json!({"model": qwen(release), "stream": false});
        let answer = foreign(pair.hailo.addr(), "/api/pull", pull).await;
        assert!(answer.contains("success"), "{answer}");
        assert_eq!(pair.house.ask("hello").await.text, "NPU", "{release:?}");
        assert_eq!(pair.house.provider.active().as_deref(), Some("hailo"));
    }
}

#[tokio::test]
async fn a_model_deleted_under_us_is_missing_and_not_a_fault() {
    for release in Release::ALL {
        let mut pair = pair(HailoSim::start(instant(release, always(&["NPU"]))), 50);
        pair.house.ask("hello").await;
        let request = format!(
            "DELETE /api/delete HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n",
            pair.hailo.addr()
        );
        let body = json!({"model": qwen(release)}).to_string();
        let mut stream = TcpStream::connect(pair.hailo.addr()).unwrap();
        write!(
            stream,
            "{request}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(pair.house.ask("hello").await.text, CPU.concat(), "{release:?}");
        let missing = |event: &Event| matches!(event, Event::ModelMissing { .. });
        assert!(pair.house.heard().iter().any(missing), "{release:?}");
        assert_eq!(pair.house.breaker(0), "closed");
    }
}

#[tokio::test]
async fn an_answer_that_reaches_its_bound_is_whole_so_far_and_marked_as_cut() {
    let words = ["One", " two", " three", " four", " five", " six"];
    for release in Release::ALL {
        let pair = pair(HailoSim::start(instant(release, always(&words))), 4);
        let answer = pair.house.ask("count").await;
        assert_eq!((answer.text.as_str(), answer.cut), ("One two three four", true));
        let answer = pair.house.ask("go on").await;
        assert!(answer.cut && pair.hailo.state().last_continuation, "{release:?}");
        for sent in pair.house.recorder.chats() {
            assert_eq!(sent.budget().1, 4, "the bound is always sent");
        }
    }
}

#[tokio::test]
async fn an_empty_answer_is_tried_once_more_with_another_seed() {
    let empty = || Reply { tokens: Some(vec![]), ..Reply::default() };
    let blank = Reply { tokens: Some(vec![" ".into(), "\n".into()]), ..Reply::default() };
    for first in [empty(), blank] {
        let replies = vec![first, Reply::text("Hello.")];
        let mut pair = pair(HailoSim::start(instant(Release::V5_4, script(replies))), 50);
        assert_eq!(pair.house.ask("hello").await.text, "Hello.");
        let seeds: Vec<Option<u64>> = pair
            .house
            .recorder
            .chats()
            .iter()
            .map(|sent| sent.body["options"]["seed"].as_u64())
            .collect();
        assert_eq!(seeds.len(), 2);
        assert!(seeds[0] != seeds[1] && seeds[1].is_some(), "{seeds:?}");
        assert_eq!(pair.house.breaker(0), "closed");
        assert!(pair.house.heard().iter().all(|event| !matches!(event, Event::FellBack { .. })));
    }
    let replies = vec![empty(), empty(), Reply::text("too late")];
    let pair = pair(HailoSim::start(instant(Release::V5_4, script(replies))), 50);
    assert_eq!(pair.house.ask("hello").await.text, CPU.concat(), "twice empty is enough");
    assert_eq!(pair.generations(), 2);
}

#[tokio::test]
async fn an_answer_that_loops_is_cut_off_early_and_not_asked_for_again() {
    let looping = Reply {
        text: Some("Once upon a time".into()),
        repeat: Some(" and then another crayfish came".into()),
        ..Reply::default()
    };
    let options = hailo_sim::Options {
        pace: Pace::Factor(100.0),
        ..instant(Release::V5_4, script(vec![looping]))
    };
    let mut pair = pair(HailoSim::start(options), 400);
    let told = pair.house.say("tell me a story").await;
    assert_eq!(told.code(), "broke_off");
    assert!(told.text.starts_with("Once upon a time"), "{:?}", told.text);
    assert!(told.text.matches("crayfish").count() < 40, "{:?}", told.text);
    assert_eq!(pair.generations(), 1, "no retry after words were shown");
    assert!(pair.house.heard().iter().all(|event| !matches!(event, Event::FellBack { .. })));
    assert_eq!(pair.house.breaker(0), "closed");
    super::house::until("it was stopped", || !pair.hailo.state().lock_held).await;
    let decoded = pair.hailo.log().into_iter().find_map(|entry| match entry.event {
        log::Event::Generated { tokens, .. } => Some(tokens),
        _ => None,
    });
    assert!(decoded.unwrap() < 200, "{decoded:?} tokens were decoded");
    assert!(!pair.house.ask("hello").await.text.is_empty());
}

/// Thinking is never shown, in no form in which the NPU's models do it. The ledger keeps it: 5.4
/// compares messages, and without it the next prompt would not continue. The older releases
/// compare rendered text, from which the templates drop earlier thinking, so there it never does.
#[tokio::test]
async fn thinking_is_never_shown_and_does_not_break_the_continuation() {
    let table = [
        (Release::V5_4, "qwen3:1.7b"),
        (Release::V5_3, "qwen3:1.7b"),
        (Release::V5_3, "deepseek_r1:1.5b"),
        (Release::V5_4, "deepseek_r1:1.5b"),
    ];
    for (release, model) in table {
        let reply = Reply {
            think: Some("The person greets me. Shall I greet back?".into()),
            text: Some("Good day to you.".into()),
            ..Reply::default()
        };
        let scenario = Scenario { cycle: true, replies: vec![reply], ..Scenario::default() };
        let hailo = HailoSim::start(instant(release, scenario));
        let config =
            crayfish::provider::hailo::HailoConfig { model: model.into(), ..hailo.config() };
        let pair = pair_with(hailo, config, 100);
        for turn in 0..3 {
            let answer = pair.house.ask("hello").await;
            assert_eq!(answer.text, "Good day to you.", "{model}");
            assert_eq!(answer.backend, "hailo");
            let continues = turn > 0 && release == Release::V5_4;
            assert_eq!(
                pair.hailo.state().last_continuation,
                continues,
                "{model} {release:?}, turn {turn}"
            );
        }
    }
}

/// The oldest release dies of DeepSeek at every request (specification, 1.10).
#[tokio::test]
async fn a_model_that_kills_its_server_costs_a_fallback_and_no_second_try() {
    let hailo = HailoSim::start(instant(Release::V5_1_1, Scenario::default()));
    let config = crayfish::provider::hailo::HailoConfig {
        model: "deepseek_r1_distill_qwen:1.5b".into(),
        ..hailo.config()
    };
    let mut pair = pair_with(hailo, config, 100);
    pair.house.recover();
    for _ in 0..5 {
        let answer = pair.house.ask("hello").await;
        assert_eq!((answer.text.as_str(), answer.backend.as_str()), ("From the CPU", "ollama"));
    }
    assert_eq!(pair.house.breaker(1), "closed");
}
