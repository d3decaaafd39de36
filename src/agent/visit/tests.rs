use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::agent::TurnEvent;
use crate::agent::fake::{self, Fake, Script};
use crate::session::log::{About, Line};
use crate::snapshot::{self, BackendState, Snapshot};

fn reader() -> Reader {
    let backend = |name: &str, model: &str| BackendState {
        name: name.into(),
        model: model.into(),
        ..BackendState::default()
    };
    let first = Snapshot {
        designation: "Crayfish".into(),
        backends: vec![backend("hailo", "qwen2:1.5b"), backend("ollama", "llama3.2:3b")],
        ..Snapshot::default()
    };
    snapshot::channel(first).1
}

fn visit(fake: &Arc<Fake>, manners: Manners) -> Visit {
    Visit::new(Arc::clone(fake) as Arc<dyn Converse>, reader(), manners)
}

async fn hear(visit: &mut Visit, frame: Value) -> Vec<Value> {
    values(&visit.hear(frame.to_string().as_bytes()).await)
}

fn values(frames: &[ServerFrame]) -> Vec<Value> {
    frames.iter().map(|frame| serde_json::from_str(&frame.to_json()).unwrap()).collect()
}

/// All frames that are to be told now.
fn told(visit: &mut Visit) -> Vec<Value> {
    let mut told = Vec::new();
    while let Some(frames) = visit.next().now_or_never() {
        told.extend(values(&frames.unwrap()));
    }
    told
}

