use std::collections::VecDeque;

use tokio::sync::mpsc;

use super::*;
use crate::agent::fake::{self, Script};
use crate::agent::{Answer, Refused, TurnEvent};
use crate::cli::exchange::tests::{DEADLINE, House};
use crate::session::log::{About, Line};

const PLAIN: Look = Look { moves: false, styled: false };

/// Types what it is told, and remembers what was on the line before.
#[derive(Default)]
struct Scripted {
    typed: VecDeque<Typed>,
    initial: Vec<String>,
    prompt: String,
}

impl Scripted {
    fn lines(lines: &[&str]) -> Self {
        let typed = lines.iter().map(|line| match *line {
            "^C" => Typed::Interrupt,
            line => Typed::Line(line.to_owned()),
        });
        Self { typed: typed.collect(), ..Self::default() }
    }
}

impl Typing for Scripted {
    fn read(&mut self, prompt: &str, initial: &str) -> Typed {
        prompt.clone_into(&mut self.prompt);
        self.initial.push(initial.to_owned());
        self.typed.pop_front().unwrap_or(Typed::End)
    }
}

async fn begin(house: &House, args: &ChatArgs) -> Chat {
    Chat::begin(args, house.places.clone(), PLAIN).await.unwrap()
}

/// Types lines and gives the exit code, the screen, and the source of the lines.
async fn typed(house: &House, lines: &[&str]) -> (u8, String, Scripted) {
    let mut chat = begin(house, &ChatArgs::default()).await;
    let mut typing = Scripted::lines(lines);
    let mut out = Vec::new();
    let mut none = Interrupts::None;
    let talk = chat.talk(&mut typing, &mut out, &mut none);
    let code = tokio::time::timeout(DEADLINE, talk).await.unwrap();
    (code, String::from_utf8(out).unwrap(), typing)
}

#[tokio::test]
async fn a_conversation_shows_answers_and_obeys_commands() {
    let house = House::new();
    house.fake.script(fake::say(&["Hello", " you"]));
    house.fake.lines(vec![Line {
        turn: 1,
        from_person: false,
        text: "before".into(),
        at_ms: 0,
        outcome: Some("interrupted"),
        id: None,
        about: About::default(),
    }]);
    let lines = ["hi\nthere", "", "/backend ollama", "again", "/history", "/status", "/what"];
    let (code, shown, typing) = typed(&house, &lines).await;
    assert_eq!((code, typing.prompt.as_str()), (0, "Crayfish> "));
    for words in [
        "Hello you\n",
        "from now on ollama answers\n",
        "again\n",
        "Crayfish: before [interrupted]\n",
        "database  ok\n",
        "there is no /what",
    ] {
        assert!(shown.contains(words), "{words:?} in {shown:?}");
    }
    assert_eq!(typing.initial.last().map(String::as_str), Some("/what"));
    let heard = house.fake.heard();
    assert_eq!((heard.len(), heard[0].text.as_str()), (2, "hi\nthere"));
    assert_eq!((heard[0].backend.as_deref(), heard[1].backend.as_deref()), (None, Some("ollama")));
}

#[tokio::test]
async fn the_reserve_says_what_it_is_once_until_another_has_spoken() {
    let house = House::new();
    let said = |backend: &str| {
        let answer = TurnEvent::Done(Answer { backend: backend.into(), ..fake::answer("ok") });
        Script::Say(vec![TurnEvent::Delta("ok".into()), answer])
    };
    for backend in ["reserve", "reserve", "hailo", "reserve"] {
        house.fake.script(said(backend));
    }
    let (_, shown, _) = typed(&house, &["1", "2", "3", "4"]).await;
    assert_eq!(shown.matches("a small reserve model answers").count(), 2, "{shown}");
    assert_eq!(shown.matches("start Ollama").count(), 2, "{shown}");
}

#[tokio::test]
async fn a_conversation_of_its_own_has_its_own_name() {
    let house = House::new();
    let mut chat = begin(&house, &ChatArgs { new: true, ..ChatArgs::default() }).await;
    let name = chat.session.clone().unwrap();
    assert!(is_chat_id(&name));
    let mut typing = Scripted::lines(&["a", "/new", "b", "/stop"]);
    let mut out = Vec::new();
    assert_eq!(chat.talk(&mut typing, &mut out, &mut Interrupts::None).await, 0);
    let sessions: Vec<_> = house.fake.heard().into_iter().map(|heard| heard.session).collect();
    assert_eq!(sessions[0], Some(name));
    assert_eq!(sessions[1], chat.session);
    assert_ne!(sessions[0], sessions[1]);
    assert_eq!(house.fake.cancelled(), [chat.session]);

    let odd = ChatArgs { session: Some("a b".into()), ..ChatArgs::default() };
    let refused = Chat::begin(&odd, house.places.clone(), PLAIN).await.err();
    assert_eq!(refused.map(|(code, _)| code), Some(2));
}

