//! What hailo-ollama's cache makes of our prompts: literal continuations, and never one on a
//! cache that holds half an answer.

use std::sync::Arc;
use std::time::Duration;

use crayfish::agent::{Converse, TurnEvent};
use crayfish::provider::hailo::{HailoConfig, HailoTimeouts};
use hailo::model::Release;
use hailo::sim::clock::Pace;
use hailo::sim::hailo as hailo_sim;
use hailo::sim::log::Event;
use hailo::sim::scenario::{Kind, Phase, Scenario};

use super::house::{House, NOW_MS, Parts, Recorder, told, until};
use super::servers::{HailoSim, instant, next};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Answers as the simulator makes them up, 20 to 40 words each.
fn made_up(release: Release) -> HailoSim {
    HailoSim::start(instant(release, Scenario::default()))
}

/// Under the published ten seconds of prefill, or what a busy machine adds to a simulator that
/// takes no time would be learned as a slow device, and the window would follow.
fn house(sim: &HailoSim, dir: &tempfile::TempDir) -> House {
    let recorder = Arc::<Recorder>::default();
    let timeouts = HailoTimeouts { gives_up: Duration::from_secs(10), ..sim.config().timeouts };
    let backend = sim.backend_with(&recorder, HailoConfig { timeouts, ..sim.config() });
    Parts::new(recorder, vec![backend]).start(dir.path())
}

/// Whether each prompt so far was a continuation.
fn continued(sim: &HailoSim) -> Vec<bool> {
    let entries = sim.log();
    let flag = entries.iter().filter_map(|entry| match entry.event {
        Event::Prefill { continuation, .. } => Some(continuation),
        _ => None,
    });
    flag.collect()
}

fn unloads(sim: &HailoSim) -> usize {
    sim.count(|event| matches!(event, Event::Unloaded { .. }))
}

#[tokio::test]
async fn from_the_second_turn_on_every_turn_continues_across_a_restart_and_midnight_too() {
    for release in Release::ALL {
        let sim = made_up(release);
        let dir = tempfile::tempdir().unwrap();
        let first = house(&sim, &dir);
        for turn in 0..4 {
            first.clock.set(NOW_MS + turn * 3_600_000);
            first.ask("Tell me more, please.").await;
        }
        first.stop().await;
        let mut second = house(&sim, &dir);
        // As the daemon does at its start. The model is there already, and its cache must stay.
        second.recover();
        let asked = || second.recorder.all().iter().any(|sent| sent.body.get("messages").is_none());
        until("the model is asked for", asked).await;
        for turn in 0..4 {
            second.clock.set(NOW_MS + DAY_MS + turn * DAY_MS / 2);
            second.ask("And what then?").await;
        }
        let mut want = vec![true; 8];
        want[0] = false;
        assert_eq!(continued(&sim), want, "{release:?}");
        second.stop().await;
    }
}

#[tokio::test]
async fn the_newest_prompt_begins_with_the_last_one_and_its_answer() {
    let sim = made_up(Release::V5_4);
    let dir = tempfile::tempdir().unwrap();
    let house = house(&sim, &dir);
    let mut answers = Vec::new();
    for (turn, words) in ["Hello.", "How are you?", "Good night."].iter().enumerate() {
        house.clock.set(NOW_MS + i64::try_from(turn).unwrap() * 3_600_000);
        answers.push(house.ask(words).await.text);
    }
    let prompts: Vec<_> = house.recorder.chats().iter().map(super::house::Sent::messages).collect();
    for (turn, pair) in prompts.windows(2).enumerate() {
        let mut want = pair[0].clone();
        want.push(("assistant".to_owned(), answers[turn].clone()));
        assert_eq!(pair[1][..want.len()], want, "turn {}", turn + 2);
        assert_eq!(pair[1].len(), want.len() + 1);
    }
    let (prompt, _) = house.recorder.chats()[0].budget();
    assert!(prompt < 450, "a greeting costs {prompt} tokens");
}

