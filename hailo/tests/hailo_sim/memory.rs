//! What server and device remember: H15, H16, H18, H19.

use hailo::{
    model::Release::{self, V5_1_1, V5_3, V5_4},
    sim::{
        hailo::Running,
        log::Event,
        scenario::{Kind, Phase, Reply},
    },
};
use serde_json::{Value, json};

use crate::client::{
    Ending, ask, body, fault, loads, post, prefills, qwen, sim, until, wait_for, wait_of, words,
};

/// A conversation that a client carries on.
struct Talk {
    model: &'static str,
    messages: Vec<(String, String)>,
}

impl Talk {
    fn new(model: &'static str, system: &str) -> Self {
        Self { model, messages: vec![("system".into(), system.into())] }
    }

    fn body(&self) -> Value {
        let messages: Vec<_> =
            self.messages.iter().map(|(role, text)| (role.as_str(), text.as_str())).collect();
        body(self.model, &messages)
    }

    fn say(&mut self, running: &Running, text: &str) -> String {
        self.messages.push(("user".into(), text.into()));
        let answer = ask(running, &self.body());
        assert_eq!(answer.lines().last().unwrap()["done"], true);
        self.messages.push(("assistant".into(), answer.text()));
        answer.text()
    }
}

fn quick(release: Release) -> Running {
    sim(release, vec![])
}

#[test]
fn h15_an_overflow_slides_silently_and_the_system_message_is_lost() {
    let running = sim(V5_1_1, vec![Reply::text("short"), Reply::text(&words(100))]);
    let mut talk = Talk::new(qwen(V5_1_1), "Be brief.");
    talk.say(&running, &words(1500));
    let state = running.state();
    assert!(state.system_in_window && state.kv_tokens > 1900, "{state:?}");
    talk.say(&running, "And now?");
    let state = running.state();
    assert!(!state.system_in_window);
    assert_eq!(state.kv_tokens, 2048);
    assert!(state.last_continuation);
}

#[test]
fn h16_only_a_literal_continuation_reuses_the_cache() {
    for release in [V5_1_1, V5_3, V5_4] {
        let running = quick(release);
        let mut talk = Talk::new(qwen(release), &words(200));
        talk.say(&running, "Hello there.");
        assert!(!running.state().last_continuation);
        talk.say(&running, "And then?");
        let state = running.state();
        assert!(state.last_continuation && state.prefilled_tokens < 20, "{state:?}");
        let seen = prefills(&running);
        assert!(!seen[0].0 && seen[0].1 > 260 && seen[0].2 == 0, "{seen:?}");
        // The rest alone is processed: one chunk.
        assert!(seen[1].0 && seen[1].2 > 260 && seen[1].3 == 370, "{seen:?}");
        // The same head with another past starts afresh.
        let mut other = Talk::new(qwen(release), &words(200));
        other.say(&running, "Hello there.");
        other.messages[2].1.insert(0, '!');
        other.say(&running, "And then?");
        assert!(!running.state().last_continuation);
        assert_eq!(running.state().counters.continuations, 1);
    }
}

#[test]
fn h16_an_aborted_answer_leaves_a_dirty_cache_behind_a_clean_record() {
    let running = sim(V5_1_1, vec![Reply::text(&words(50))]);
    running.fault(fault(Phase::Token(5), Kind::Close));
    let mut talk = Talk::new(qwen(V5_1_1), "Be brief.");
    talk.messages.push(("user".into(), "Hello".into()));
    assert_eq!(ask(&running, &talk.body()).ending, Ending::Eof);
    wait_of(&running, 1, |event| *event == Event::LockFreed);
    assert!(running.state().dirty);
    // An extension of the aborted prompt is taken for a continuation; the same prompt is not.
    let same = talk.body();
    talk.messages.push(("assistant".into(), "Short.".into()));
    talk.say(&running, "Go on.");
    assert!(running.state().last_continuation && running.state().dirty);
    ask(&running, &same);
    assert!(!running.state().last_continuation && !running.state().dirty);
}

#[test]
fn h16_tools_always_clear_and_need_a_model_that_has_them() {
    let running = quick(V5_4);
    let mut talk = Talk::new(qwen(V5_4), "Be brief.");
    talk.say(&running, "Hello there.");
    talk.messages.push(("user".into(), "And then?".into()));
    let mut body = talk.body();
    body["tools"] = json!([{"type": "function"}]);
    ask(&running, &body);
    assert!(!running.state().last_continuation);
    body["model"] = json!("qwen2:1.5b");
    let answer = ask(&running, &body);
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"], "\"qwen2:1.5b\" does not support tools");
}

#[test]
fn h18_after_the_keep_alive_the_next_request_pays_the_load() {
    let running = quick(V5_1_1);
    let mut talk = Talk::new(qwen(V5_1_1), "Be brief.");
    talk.say(&running, "Hello there.");
    // 8.45 s, and the 2 s this release waits first.
    assert_eq!(loads(&running), [10_450]);
    talk.say(&running, "Still there?");
    assert_eq!(loads(&running).len(), 1);
    talk.messages.push(("user".into(), "Bye.".into()));
    let mut last = talk.body();
    last["keep_alive"] = json!(30);
    ask(&running, &last);
    until(|| running.state().loaded_model.is_none());
    wait_for(&running, |entry| matches!(&entry.event, Event::Unloaded { why } if why == "expired"));
    talk.say(&running, "Back again.");
    assert_eq!(loads(&running), [10_450, 10_450]);
    assert!(!running.state().last_continuation);
}

#[test]
fn h19_a_switch_pays_the_load_and_the_newest_release_keeps_a_stale_history() {
    for (release, stale) in [(V5_1_1, false), (V5_3, false), (V5_4, true)] {
        let running = quick(release);
        let mut talk = Talk::new(qwen(release), &words(100));
        talk.say(&running, "Hello there.");
        talk.model = "qwen2:1.5b";
        talk.say(&running, "And you?");
        assert_eq!(loads(&running).len(), 2, "{release:?}");
        let state = running.state();
        assert_eq!(state.loaded_model.as_deref(), Some("qwen2:1.5b"));
        assert_eq!(state.last_continuation, stale, "{release:?}");
        assert_eq!(state.system_in_window, !stale, "{release:?}");
        assert_eq!(state.prefilled_tokens < 30, stale, "{release:?} {state:?}");
        // An unload in between is the cure.
        let unload = json!({"model": talk.model, "keep_alive": 0});
        assert_eq!(post(&running, "/api/chat", &unload).json()["done_reason"], "unload");
        talk.model = qwen(release);
        talk.say(&running, "And now?");
        assert!(!running.state().last_continuation && running.state().system_in_window);
    }
}