#[tokio::test]
async fn interrupts_at_the_prompt_leave_at_the_second() {
    let house = House::new();
    let (code, shown, _) = typed(&house, &["^C", "hi", "^C", "^C", "never"]).await;
    assert_eq!(code, 130);
    assert_eq!(shown.matches("Ctrl-C again").count(), 2);
    assert_eq!(house.fake.heard().len(), 1);
    // After an answer was stopped the first one leaves.
    house.fake.script(Script::Say(vec![TurnEvent::Delta("on".into()), TurnEvent::Cancelled]));
    let (code, shown, _) = typed(&house, &["count", "^C", "never"]).await;
    assert_eq!((code, shown.as_str()), (130, "on\nstopped\n"));
}

#[tokio::test]
async fn a_refused_message_is_on_the_line_again_and_a_failed_turn_is_not() {
    let house = House::new();
    house.fake.script(Script::Refuse(Refused::Overloaded));
    let words = TurnEvent::Failed { words: "It broke.".into(), code: "internal" };
    house.fake.script(Script::Say(vec![TurnEvent::Delta("half".into()), words]));
    let (_, shown, typing) = typed(&house, &["one", "two"]).await;
    assert_eq!(typing.initial, ["", "one", ""]);
    assert!(shown.contains("too many messages") && shown.contains("half\nIt broke.\n"), "{shown}");
}

/// The daemon dies after the first word and comes back; its log then has `lines`.
async fn lost(lines: Vec<Line>) -> (String, Scripted) {
    let mut house = House::new();
    let mut chat = begin(&house, &ChatArgs::default()).await;
    let (words, events) = mpsc::channel(4);
    house.fake.script(Script::Held(events));
    let mut typing = Scripted::lines(&["tell me"]);
    let mut out = Vec::new();
    let mut none = Interrupts::None;
    let talk = chat.talk(&mut typing, &mut out, &mut none);
    let fate = async {
        while house.fake.heard().is_empty() {
            tokio::task::yield_now().await;
        }
        house.kill().await;
        drop(words);
        house.fake.lines(lines);
        house.start();
    };
    let both = async { tokio::join!(talk, fate).0 };
    assert_eq!(tokio::time::timeout(DEADLINE, both).await.unwrap(), 0);
    (String::from_utf8(out).unwrap(), typing)
}

fn line(from_person: bool, text: &str, outcome: Option<&'static str>) -> Line {
    Line {
        turn: 1,
        from_person,
        text: text.into(),
        at_ms: 0,
        outcome,
        id: None,
        about: About::default(),
    }
}

#[tokio::test]
async fn after_a_loss_the_log_tells_what_was_kept() {
    let kept = vec![line(true, "tell me", None), line(false, "Once", Some("interrupted"))];
    let (shown, typing) = lost(kept).await;
    assert!(shown.contains("this was kept of the answer\nOnce\ninterrupted\n"), "{shown}");
    assert_eq!(typing.initial, ["", ""]);
}

#[tokio::test]
async fn after_a_loss_a_message_that_did_not_arrive_is_on_the_line_again() {
    let (shown, typing) = lost(Vec::new()).await;
    assert!(shown.contains("did not arrive"), "{shown}");
    assert_eq!(typing.initial, ["", "tell me"]);
}

#[tokio::test]
async fn without_a_daemon_the_text_stays_and_a_later_one_is_found() {
    let mut house = House::new();
    let mut chat = begin(&house, &ChatArgs::default()).await;
    house.kill().await;
    chat.link = None;
    let mut out = Vec::new();
    let next = chat.act("hello", &mut out, &mut Interrupts::None).await.unwrap();
    assert_eq!((next, chat.kept.as_str()), (Next::Line, "hello"));
    assert!(String::from_utf8(out).unwrap().contains("crayfish run"));
    house.start();
    let mut out = Vec::new();
    chat.act("hello", &mut out, &mut Interrupts::None).await.unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "hello\n");
    let gone = Places { sockets: vec!["/nowhere".into()], typed: None };
    let refused = Chat::begin(&ChatArgs::default(), gone, PLAIN).await.err().unwrap();
    assert!(refused.0 == 3 && refused.1.contains("crayfish run"), "{refused:?}");
}
