//! Turns over scripted backends and a real database, on a paused clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::audience::Happening;
use super::feelings::{self, Condition};
use super::service::{Agent, Settings};
use super::*;
use crate::clock::SteppedClock;
use crate::config::Config;
use crate::event::Events;
use crate::limits;
use crate::mood::{Channel, Tuning, tone};
use crate::provider::Provider;
use crate::provider::backend::{Backend, Role};
use crate::provider::breaker::Policy;
use crate::provider::engine::{Engine, SlotName};
use crate::provider::fake::{Fake, Script, fault, says, text};
use crate::provider::fault::{Class, Phase};
use crate::session::Sessions;
use crate::store::{Options, Store};

/// 2026-11-30 14:05 UTC.
const NOW_MS: i64 = 1_796_047_500_000;

/// Time between two beats.
const PULSE: Duration = Duration::from_secs(30);

struct House {
    agent: Arc<Agent>,
    hailo: Arc<Fake>,
    stop: CancellationToken,
    store_stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    dir: tempfile::TempDir,
}

fn settings() -> Settings {
    Settings {
        system: "You are Pinch.".to_owned(),
        answer_tokens_max: 100,
        turns_max: 12,
        sampling: crate::provider::backend::Sampling::default(),
        deadline: Duration::from_secs(300),
        zone: jiff::tz::TimeZone::UTC,
        mood: Tuning::new(&Config::default().mood, PULSE),
        nudges: Config::default().mood.nudges,
    }
}

fn house() -> House {
    house_in(tempfile::tempdir().unwrap())
}

fn house_in(dir: tempfile::TempDir) -> House {
    let events = Events::default();
    let hailo = Fake::new("hailo");
    let engine = Engine::new(
        SlotName::Primary,
        Arc::clone(&hailo) as Arc<dyn Backend>,
        Policy::default(),
        Duration::from_secs(30),
        events.clone(),
    );
    let provider = Provider::new(vec![engine], events.clone());
    let clock: Arc<dyn crate::clock::WallClock> = Arc::new(SteppedClock::new(NOW_MS));
    let options = Options {
        state_dir: dir.path().to_owned(),
        fsync_always: false,
        idle_flush: Duration::from_secs(30),
        pages_max: None,
    };
    let (store, task) = Store::open(options, Arc::clone(&clock), events.clone()).unwrap();
    let sessions = Sessions::new(store, Arc::clone(&clock));
    let (agent, agent_task) =
        Agent::new(provider, sessions.clone(), settings(), clock, events.clone());
    let (stop, store_stop) = (CancellationToken::new(), CancellationToken::new());
    let tasks = vec![
        tokio::spawn(agent_task.run(stop.clone())),
        tokio::spawn({
            let store_stop = store_stop.clone();
            async move { task.run(store_stop).await.unwrap() }
        }),
        tokio::spawn({
            let kept = feelings::keep(Arc::clone(&agent), PULSE, events, stop.clone());
            async move { kept.await.unwrap() }
        }),
    ];
    House { agent, hailo, stop, store_stop, tasks, dir }
}

impl House {
    async fn submit(&self, words: &str) -> Turn {
        let submission = Submission { text: words.to_owned(), ..Submission::default() };
        self.agent.submit(submission).await.unwrap()
    }

    async fn say(&self, words: &str) -> (String, TurnEvent) {
        told(self.submit(words).await).await
    }

    async fn history(&self) -> Vec<(String, Option<&'static str>)> {
        let lines = self.agent.history(None, 100).await.unwrap();
        lines.into_iter().map(|line| (line.text, line.outcome)).collect()
    }

    /// Contents of the `n`-th request's messages.
    fn request(&self, n: usize) -> Vec<(Role, String)> {
        let requests = self.hailo.requests.lock().unwrap();
        requests[n].messages.iter().map(|m| (m.role, m.content.clone())).collect()
    }

    async fn close(self) -> tempfile::TempDir {
        self.stop.cancel();
        let mut tasks = self.tasks.into_iter();
        tasks.next().unwrap().await.unwrap();
        self.store_stop.cancel();
        tasks.next().unwrap().await.unwrap();
        self.dir
    }
}

/// An answer that goes on and on, and is no loop.
fn song() -> Script {
    (0..1000).map(|verse| text(&format!("{verse} "))).collect()
}

