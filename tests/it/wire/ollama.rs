//! Ollama's habits: its prefix cache, its reloads, its silent truncation, its thinking.

use std::sync::Arc;

use crayfish::event::Event;
use crayfish::provider::ollama::OllamaConfig;
use hailo::sim::log;
use hailo::sim::ollama as ollama_sim;
use hailo::sim::scenario::{Fault, Kind, Phase, Reply, Scenario};

use super::house::{House, Parts, Recorder, until};
use super::openai_peer::OpenAiPeer;
use super::servers::{OllamaSim, always, instant_ollama};

fn house(sim: &OllamaSim, config: OllamaConfig, dir: &tempfile::TempDir) -> House {
    let recorder = Arc::<Recorder>::default();
    let backends = vec![sim.backend_with(&recorder, config)];
    Parts::new(recorder, backends).start(dir.path())
}

#[tokio::test]
async fn from_the_second_turn_on_only_the_newest_message_is_prefilled() {
    for version in ["0.12.6", "0.29.0", "0.33.0"] {
        let options =
            ollama_sim::Options { version: version.into(), ..instant_ollama(Scenario::default()) };
        let sim = OllamaSim::start(options);
        let dir = tempfile::tempdir().unwrap();
        let house = house(&sim, sim.config(), &dir);
        for turn in 1..=8 {
            house.ask("Tell me more about the brook, please.").await;
            let state = sim.state();
            if turn > 1 {
                assert!(state.prefilled_tokens < 40, "{version}, turn {turn}: {state:?}");
                assert!(state.prompt_tokens > state.prefilled_tokens, "{version}, turn {turn}");
            }
        }
        assert_eq!(sim.state().truncated, 0);
    }
}

#[tokio::test]
async fn options_are_the_same_in_every_request_so_that_the_model_is_loaded_once() {
    let sim = OllamaSim::start(instant_ollama(Scenario::default()));
    let dir = tempfile::tempdir().unwrap();
    let config = OllamaConfig { threads: Some(3), ..sim.config() };
    let mut house = house(&sim, config, &dir);
    house.recover();
    until("warmed up", || sim.state().loads >= 1).await;
    for _ in 0..6 {
        house.ask("Tell me more.").await;
    }
    let state = sim.state();
    assert_eq!((state.loads, state.reloads), (1, 0), "{state:?}");
    let bodies: Vec<_> = house.recorder.all().into_iter().map(|sent| sent.body).collect();
    let bodies: Vec<_> = bodies.iter().filter(|body| body.get("messages").is_some()).collect();
    assert!(bodies.iter().any(|body| body["messages"].as_array().unwrap().is_empty()), "a load");
    for body in bodies {
        assert_eq!(body["options"]["num_ctx"], 4096, "{body}");
        assert_eq!(body["options"]["num_thread"], 3, "{body}");
    }
}

/// Our count is an estimate. Where it is too low the server says so instead of cutting in silence,
/// and the prompt is made shorter.
#[tokio::test]
async fn a_prompt_that_is_too_long_after_all_is_refused_and_run_shorter() {
    for version in ["0.12.6", "0.33.0"] {
        let options = ollama_sim::Options {
            version: version.into(),
            ..instant_ollama(always(&["Short", " answer"]))
        };
        let sim = OllamaSim::start(options);
        let dir = tempfile::tempdir().unwrap();
        let house = house(&sim, sim.config(), &dir);
        let text = "the input exceeds the available context size".to_owned();
        sim.fault(Fault::next(Phase::BeforeHead, Kind::Status { code: 400, text }));
        let answer =
            house.ask(&"The crayfish walks over the stones of the brook. ".repeat(100)).await;
        assert_eq!(answer.text, "Short answer", "{version}");
        assert!(answer.clipped, "{version}: and the person is told that it was shortened");
        assert_eq!(sim.state().truncated, 0, "{version}");
        assert_eq!(house.breaker(0), "closed", "{version}: no fault of the server");
        let chats = house.recorder.chats();
        assert_eq!(chats.len(), 2, "{version}: one retry");
        assert_eq!(chats[0].body["truncate"], false);
        assert_eq!(chats[0].body["shift"], false);
    }
}