fn events(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["event"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn two_tabs_on_one_session_see_the_same_and_only_the_other_sees_the_message() {
    let fake = Arc::new(Fake::default());
    let (mut one, mut two) = (visit(&fake, Manners::Browser), visit(&fake, Manners::Browser));
    assert_eq!(
        events(&hear(&mut two, json!({"type": "attach", "chat_id": "x"})).await),
        ["attached"]
    );
    fake.script(fake::say(&["Hello", "!"]));
    let said = json!({"type": "message", "chat_id": "x", "content": "hi"});
    assert_eq!(hear(&mut one, said).await, Vec::<Value>::new());
    let (one, two) = (told(&mut one), told(&mut two));
    assert_eq!(two[0], json!({"event": "user", "chat_id": "x", "turn": 1, "content": "hi"}));
    assert_eq!(one, two[1..]);
    assert_eq!(events(&one), ["delta", "stream_end", "done"]);
}

#[tokio::test]
async fn a_client_that_comes_back_gets_what_it_missed_and_the_running_turn_once() {
    let fake = Arc::new(Fake::default());
    let (sender, script) = mpsc::channel(8);
    fake.script(Script::Held(script));
    let line = |turn, from_person, text: &str, outcome| Line {
        turn,
        from_person,
        text: text.into(),
        at_ms: 0,
        outcome,
        id: None,
        about: About::default(),
    };
    let mut other = visit(&fake, Manners::Browser);
    hear(&mut other, json!({"type": "message", "chat_id": "x", "content": "now"})).await;
    sender.send(TurnEvent::Delta("So ".into())).await.unwrap();
    let first = other.next().await.unwrap();
    assert!(matches!(&first[0], ServerFrame::Delta { text, .. } if text == "So "));
    fake.lines(vec![
        line(0, true, "old", None),
        line(0, false, "known", Some("done")),
        line(1, true, "now", None),
        line(1, false, "So ", Some("running")),
    ]);
    let mut back = visit(&fake, Manners::Browser);
    let attach = json!({"type": "attach", "chat_id": "x", "history": 10});
    let answer = hear(&mut back, attach).await;
    assert_eq!(events(&answer), ["attached", "history", "snapshot"]);
    let contents: Vec<_> =
        answer[1]["turns"].as_array().unwrap().iter().map(|line| &line["content"]).collect();
    assert_eq!(contents, ["old", "known"], "the running turn is in the snapshot");
    assert_eq!((&answer[2]["content"], &answer[2]["text"]), (&json!("now"), &json!("So ")));
    sender.send(TurnEvent::Delta("it is.".into())).await.unwrap();
    sender.send(TurnEvent::Cancelled).await.unwrap();
    drop(sender);
    let mut rest = Vec::new();
    while !back.is_idle() {
        rest.extend(values(&back.next().await.unwrap()));
    }
    assert_eq!(events(&rest), ["delta", "cancelled"]);
    assert_eq!(rest[0]["text"], "it is.");

    fake.lines(vec![line(1, true, "now", None), line(1, false, "So it is.", Some("cancelled"))]);
    for (after, lines) in [(0, 2), (1, 0)] {
        let attach = json!({"type": "attach", "chat_id": "x", "after_turn": after});
        let answer = hear(&mut back, attach).await;
        assert_eq!(events(&answer), ["attached", "history"]);
        assert_eq!(answer[1]["turns"].as_array().unwrap().len(), lines, "after turn {after}");
    }
}

#[tokio::test]
async fn cashcodes_client_can_end_its_wait_when_a_turn_is_stopped_or_fails() {
    let fake = Arc::new(Fake::default());
    let failed = TurnEvent::Failed { words: "no".into(), code: "offline" };
    for (end, expected, last) in [
        (TurnEvent::Cancelled, &["stream_end", "cancelled", "error"][..], "stopped"),
        (failed, &["stream_end", "error"][..], "no"),
    ] {
        fake.script(Script::Say(vec![end]));
        let mut visit = visit(&fake, Manners::CashCode);
        hear(&mut visit, json!({"type": "message", "content": "hi"})).await;
        let told = told(&mut visit);
        assert_eq!(events(&told), expected);
        let last_frame = told.last().unwrap();
        assert_eq!(last_frame["detail"], last);
        assert!(last_frame["chat_id"].is_string());
        let ends = told.iter().filter(|frame| {
            serde_json::from_value::<ServerFrame>((*frame).clone()).unwrap().is_terminal()
        });
        assert_eq!(ends.count(), 1, "one end of the turn");
    }
}

#[tokio::test]
async fn a_message_may_name_who_is_to_answer_in_each_of_the_known_ways() {
    let fake = Arc::new(Fake::default());
    let mut visit = visit(&fake, Manners::Browser);
    let table = [
        (json!(null), None),
        (json!({"backend": "x"}), Some("x")),
        (json!({"llm": {"provider": "ollama", "model": "any"}}), Some("ollama")),
        (json!({"llm": {"provider": "openai_compatible", "model": "qwen2:1.5b"}}), Some("hailo")),
        (json!({"llm": {"provider": "openai_compatible", "model": "gpt"}}), None),
        (json!({"llm": {"provider": "hailo", "model": "any"}, "backend": "y"}), Some("y")),
    ];
    for (metadata, backend) in table {
        let said = json!({"type": "message", "content": "hi", "metadata": metadata});
        assert_eq!(hear(&mut visit, said).await, Vec::<Value>::new(), "{metadata}");
        assert_eq!(fake.heard().last().unwrap().backend.as_deref(), backend, "{metadata}");
    }
    let before = fake.heard().len();
    for (metadata, detail) in [
        (json!({"llm": {"provider": "unheard", "model": "of"}}), "llm.provider is invalid"),
        (
            json!({"mentioned_skills": [{"name": "review"}]}),
            "Unable to load @review: there are no skills or connectors yet",
        ),
    ] {
        let said = json!({"type": "message", "content": "hi", "metadata": metadata});
        assert_eq!(hear(&mut visit, said).await[0]["detail"], detail);
    }
    assert_eq!(fake.heard().len(), before);
}

#[tokio::test]
async fn the_terminal_hears_of_other_peoples_turns_only_after_an_attach() {
    let fake = Arc::new(Fake::default());
    let (mut terminal, mut page) =
        (visit(&fake, Manners::Terminal), visit(&fake, Manners::Browser));
    hear(&mut terminal, json!({"type": "message", "content": "mine"})).await;
    hear(&mut page, json!({"type": "message", "chat_id": "main", "content": "theirs"})).await;
    assert_eq!(events(&told(&mut terminal)), ["delta", "stream_end", "done"]);
    hear(&mut terminal, json!({"type": "attach", "chat_id": "main"})).await;
    told(&mut page);
    hear(&mut page, json!({"type": "message", "chat_id": "main", "content": "theirs"})).await;
    assert_eq!(events(&told(&mut terminal)), ["user", "delta", "stream_end", "done"]);
    hear(&mut terminal, json!({"type": "message", "content": "mine"})).await;
    assert_eq!(events(&told(&mut terminal)), ["delta", "stream_end", "done"], "told once");
}

#[tokio::test]
async fn followers_hear_of_titles_and_of_the_end_of_a_session() {
    let fake = Arc::new(Fake::default());
    let info = SessionInfo { chat_id: "x".into(), title: "t".into(), updated_at: "then".into() };
    fake.list(vec![info]);
    let mut visit = visit(&fake, Manners::Browser);
    let listed = hear(&mut visit, json!({"type": "sessions"})).await;
    assert_eq!(listed[0]["sessions"][0]["title"], "t");
    hear(&mut visit, json!({"type": "attach", "chat_id": "x"})).await;
    fake.rename("x", "New").await.unwrap();
    fake.delete("x").await.unwrap();
    let told = told(&mut visit);
    assert_eq!(events(&told), ["session_updated", "session_deleted"]);
    assert_eq!(told[0]["title"], "New");
}

#[tokio::test]
async fn a_message_with_an_id_is_acknowledged_before_anything_of_its_turn() {
    for manners in [Manners::Browser, Manners::CashCode, Manners::Terminal] {
        let fake = Arc::new(Fake::default());
        fake.script(crate::agent::fake::say(&["Yes."]));
        let mut visit = visit(&fake, manners);
        let said = json!({"type": "message", "chat_id": "x", "content": "hi", "id": "m-1"});
        let told = hear(&mut visit, said).await;
        let taken = json!({"event": "taken", "chat_id": "x", "turn": 1, "id": "m-1"});
        assert_eq!(told, [taken], "{manners:?}");
        assert_eq!(fake.heard()[0].id.as_deref(), Some("m-1"));
        let first = visit.next().await.unwrap();
        assert!(matches!(first[0], ServerFrame::Delta { .. }), "{first:?}");
    }
}

#[tokio::test]
async fn others_are_told_the_id_of_what_was_said() {
    let fake = Arc::new(Fake::default());
    let (_sender, script) = mpsc::channel(8);
    fake.script(Script::Held(script));
    let (mut one, mut other) = (visit(&fake, Manners::Browser), visit(&fake, Manners::Browser));
    hear(&mut other, json!({"type": "attach", "chat_id": "x"})).await;
    hear(&mut one, json!({"type": "message", "chat_id": "x", "content": "hi", "id": "m-1"})).await;
    let user = other.next().await.unwrap()[0].to_json();
    let user: Value = serde_json::from_str(&user).unwrap();
    let expected =
        json!({"event": "user", "chat_id": "x", "turn": 1, "content": "hi", "id": "m-1"});
    assert_eq!(user, expected);
    let mut late = visit(&fake, Manners::Browser);
    let told = hear(&mut late, json!({"type": "attach", "chat_id": "x"})).await;
    assert_eq!((&told[1]["event"], &told[1]["id"]), (&json!("snapshot"), &json!("m-1")));
}
