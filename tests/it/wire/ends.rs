//! How turns end when nobody can answer, when time is up, and when a server comes back; and what
//! the person is told while waiting.

use std::sync::Arc;
use std::time::Duration;

use crayfish::agent::service::Settings;
use crayfish::agent::{Converse, Submission, TurnEvent};
use crayfish::provider::hailo::{HailoConfig, HailoTimeouts};
use hailo::model::Release;
use hailo::sim::hailo as hailo_sim;
use hailo::sim::scenario::{Kind, Phase, Scenario};

use super::house::{House, LATE, Parts, Recorder, settings, told, until};
use super::openai_peer::OpenAiPeer;
use super::servers::{HailoSim, OllamaSim, always, every, instant, instant_ollama, next};

const NPU: [&str; 2] = ["From", " the NPU"];
const CPU: [&str; 2] = ["From", " the CPU"];

/// A server that dies stays away for longer than any test.
const FOR_GOOD: Duration = Duration::from_secs(600);

struct Pair {
    hailo: HailoSim,
    ollama: OllamaSim,
    house: House,
    _dir: tempfile::TempDir,
}

fn pair(restart: Duration) -> Pair {
    let options = hailo_sim::Options {
        // The simulators wait for their restart in real time; hailo-sim's is a simulated one.
        pace: hailo::sim::clock::Pace::Factor(1000.0),
        restart_s: restart.as_secs_f64() * 1000.0,
        ..instant(Release::V5_4, always(&NPU))
    };
    let hailo = HailoSim::start(options);
    let mut options = instant_ollama(always(&CPU));
    options.restart = restart;
    let ollama = OllamaSim::start(options);
    let recorder = Arc::<Recorder>::default();
    let backends = vec![hailo.backend(&recorder), ollama.backend(&recorder)];
    let dir = tempfile::tempdir().unwrap();
    let house = Parts::new(recorder, backends).start(dir.path());
    Pair { hailo, ollama, house, _dir: dir }
}