#[tokio::test]
async fn a_server_that_cuts_a_prompt_in_silence_is_found_out() {
    let peer = OpenAiPeer::start(&["Fine", "."]).await;
    let recorder = Arc::<Recorder>::default();
    let backends = vec![peer.backend(&recorder)];
    let dir = tempfile::tempdir().unwrap();
    let mut house = Parts::new(recorder, backends).start(dir.path());
    // Ten kilobytes of prose are some two thousand tokens; this server counts a few hundred.
    peer.count(300);
    house.ask(&"The crayfish walks over the stones of the brook. ".repeat(200)).await;
    let heard = house.heard();
    let found = heard.iter().find_map(|event| match event {
        Event::PromptTruncated { counted, expected, .. } => Some((*counted, *expected)),
        _ => None,
    });
    let (counted, expected) = found.expect("nobody noticed");
    assert!(counted == 300 && expected > 300);
}

#[tokio::test]
async fn an_honest_count_raises_no_alarm() {
    for version in ["0.12.6", "0.33.0"] {
        let options =
            ollama_sim::Options { version: version.into(), ..instant_ollama(Scenario::default()) };
        let sim = OllamaSim::start(options);
        let dir = tempfile::tempdir().unwrap();
        let mut house = house(&sim, sim.config(), &dir);
        for text in ["hello ", "The crayfish walks over the stones of the brook. "] {
            house.ask(&text.repeat(30)).await;
        }
        let alarm = |event: &Event| matches!(event, Event::PromptTruncated { .. });
        assert!(!house.heard().iter().any(alarm), "{version}");
    }
}

/// In its own field, because the server separates it, and in the text, because it does not.
#[tokio::test]
async fn thinking_is_never_shown_in_either_form() {
    let in_text = Reply {
        tokens: Some(
            ["<th", "ink>", "Hm, a ", "greeting", "</thi", "nk>", "\n\nGood", " day."]
                .map(str::to_owned)
                .to_vec(),
        ),
        ..Reply::default()
    };
    let upper = Reply { text: Some("<THINK>Hm.</THINK>Good day.".into()), ..Reply::default() };
    let in_field = Reply {
        think: Some("Hm, a greeting.".into()),
        text: Some("Good day.".into()),
        ..Reply::default()
    };
    for (model, reply) in [
        ("qwen3:1.7b", in_field.clone()),
        ("deepseek-r1:1.5b", in_field),
        ("qwen2.5:1.5b", in_text),
        ("qwen2.5:1.5b", upper),
    ] {
        let scenario = Scenario { cycle: true, replies: vec![reply], ..Scenario::default() };
        let sim = OllamaSim::start(instant_ollama(scenario));
        let dir = tempfile::tempdir().unwrap();
        let config = OllamaConfig { model: model.into(), ..sim.config() };
        let house = house(&sim, config, &dir);
        for _ in 0..2 {
            assert_eq!(house.ask("hello").await.text, "Good day.", "{model}");
        }
        for sent in house.recorder.chats() {
            let thinks = model != "qwen2.5:1.5b";
            let want = thinks.then_some(serde_json::Value::Bool(false));
            assert_eq!(sent.body.get("think").cloned(), want, "{model}");
        }
    }
}

#[tokio::test]
async fn thinking_without_an_end_is_not_an_answer() {
    let endless =
        || Reply { text: Some(format!("<think>{}", "hm ".repeat(300))), ..Reply::default() };
    let scenario =
        Scenario { replies: vec![endless(), Reply::text("Good day.")], ..Scenario::default() };
    let sim = OllamaSim::start(instant_ollama(scenario));
    let dir = tempfile::tempdir().unwrap();
    let house = house(&sim, sim.config(), &dir);
    assert_eq!(house.ask("hello").await.text, "Good day.", "asked again, and nothing was shown");
    assert_eq!(sim.state().counters.generations, 2);
}

#[tokio::test]
async fn a_runner_that_was_killed_is_loaded_again_by_the_next_turn() {
    let sim = OllamaSim::start(instant_ollama(always(&["Fine", "."])));
    let dir = tempfile::tempdir().unwrap();
    let house = house(&sim, sim.config(), &dir);
    house.ask("hello").await;
    sim.kill_runner("qwen2.5:1.5b");
    assert_eq!(house.ask("hello").await.text, "Fine.");
    let loaded = |entry: &log::Entry| matches!(entry.event, log::Event::Loaded { .. });
    assert_eq!(sim.log().iter().filter(|entry| loaded(entry)).count(), 2);
}