/// All text a door is told, and the one terminal event.
async fn told(mut turn: Turn) -> (String, TurnEvent) {
    let (mut text, mut end) = (String::new(), None);
    while let Some(event) = turn.events.recv().await {
        match event {
            TurnEvent::Delta(piece) => {
                assert!(end.is_none(), "no text after the end");
                text.push_str(&piece);
            }
            TurnEvent::Waiting { .. } => {}
            last => assert!(end.replace(last).is_none(), "one terminal event"),
        }
    }
    (text, end.unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_shown_stored_and_repeated_to_the_model_byte_for_byte() {
    let house = house();
    house.hailo.then(says(&[" Hello", " there."]));
    house.hailo.then(says(&["Fine."]));
    let (text, end) = house.say("hi").await;
    assert_eq!(text, "Hello there.");
    let TurnEvent::Done(answer) = end else { panic!("{end:?}") };
    assert_eq!((answer.text.as_str(), answer.backend.as_str()), ("Hello there.", "hailo"));
    house.say("and you?").await;

    let (first, second) = (house.request(0), house.request(1));
    assert_eq!(second[..2], first[..], "the prompt continues the last one literally");
    assert_eq!(second[2], (Role::Assistant, " Hello there.".to_owned()), "raw, not as shown");
    assert_eq!(first[1].1, "[Monday 30 November 2026, 14:05]\nhi");
    assert_eq!(
        house.history().await,
        [
            ("hi".to_owned(), None),
            ("Hello there.".to_owned(), Some("done")),
            ("and you?".to_owned(), None),
            ("Fine.".to_owned(), Some("done")),
        ]
    );
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_continues_the_conversation_where_it_was() {
    let first = house();
    first.hailo.then(says(&["One."]));
    first.say("count").await;
    let before = first.request(0);
    let second = house_in(first.close().await);
    second.say("go on").await;
    let after = second.request(0);
    assert_eq!(after[..2], before[..]);
    assert_eq!(after[2].1, "One.");
    second.close().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_the_mood_the_system_block_and_the_past_keep_every_byte() {
    let house = house();
    house.say("hello").await;
    house.agent.be_in(Condition { stressed: true, brief: Some("81 °C".to_owned()) });
    house.say("this is terrible, I am so sad!").await;
    house.agent.be_in(Condition::default());
    house.say("thank you, I feel great now").await;
    let prompts = [house.request(0), house.request(1), house.request(2)];
    for pair in prompts.windows(2) {
        assert_eq!(pair[1][..pair[0].len()], pair[0][..], "each prompt continues the last one");
    }
    assert_eq!(prompts[2][0], (Role::System, settings().system));
    let newest = |at: usize| prompts[at].last().map(|(_, content)| content.as_str()).unwrap();
    assert!(newest(1).contains(tone::EXHAUSTION), "{}", newest(1));
    assert!(newest(2).contains("share the joy"), "{}", newest(2));
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn messages_and_ends_of_turns_move_the_mood_and_time_brings_it_back() {
    let house = house();
    let felt = |house: &House| house.agent.mood().1.map(|(channel, _)| channel);
    assert_eq!(felt(&house), None);
    house.say("I am so sad, my cat died").await;
    tokio::task::yield_now().await;
    assert_eq!(felt(&house), Some(Channel::Sorrow));
    let after_done = house.agent.mood().0.level(Channel::Joy);
    assert!(after_done > 0.2, "an answer is a small joy: {after_done}");

    let anger = house.agent.mood().0.level(Channel::Anger);
    house.hailo.then(vec![text("Half "), fault(Class::Truncated, Phase::Stream)]);
    house.say("what is on the list").await;
    tokio::task::yield_now().await;
    assert!(house.agent.mood().0.level(Channel::Anger) > anger, "a failure is felt");

    tokio::time::sleep(PULSE * 100).await;
    assert_eq!(felt(&house), None);
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn stress_wears_on_the_mood_with_every_beat_until_it_ends() {
    let house = house();
    house.agent.be_in(Condition { stressed: true, brief: None });
    tokio::time::sleep(PULSE * 3 + PULSE / 2).await;
    let (mood, felt) = house.agent.mood();
    assert_eq!(felt.map(|(channel, _)| channel), Some(Channel::Anger), "{mood:?}");
    assert!(mood.level(Channel::Excitement) < 0.1, "{mood:?}");
    house.agent.be_in(Condition::default());
    tokio::time::sleep(PULSE * 100).await;
    assert_eq!(house.agent.mood().1, None);
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_turn_at_once_and_what_was_shown_stays() {
    let house = house();
    house.hailo.then(song());
    let mut turn = house.submit("sing").await;
    let mut heard = String::new();
    while heard.len() < 9 {
        if let Some(TurnEvent::Delta(piece)) = turn.events.recv().await {
            heard.push_str(&piece);
        }
    }
    assert!(house.agent.cancel(None));
    let (rest, end) = told(turn).await;
    assert_eq!(end, TurnEvent::Cancelled);
    let shown = heard + rest.as_str();
    assert_eq!(house.history().await[1], (shown.clone(), Some("cancelled")));

    house.say("thanks").await;
    let next = house.request(1);
    assert!(next[1].1.starts_with(crate::session::window::BROKEN_MARK), "{}", next[1].1);
    assert_eq!(next[2].1, shown);
    assert_eq!(house.hailo.unloads.load(Ordering::SeqCst), 0, "the mark spares the unload");
    assert!(!house.agent.cancel(None), "nothing runs any more");
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn turns_of_a_session_run_in_order_and_a_cancel_takes_those_that_wait() {
    let house = house();
    house.hailo.then(song());
    let (first, second) = (house.submit("one").await, house.submit("two").await);
    assert_eq!((first.turn, second.turn), (1, 2));
    house.agent.cancel(None);
    assert_eq!(told(first).await.1, TurnEvent::Cancelled);
    assert_eq!(told(second).await, (String::new(), TurnEvent::Cancelled));
    assert_eq!(house.agent.turns(), 0);
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_in_words_and_logged_with_what_was_shown() {
    let house = house();
    house.hailo.then(vec![text("Half "), fault(Class::Truncated, Phase::Stream)]);
    let (text, end) = house.say("hi").await;
    assert_eq!(text, "Half ");
    let TurnEvent::Failed { words, code } = end else { panic!("{end:?}") };
    assert_eq!(code, "broke_off");
    assert!(words.contains("broke off"));
    assert_eq!(house.history().await[1], (format!("Half \n\n{words}"), Some("error")));
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn without_any_model_the_person_reads_why() {
    let house = house();
    house.hailo.present.store(false, Ordering::SeqCst);
    let (text, end) = house.say("hi").await;
    assert_eq!(text, "");
    assert!(matches!(end, TurnEvent::Failed { code: "offline", .. }), "{end:?}");
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_on_is_refused_before_anything_is_stored() {
    let house = house();
    let refused = |text: &str, session: Option<&str>, backend: Option<&str>| {
        let submission = Submission {
            session: session.map(str::to_owned),
            text: text.to_owned(),
            backend: backend.map(str::to_owned),
            ..Submission::default()
        };
        let agent = Arc::clone(&house.agent);
        async move { agent.submit(submission).await.err() }
    };
    assert_eq!(refused(" \n\t", None, None).await, Some(Refused::Empty));
    let long = "x".repeat(limits::MESSAGE_BYTES_MAX + 1);
    assert!(matches!(refused(&long, None, None).await, Some(Refused::TooLong { .. })));
    for name in ["", "a b", "../x", "ä", &"x".repeat(65), "main\n"] {
        assert_eq!(refused("hi", Some(name), None).await, Some(Refused::BadSession), "{name}");
    }
    assert!(matches!(refused("hi", None, Some("gpt")).await, Some(Refused::NoSuchBackend(_))));
    assert!(house.history().await.is_empty());
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_refused_and_what_was_taken_on_is_answered() {
    let house = house();
    let mut taken = Vec::new();
    let mut refused = 0;
    for _ in 0..3 * limits::TURNS_WAITING_MAX {
        let submission = Submission { text: "hi".to_owned(), ..Submission::default() };
        match house.agent.submit(submission).await {
            Ok(turn) => taken.push(turn),
            Err(error) => {
                assert_eq!(error, Refused::Overloaded);
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && taken.len() > limits::TURNS_WAITING_MAX);
    for turn in taken {
        assert!(matches!(told(turn).await.1, TurnEvent::Done(_)));
    }
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_longer_than_the_context_is_clipped_and_said_to_be() {
    let house = house();
    house.hailo.then(says(&["Long."]));
    let (_, end) = house.say(&"word ".repeat(4000)).await;
    let TurnEvent::Done(answer) = end else { panic!("{end:?}") };
    assert!(answer.clipped);
    assert!(house.request(0)[1].1.contains("characters left out"));
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_a_turn_finish_and_interrupts_one_that_does_not() {
    let house = house();
    house.hailo.then(song());
    let turn = house.submit("sing").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = tokio::time::Instant::now();
    house.stop.cancel();
    let (text, end) = told(turn).await;
    let TurnEvent::Failed { words, code: "interrupted" } = end else { panic!("{end:?}") };
    assert!(start.elapsed() >= limits::DRAIN_TURNS_MAX, "it got its time");
    let late = house.agent.submit(Submission { text: "hi".to_owned(), ..Submission::default() });
    assert_eq!(late.await.err(), Some(Refused::Stopping));
    assert_eq!(house.history().await[1], (format!("{text}\n\n{words}"), Some("interrupted")));
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn every_reader_of_a_session_is_told_the_same_and_the_title_first() {
    let house = house();
    house.hailo.then(says(&["Hello", " there."]));
    let mut seats = [house.agent.audience().seat(), house.agent.audience().seat()];
    seats.iter().for_each(|seat| assert!(seat.follow("main").is_empty()));
    let submission = Submission {
        text: "  good\n morning ".to_owned(),
        seat: Some(seats[0].number()),
        ..Submission::default()
    };
    let turn = house.agent.submit(submission).await.unwrap();
    for (index, seat) in seats.iter_mut().enumerate() {
        let titled = seat.next().await;
        let Happening::Titled { title, .. } = titled else { panic!("{titled:?}") };
        assert_eq!(title, "good morning");
        if index == 1 {
            let said = seat.next().await;
            assert!(matches!(&said, Happening::Said { turn: 1, .. }), "{said:?}");
        }
        let mut text = String::new();
        loop {
            match seat.next().await {
                Happening::Turn { event: TurnEvent::Delta(piece), .. } => text.push_str(&piece),
                Happening::Turn { event: TurnEvent::Waiting { .. }, .. } => {}
                Happening::Turn { event: TurnEvent::Done(answer), .. } => {
                    assert_eq!(answer.text, text);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let (text, end) = told(turn).await;
    assert_eq!(text, "Hello there.");
    assert!(matches!(end, TurnEvent::Done(_)));
    house.say("again").await;
    let said = seats[0].next().await;
    assert!(matches!(&said, Happening::Said { turn: 2, .. }), "no second title: {said:?}");
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_at_any_moment_ends_the_turn_once_for_everybody() {
    let house = house();
    for pieces in 0..12 {
        house.hailo.then(song());
        let mut seat = house.agent.audience().seat();
        seat.follow("main");
        let mut turn = house.submit("sing").await;
        let mut shown = String::new();
        for _ in 0..pieces {
            if let Some(TurnEvent::Delta(piece)) = turn.events.recv().await {
                shown.push_str(&piece);
            }
        }
        assert!(house.agent.cancel(None), "after {pieces}");
        let (rest, end) = told(turn).await;
        assert_eq!(end, TurnEvent::Cancelled, "after {pieces}");
        let (mut text, mut ends) = (String::new(), 0);
        while !seat.is_idle() {
            match seat.next().await {
                Happening::Turn { event: TurnEvent::Delta(piece), .. } => text.push_str(&piece),
                Happening::Turn { event, .. } if event.is_end() => ends += 1,
                _ => {}
            }
        }
        assert_eq!((text.as_str(), ends), ((shown + &rest).as_str(), 1), "after {pieces}");
        assert_eq!(house.history().await.last().unwrap().0, text, "after {pieces}");
        assert_eq!(house.agent.turns(), 0);
    }
    house.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_is_renamed_and_taken_away_for_good_but_not_under_a_running_turn() {
    let house = house();
    house.hailo.then(says(&["One."]));
    house.say("count").await;
    let mut seat = house.agent.audience().seat();
    seat.follow("main");
    assert_eq!(house.agent.rename("nobody", "x").await, Err(Refused::NoSuchSession));
    let too_long = "x".repeat(limits::SESSION_TITLE_CHARS_MAX + 1);
    for bad in ["", " \n", &too_long] {
        assert!(matches!(house.agent.rename("main", bad).await, Err(Refused::BadTitle { .. })));
    }
    assert_eq!(house.agent.rename("main", " My\ncounting ").await.unwrap().title, "My counting");
    assert_eq!(house.agent.sessions().await.unwrap()[0].title, "My counting");
    assert!(matches!(seat.next().await, Happening::Titled { title, .. } if title == "My counting"));

    house.hailo.then(song());
    let turn = house.submit("sing").await;
    assert_eq!(house.agent.delete("main").await, Err(Refused::Running));
    house.agent.cancel(None);
    told(turn).await;
    assert_eq!(house.agent.delete("main").await, Ok(()));
    assert_eq!(house.agent.delete("main").await, Err(Refused::NoSuchSession));
    while !matches!(seat.next().await, Happening::Deleted { .. }) {}
    assert!(house.history().await.is_empty());
    assert!(house.agent.sessions().await.unwrap().is_empty());

    // What comes next begins anew: nothing of the old one is in the prompt, before or after a
    // restart.
    house.hailo.then(says(&["New."]));
    let turn = house.submit("who are you?").await;
    assert_eq!(turn.turn, 1);
    told(turn).await;
    assert_eq!(house.request(2).len(), 2, "the system block and the message");
    let second = house_in(house.close().await);
    let lines: Vec<_> = second.history().await.into_iter().map(|(text, _)| text).collect();
    assert_eq!(lines, ["who are you?", "New."]);
    second.close().await;
}

fn named(id: &str, words: &str) -> Submission {
    Submission { text: words.to_owned(), id: Some(id.to_owned()), ..Submission::default() }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_again_is_not_asked_again() {
    let house = house();
    house.hailo.then(says(&["Once ", "only."]));
    let first = house.agent.submit(named("m1", "hi")).await.unwrap();
    // While it runs: both hear all of it.
    let again = house.agent.submit(named("m1", "hi")).await.unwrap();
    assert_eq!((first.again, again.again, again.turn), (false, true, 1));
    let heard = told(first).await;
    assert_eq!(heard.0, "Once only.");
    assert_eq!(told(again).await, heard);
    // After its end: the same, from the log.
    let late = house.agent.submit(named("m1", "hi")).await.unwrap();
    assert!(late.again && late.events.is_over());
    assert_eq!(told(late).await, heard);
    // Another id, and another session, are other messages.
    house.hailo.then(says(&["Two."]));
    house.hailo.then(says(&["Three."]));
    let other = house.agent.submit(named("m2", "hi")).await.unwrap();
    assert_eq!((other.again, other.turn), (false, 2));
    told(other).await;
    let elsewhere = Submission { session: Some("b".into()), ..named("m1", "hi") };
    let elsewhere = house.agent.submit(elsewhere).await.unwrap();
    assert_eq!((elsewhere.again, elsewhere.turn), (false, 1));
    told(elsewhere).await;
    assert_eq!(house.history().await.len(), 4);
    assert_eq!(house.hailo.requests.lock().unwrap().len(), 3);
    assert_eq!(house.agent.audience().readers(), 0);

    // After a restart too.
    let second = house_in(house.close().await);
    let late = second.agent.submit(named("m1", "hi")).await.unwrap();
    assert!(late.again);
    assert_eq!(told(late).await, heard);
    assert_eq!(second.hailo.requests.lock().unwrap().len(), 0);
    second.close().await;
}

#[tokio::test(start_paused = true)]
async fn however_a_turn_ended_it_is_told_so_again() {
    let house = house();
    house.hailo.then(vec![text("Half "), fault(Class::Truncated, Phase::Stream)]);
    let failed = told(house.agent.submit(named("f", "hi")).await.unwrap()).await;
    house.hailo.then(song());
    let sung = house.agent.submit(named("c", "sing")).await.unwrap();
    house.agent.cancel(None);
    let cancelled = told(sung).await;
    for (id, heard) in [("f", failed), ("c", cancelled)] {
        let again = house.agent.submit(named(id, "?")).await.unwrap();
        assert!(again.again);
        assert_eq!(told(again).await, heard, "{id}");
    }
    house.close().await;
}
