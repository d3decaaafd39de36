//! Conversations that go well, over both dialects and through all doors.

use std::io::{BufReader, Read};

use serde_json::{Value, json};

use crate::rig::{Daemon, Plan, is_working, llama, slot, until};
use crate::wire::{self, Frames};

/// Long enough to be stopped in the middle.
const STORY: &str = "Tell me a very long story about a lighthouse and its keeper.";

/// Pieces after which an answer is certainly under way.
const UNDER_WAY: usize = 3;

/// Tokens that may be decoded between a look at the model and its stop: far fewer than the answer
/// could have.
const UNSEEN_MAX: u64 = 80;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// Tokens of prompt and answer in a slot.
fn tokens(slot: &Value) -> u64 {
    slot["n_prompt_tokens"].as_u64().unwrap_or_else(|| panic!("no count in {slot}"))
}

/// What the model was given last, in its own template.
fn prompt() -> String {
    text(&slot(llama()), "prompt").to_owned()
}

fn words_come_one_by_one_and_later_turns_see_the_earlier_ones(dialect: &str) {
    let daemon = Daemon::online(&Plan::of(dialect, 48));
    // Over the stream, the whole answer and the terminal: one conversation.
    let first = "My cat is called Zorblax. 🦞 Grüße, 日本!";
    let mut frames = Frames::over_http(daemon.http, "talk", first);
    frames.read_pieces(1);
    assert!(is_working(llama()), "the first word came when the model was done already");
    let done = frames.end();
    assert_eq!((text(&done, "event"), text(&done, "backend")), ("done", dialect), "{done}");
    let pieces = frames.pieces;
    assert!(pieces > UNDER_WAY, "{pieces} pieces of {:?}", frames.text);
    assert!(prompt().contains(first), "the message arrived changed: {:?}", prompt());

    let second = json!({ "message": "What is my cat called?", "session": "talk" });
    let (status, answer) = wire::post(daemon.http, "/chat", &second);
    assert_eq!(status, 200, "{answer}");
    let reply = text(&answer, "reply").to_owned();
    assert!(!reply.is_empty(), "{answer}");
    let seen = prompt();
    let places = [first, &frames.text, "What is my cat called?"].map(|said| seen.find(said.trim()));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {seen:?}");

    let mut third = Frames::over_socket(&daemon.socket(), "talk", "And is it a nice cat?");
    let done = third.end();
    assert_eq!((text(&done, "event"), &done["turn"]), ("done", &json!(3)), "{done}");
    assert!(third.pieces > UNDER_WAY, "{:?}", third.text);
    assert!(prompt().contains(reply.trim()), "{:?}", prompt());

    let history = daemon.history("talk");
    let said: Vec<&str> = history.iter().map(|line| text(line, "content")).collect();
    let wanted = [
        first,
        &frames.text,
        "What is my cat called?",
        &reply,
        "And is it a nice cat?",
        &third.text,
    ];
    assert_eq!(said, wanted);
}

#[test]
fn over_openai_words_come_one_by_one_and_later_turns_see_the_earlier_ones() {
    words_come_one_by_one_and_later_turns_see_the_earlier_ones("openai");
}

#[test]
fn over_ollama_words_come_one_by_one_and_later_turns_see_the_earlier_ones() {
    words_come_one_by_one_and_later_turns_see_the_earlier_ones("ollama");
}

fn a_stopped_answer_stops_the_model_and_the_next_turn_is_answered(dialect: &str) {
    let daemon = Daemon::online(&Plan::of(dialect, 320));
    let mut frames = Frames::over_http(daemon.http, "story", STORY);
    frames.read_pieces(UNDER_WAY);
    let before = tokens(&slot(llama()));
    let (_, stopped) = wire::post(daemon.http, "/cancel", &json!({ "session": "story" }));
    assert_eq!(stopped, json!({ "cancelled": true }));
    let end = frames.end();
    assert_eq!(text(&end, "event"), "cancelled", "{end}");
    let slot = until("the model is free", || {
        let slot = slot(llama());
        (slot["is_processing"] == json!(false)).then_some(slot)
    });
    let unseen = tokens(&slot) - before;
    assert!(unseen < UNSEEN_MAX, "{unseen} tokens were decoded for nobody");

    // Only begun: what a model this small ends with may be a loop, and that is no good answer.
    Frames::over_http(daemon.http, "other", "Say hello.").read_pieces(1);
    let outcomes: Vec<Value> =
        daemon.history("story").iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, [Value::Null, json!("cancelled")]);
}

#[test]
fn over_openai_a_stopped_answer_stops_the_model_and_the_next_turn_is_answered() {
    a_stopped_answer_stops_the_model_and_the_next_turn_is_answered("openai");
}

#[test]
fn over_ollama_a_stopped_answer_stops_the_model_and_the_next_turn_is_answered() {
    a_stopped_answer_stops_the_model_and_the_next_turn_is_answered("ollama");
}

#[test]
fn ask_prints_words_while_the_model_still_speaks() {
    let daemon = Daemon::online(&Plan::of("openai", 48));
    let mut child = daemon.ask(&["--session", "asked", STORY]).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut printed = vec![0];
    out.read_exact(&mut printed).unwrap();
    assert!(is_working(llama()), "the first word was printed when the model was done already");
    out.read_to_end(&mut printed).unwrap();
    assert!(child.wait().unwrap().success());
    let printed = String::from_utf8(printed).unwrap();
    let history = daemon.history("asked");
    assert_eq!(printed.trim_end(), text(&history[1], "content").trim_end());

    let output = daemon.ask(&["--json", "--session", "asked", "Say hello."]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((text(&report, "backend"), &report["turn"]), ("openai", &json!(2)), "{report}");
    assert!(prompt().contains(printed.trim()), "{:?}", prompt());
}