#[tokio::test]
async fn after_a_cancel_the_next_prompt_starts_clean_without_an_unload() {
    for release in Release::ALL {
        for tokens in [1, 3, 7] {
            let options = hailo_sim::Options {
                pace: Pace::Factor(100.0),
                ..instant(release, Scenario::default())
            };
            let sim = HailoSim::start(options);
            let dir = tempfile::tempdir().unwrap();
            let house = house(&sim, &dir);
            house.ask("Hello.").await;
            sim.fault(next(Phase::Token(tokens), Kind::Hang));
            let mut turn = house.submit("main", "Tell me a long story.").await;
            let shown = match turn.events.recv().await {
                Some(TurnEvent::Delta(text)) => text,
                other => panic!("{other:?}"),
            };
            assert!(house.agent.cancel(None));
            let told = told(turn).await;
            assert_eq!(told.end, TurnEvent::Cancelled);
            let state = || sim.state();
            until("the server has noticed", || !state().lock_held).await;
            assert!(state().dirty, "half an answer is in the cache after {shown:?}");
            house.ask("Something else.").await;
            let state = sim.state();
            assert!(!state.last_continuation && !state.dirty, "{release:?} {tokens}");
            assert_eq!(unloads(&sim), 0, "a changed head is enough");
            house.ask("Go on.").await;
            assert!(sim.state().last_continuation, "and from there it continues again");
        }
    }
}

#[tokio::test]
async fn after_an_answer_that_broke_off_the_next_prompt_starts_clean_without_an_unload() {
    for release in Release::ALL {
        for phase in [Phase::AfterHead, Phase::Token(1), Phase::Token(5), Phase::BeforeDone] {
            let sim = made_up(release);
            let dir = tempfile::tempdir().unwrap();
            let house = house(&sim, &dir);
            house.ask("Hello.").await;
            sim.fault(next(phase, Kind::Close));
            let told = house.say("Tell me a long story.").await;
            let shown = phase != Phase::AfterHead;
            assert_eq!(told.code(), if shown { "broke_off" } else { "offline" }, "{phase:?}");
            assert!(sim.state().dirty);
            house.ask("Something else.").await;
            let state = sim.state();
            assert!(!state.last_continuation && !state.dirty, "{release:?} {phase:?}");
            assert_eq!(unloads(&sim), 0);
        }
    }
}

/// The person repeats the message whose answer was lost: the same prompt again is no extension.
#[tokio::test]
async fn the_same_message_again_after_a_failure_is_not_decoded_on_a_dirty_cache() {
    for release in Release::ALL {
        for phase in [Phase::AfterHead, Phase::Token(3)] {
            let sim = made_up(release);
            let dir = tempfile::tempdir().unwrap();
            let house = house(&sim, &dir);
            sim.fault(next(phase, Kind::Close));
            house.say("Hello.").await;
            house.ask("Hello.").await;
            let state = sim.state();
            assert!(!state.last_continuation && !state.dirty, "{release:?} {phase:?}");
        }
    }
}

/// The window slides by several turns at a time, so that most turns still continue.
#[tokio::test]
async fn in_a_long_conversation_at_most_one_turn_in_six_has_to_start_afresh() {
    const TURNS: usize = 200;
    let sim = made_up(Release::V5_4);
    let dir = tempfile::tempdir().unwrap();
    let house = house(&sim, &dir);
    for turn in 0..TURNS {
        house.clock.set(NOW_MS + i64::try_from(turn).unwrap() * 60_000);
        house.ask(&format!("Question {turn}: what shall I do next in the garden?")).await;
        assert!(sim.state().system_in_window, "turn {turn}");
    }
    let continued = continued(&sim);
    assert_eq!(continued.len(), TURNS);
    let afresh = continued.iter().filter(|continued| !**continued).count();
    println!("{afresh} of {TURNS} turns started afresh");
    assert!(afresh * 6 <= TURNS, "{afresh} of {TURNS} turns started afresh");
}

/// What the daemon does at its start must not cost the conversation its cache.
#[tokio::test]
async fn a_warm_up_is_done_once_and_turns_continue_after_it() {
    let sim = made_up(Release::V5_1_1);
    let dir = tempfile::tempdir().unwrap();
    let mut house = house(&sim, &dir);
    house.recover();
    let loaded = |event: &Event| matches!(event, Event::Loaded { .. });
    until("warmed up", || sim.count(loaded) == 1 && !sim.state().lock_held).await;
    for _ in 0..3 {
        house.ask("Hello again.").await;
    }
    assert_eq!(continued(&sim), [false, true, true]);
    assert_eq!(sim.count(loaded), 1);
}