impl Pair {
    /// Turns get so long from now on.
    fn hurry(&self, deadline: Duration) {
        self.house.agent.set(Settings { deadline, ..settings() });
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_costs_nothing_but_a_fallback() {
    let pair = pair(FOR_GOOD);
    pair.house.ask("hello").await;
    pair.hailo.crash();
    let before = pair.hailo.state().counters.generations;
    assert_eq!(pair.house.ask("hello").await.text, CPU.concat());
    assert_eq!(pair.house.breaker(0), "open");
    let requests = pair.hailo.state().counters.requests;
    assert_eq!(pair.house.ask("hello").await.text, CPU.concat());
    assert_eq!(pair.hailo.state().counters.generations, before);
    assert_eq!(pair.hailo.state().counters.requests, requests, "an open breaker asks nothing");
}

#[tokio::test]
async fn with_both_servers_gone_the_person_is_told_and_a_later_turn_is_answered() {
    let mut pair = pair(Duration::from_millis(600));
    pair.house.recover();
    pair.house.ask("hello").await;
    pair.hailo.crash();
    pair.ollama.crash();
    let told = pair.house.say("are you there?").await;
    match &told.end {
        // A server that was back before anybody gave up.
        TurnEvent::Done(answer) => assert!(!answer.text.is_empty()),
        TurnEvent::Failed { words, code: "offline" } => {
            assert!(words.contains("hailo") && words.contains("ollama"), "{words}");
            assert_eq!(told.text, "");
        }
        other => panic!("{other:?}"),
    }
    pair.house.closed(0).await;
    pair.house.closed(1).await;
    assert_eq!(pair.house.ask("and now?").await.text, NPU.concat());
}

#[tokio::test]
async fn with_both_servers_gone_for_good_every_turn_ends_with_words() {
    let mut pair = pair(FOR_GOOD);
    pair.hailo.crash();
    pair.ollama.crash();
    pair.house.recover();
    for _ in 0..3 {
        let told = pair.house.say("are you there?").await;
        assert_eq!((told.text.as_str(), told.code()), ("", "offline"));
        let TurnEvent::Failed { words, .. } = told.end else { unreachable!() };
        assert!(words.contains("hailo") && words.contains("ollama"), "{words}");
        assert!(!words.contains("127.0.0.1:0"), "{words}");
    }
}

/// The patience with one phase is longer than the turn's own time.
#[tokio::test]
async fn a_turn_whose_time_is_up_ends_as_too_late_and_sends_nothing_more() {
    for phase in [Phase::BeforeHead, Phase::AfterHead, Phase::Token(1), Phase::BeforeDone] {
        let pair = pair(FOR_GOOD);
        pair.house.ask("hello").await;
        pair.hurry(Duration::from_millis(700));
        pair.hailo.fault(next(phase, Kind::Hang));
        let told = pair.house.say("and now?").await;
        assert_eq!(told.code(), "too_late", "{phase:?}");
        assert!(NPU.concat().starts_with(&told.text), "{phase:?}: {told:?}");
        assert_eq!(pair.ollama.state().counters.generations, 0, "{phase:?}: no time is left");
        let gone = || !pair.hailo.state().lock_held;
        until("the server noticed", gone).await;
        assert_eq!(
            pair.house.breaker(0),
            "closed",
            "{phase:?}: nobody knows what it would have said"
        );
        pair.hurry(LATE);
        assert_eq!(pair.house.ask("once more").await.text, NPU.concat(), "{phase:?}");
    }
}

/// A retry after a pause does not outlive the turn either.
#[tokio::test]
async fn a_busy_server_is_not_waited_for_beyond_the_turns_time() {
    let pair = pair(FOR_GOOD);
    pair.house.ask("hello").await;
    pair.hurry(Duration::from_millis(400));
    let busy = Kind::Status { code: 503, text: "busy".into() };
    pair.hailo.fault(every(Phase::BeforeHead, busy));
    let told = pair.house.say("and now?").await;
    assert!(
        matches!(told.end, TurnEvent::Failed { code: "too_late", .. } | TurnEvent::Done(_)),
        "{told:?}"
    );
    assert_eq!(pair.hailo.state().counters.generations, 2, "one healthy, one busy, no third");
}

#[tokio::test]
async fn a_named_backend_is_used_alone_and_fails_alone() {
    let pair = pair(FOR_GOOD);
    let ask = async |backend: &str| {
        let submission = Submission {
            text: "hello".into(),
            backend: Some(backend.to_owned()),
            ..Submission::default()
        };
        told(pair.house.agent.submit(submission).await.unwrap()).await
    };
    assert_eq!(ask("ollama").await.answer().text, CPU.concat());
    assert_eq!(pair.hailo.state().counters.requests, 0);
    pair.ollama.crash();
    assert_eq!(ask("ollama").await.code(), "offline");
    assert_eq!(pair.hailo.state().counters.requests, 0, "nobody else was asked");
    assert_eq!(ask("hailo").await.answer().text, NPU.concat());
}

/// The published figures say that a load takes some eight seconds, whatever the simulator does.
#[tokio::test]
async fn a_person_who_has_to_wait_for_a_load_is_told_and_later_not() {
    let sim = HailoSim::start(instant(Release::V5_1_1, Scenario::default()));
    let recorder = Arc::<Recorder>::default();
    let timeouts = HailoTimeouts { gives_up: Duration::from_secs(10), ..sim.config().timeouts };
    let backend = sim.backend_with(&recorder, HailoConfig { timeouts, ..sim.config() });
    let dir = tempfile::tempdir().unwrap();
    let house = Parts::new(recorder, vec![backend]).start(dir.path());
    let mut waits = Vec::new();
    for _ in 0..3 {
        let mut turn = house.submit("main", "hello").await;
        let mut told = None;
        loop {
            let event = tokio::time::timeout(LATE, turn.events.recv()).await.unwrap();
            match event {
                Some(TurnEvent::Waiting { about_s }) => {
                    assert!(told.is_none(), "told once, before the first word");
                    told = Some(about_s);
                }
                Some(_) => {}
                None => break,
            }
        }
        waits.push(told);
    }
    assert!(waits[0].is_some_and(|about_s| (8..=12).contains(&about_s)), "{waits:?}");
    assert_eq!(waits[1..], [None, None]);
}

/// Three slots, and the third speaks.
#[tokio::test]
async fn the_reserve_speaks_when_the_two_before_it_cannot() {
    let hailo = HailoSim::start(instant(Release::V5_3, always(&NPU)));
    let ollama = OllamaSim::start(instant_ollama(always(&CPU)));
    let openai = OpenAiPeer::start(&["From", " afar"]).await;
    let recorder = Arc::<Recorder>::default();
    let backends =
        vec![hailo.backend(&recorder), ollama.backend(&recorder), openai.backend(&recorder)];
    let dir = tempfile::tempdir().unwrap();
    let mut house = Parts::new(recorder, backends).start(dir.path());
    hailo.fault(every(Phase::AfterHead, Kind::Close));
    ollama.fault(every(Phase::BeforeHead, Kind::Reset));
    for turn in 1..=4 {
        let answer = house.ask("hello").await;
        assert_eq!((answer.text.as_str(), answer.backend.as_str()), ("From afar", "openai"));
        // Three failures in a minute open the first one; the second was gone at once.
        let want = if turn < 3 { "closed" } else { "open" };
        assert_eq!((house.breaker(0), house.breaker(1)), (want, "open"), "turn {turn}");
    }
    hailo.clear();
    ollama.clear();
    house.recover();
    house.closed(0).await;
    house.closed(1).await;
    assert_eq!(house.ask("hello").await.text, NPU.concat());
}
