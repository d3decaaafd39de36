//! Many turns at once, stopped at random: one request inside, one end for each turn, and silence
//! after a stop.

use std::sync::Arc;
use std::time::Duration;

use crayfish::agent::{Converse, Turn, TurnEvent};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hailo::model::Release;
use hailo::sim::clock::Pace;
use hailo::sim::hailo as hailo_sim;
use hailo::sim::log::{End, Event};
use hailo::sim::scenario::{Kind, Phase, Scenario};

use super::house::{House, LATE, NOW_MS, Parts, Recorder, Told, told, until};
use super::servers::{HailoSim, OllamaSim, always, instant, instant_ollama, next};

const SESSIONS: usize = 5;
const TURNS_EACH: usize = 10;

fn quick(release: Release, factor: f64, scenario: Scenario) -> HailoSim {
    let options = hailo_sim::Options { pace: Pace::Factor(factor), ..instant(release, scenario) };
    HailoSim::start(options)
}

fn house(sim: &HailoSim, dir: &tempfile::TempDir) -> House {
    let recorder = Arc::<Recorder>::default();
    let mut parts = Parts::new(Arc::clone(&recorder), vec![sim.backend(&recorder)]);
    parts.settings.deadline = LATE;
    parts.start(dir.path())
}

/// Ten turns of one session, each stopped after a random time or left alone.
async fn talk(house: &House, number: usize, seed: u64) -> Vec<Told> {
    let mut random = fastrand::Rng::with_seed(seed ^ (number as u64) << 32);
    let session = format!("s{number}");
    let mut ends = Vec::new();
    for turn in 0..TURNS_EACH {
        let words = "word ".repeat(random.usize(1..60));
        let running = house.submit(&session, &format!("{turn}: {words}")).await;
        let stop_after = random.bool().then(|| Duration::from_millis(random.u64(0..400)));
        let stop = async {
            if let Some(after) = stop_after {
                tokio::time::sleep(after).await;
                house.agent.cancel(Some(&session));
            }
        };
        let (told, ()) = tokio::join!(told(running), stop);
        ends.push(told);
    }
    ends
}

/// Seeds are fixed; a failure names its own.
#[tokio::test]
async fn a_storm_of_turns_and_stops_never_puts_two_requests_inside() {
    for (seed, release) in [(11, Release::V5_1_1), (23, Release::V5_4)] {
        let sim = quick(release, 60.0, Scenario::default());
        let dir = tempfile::tempdir().unwrap();
        let house = house(&sim, &dir);
        let talks: FuturesUnordered<_> =
            (0..SESSIONS).map(|number| talk(&house, number, seed)).collect();
        let told: Vec<Told> = talks.collect::<Vec<_>>().await.into_iter().flatten().collect();
        assert_eq!(told.len(), SESSIONS * TURNS_EACH);
        let done = told.iter().filter(|told| matches!(told.end, TurnEvent::Done(_))).count();
        let stopped = told.iter().filter(|told| told.end == TurnEvent::Cancelled).count();
        assert_eq!(done + stopped, told.len(), "seed {seed}: {told:#?}");
        assert!(done >= 10 && stopped >= 5, "seed {seed}: {done} done, {stopped} stopped");
        let state = sim.state();
        assert_eq!(state.counters.overlapping, 0, "seed {seed}");
        assert_eq!(state.counters.requests, state.counters.generations + 1, "and one for tags");
        assert_eq!(house.agent.turns(), 0);
        let waits = sim.count(|event| matches!(event, Event::LockWait));
        println!("seed {seed}: {waits} waits for the lock, {done} done, {stopped} stopped");
        assert_shown_is_kept(&house, &told).await;
    }
}

/// What the doors were told is what the log has, for each session.
async fn assert_shown_is_kept(house: &House, told: &[Told]) {
    let mut kept = Vec::new();
    for number in 0..SESSIONS {
        let lines = house.agent.history(Some(&format!("s{number}")), 200).await.unwrap();
        kept.extend(lines.into_iter().filter(|line| !line.from_person).map(|line| line.text));
    }
    let mut shown: Vec<String> =
        told.iter().map(|told| told.text.clone()).filter(|text| !text.is_empty()).collect();
    kept.retain(|text| !text.is_empty());
    kept.sort();
    shown.sort();
    assert_eq!(kept, shown);
}

/// Reads deltas until `text` was told.
async fn until_told(turn: &mut Turn, text: &str) {
    let mut heard = String::new();
    while heard != text {
        match tokio::time::timeout(LATE, turn.events.recv()).await.unwrap() {
            Some(TurnEvent::Delta(piece)) => heard.push_str(&piece),
            Some(TurnEvent::Waiting { .. }) => {}
            other => panic!("{other:?} after {heard:?}"),
        }
        assert!(text.starts_with(&heard), "{heard:?} is more than {text:?}");
    }
}

#[tokio::test]
async fn after_a_stop_not_one_more_word_is_shown_and_the_server_is_free_at_once() {
    futures_util::future::join_all(Release::ALL.map(stopped_after_three_words)).await;
}

async fn stopped_after_three_words(release: Release) {
    let words = ["One", " two", " three", " four", " five"];
    let sim = quick(release, 100.0, always(&words));
    let dir = tempfile::tempdir().unwrap();
    let house = house(&sim, &dir);
    house.ask("hello").await;
    // Three seconds here, so that the stop comes first; then the server goes on.
    sim.fault(next(Phase::Token(3), Kind::Stall(300_000)));
    let mut turn = house.submit("main", "count").await;
    until_told(&mut turn, "One two three").await;
    assert!(house.agent.cancel(None));
    let rest = told(turn).await;
    assert_eq!((rest.text.as_str(), rest.end), ("", TurnEvent::Cancelled));
    let gone = |event: &Event| matches!(event, Event::Ended { end: End::Gone, .. });
    until("the server notices", || sim.count(gone) == 1).await;
    let sent = sim.log().into_iter().rev().find(|entry| gone(&entry.event));
    assert!(
        matches!(sent.map(|entry| entry.event), Some(Event::Ended { sent: 3..=5, .. })),
        "one or two more tokens were decoded"
    );
    let lines = house.agent.history(None, 10).await.unwrap();
    assert_eq!(lines.last().unwrap().text, "One two three");
    assert_eq!(lines.last().unwrap().outcome, Some("cancelled"));
}

/// What was sent in which order, not a stop watch: between the fault and the CPU lies one request,
/// and once the fault is known none.
#[tokio::test]
async fn with_hailo_faulted_the_cpu_speaks_within_the_budget_of_the_fail_over() {
    for (phase, kind) in [
        (Phase::BeforeHead, Kind::Hang),
        (Phase::AfterHead, Kind::Hang),
        (Phase::BeforeHead, Kind::Reset),
        (Phase::AfterHead, Kind::Close),
    ] {
        let sim = HailoSim::start(instant(Release::V5_4, Scenario::default()));
        let ollama = OllamaSim::start(instant_ollama(always(&["From", " the", " CPU"])));
        let recorder = Arc::<Recorder>::default();
        let backends = vec![sim.backend(&recorder), ollama.backend(&recorder)];
        let dir = tempfile::tempdir().unwrap();
        let house = Parts::new(Arc::clone(&recorder), backends).start(dir.path());
        house.ask("hello").await;
        sim.fault(next(phase, kind.clone()));
        assert_eq!(house.ask("and now?").await.text, "From the CPU", "{phase:?} {kind:?}");
        // hailo-sim was asked once, and not again before or after the CPU was.
        let urls: Vec<String> = recorder.chats().into_iter().map(|sent| sent.url).collect();
        let asked = |server: std::net::SocketAddr| {
            urls.iter().filter(|url| url.contains(&server.to_string())).count()
        };
        assert_eq!((asked(sim.addr()), asked(ollama.addr())), (2, 1), "{phase:?} {kind:?}");
        assert!(urls.last().unwrap().contains(&ollama.addr().to_string()));
        // From the second turn on the breaker spares everybody the wait.
        if kind != Kind::Close {
            assert_eq!(house.ask("and now?").await.text, "From the CPU");
            assert_eq!(sim.state().counters.generations, 2, "an open breaker sends nothing");
        }
    }
}

#[tokio::test]
async fn a_wall_clock_that_jumps_changes_nothing_in_a_running_answer() {
    let words = ["One", " two", " three", " four", " five"];
    let sim = quick(Release::V5_1_1, 200.0, always(&words));
    let dir = tempfile::tempdir().unwrap();
    let house = house(&sim, &dir);
    house.clock.set(3_600_000);
    for tokens in [1, 4] {
        // A second here, in which the clock jumps.
        sim.fault(next(Phase::Token(tokens), Kind::Stall(200_000)));
        let mut turn = house.submit("main", "count").await;
        until_told(&mut turn, &words[..tokens as usize].concat()).await;
        let jumps = [NOW_MS, 0, NOW_MS + 86_400_000 * 3650, 3_600_000, -1];
        for at_ms in jumps {
            house.clock.set(at_ms);
            tokio::task::yield_now().await;
        }
        let mut text = words[..tokens as usize].concat();
        let mut end = None;
        while let Some(event) = tokio::time::timeout(LATE, turn.events.recv()).await.unwrap() {
            match event {
                TurnEvent::Delta(piece) => text.push_str(&piece),
                TurnEvent::Waiting { .. } => {}
                terminal => end = Some(terminal),
            }
        }
        assert_eq!(text, words.concat());
        assert!(matches!(end, Some(TurnEvent::Done(_))), "{end:?}");
    }
    let state = sim.state();
    assert_eq!(state.counters.generations, 2);
    assert_eq!(state.counters.continuations, 1, "and the cache is still of use");
}

/// Everything at once: two servers, faults of every kind at random, stops, and probes beside it.
#[tokio::test]
async fn a_storm_of_faults_ends_every_turn_once_and_passes() {
    let kinds = [
        Kind::Reset,
        Kind::Close,
        Kind::Hang,
        Kind::Truncate,
        Kind::Garbage,
        Kind::ErrorLine("out of order".into()),
        Kind::Status { code: 500, text: "Failed to create LLM".into() },
        Kind::Status { code: 500, text: "LLM not loaded".into() },
        Kind::Status { code: 503, text: "busy".into() },
        Kind::Crash,
    ];
    let phases = [
        Phase::BeforeHead,
        Phase::DuringLoad,
        Phase::AfterHead,
        Phase::Token(1),
        Phase::Token(9),
        Phase::BeforeDone,
    ];
    for seed in [3, 4] {
        let sim = quick(Release::V5_1_1, 200.0, Scenario::default());
        let ollama = OllamaSim::start(instant_ollama(Scenario::default()));
        let recorder = Arc::<Recorder>::default();
        let backends = vec![sim.backend(&recorder), ollama.backend(&recorder)];
        let dir = tempfile::tempdir().unwrap();
        let mut parts = Parts::new(Arc::clone(&recorder), backends);
        parts.settings.deadline = LATE;
        let mut house = parts.start(dir.path());
        house.recover();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut ends = [0_usize; 3];
        for turn in 0..40 {
            if random.u8(..) < 160 {
                let fault =
                    next(random.choice(phases).unwrap(), random.choice(&kinds).unwrap().clone());
                if random.u8(..) < 200 { sim.fault(fault) } else { ollama.fault(fault) }
            }
            let session = format!("s{}", turn % 3);
            let running = house.submit(&session, &format!("question {turn}")).await;
            let stop_after =
                (random.u8(..) < 60).then(|| Duration::from_millis(random.u64(0..200)));
            let stop = async {
                if let Some(after) = stop_after {
                    tokio::time::sleep(after).await;
                    house.agent.cancel(Some(&session));
                }
            };
            let (told, ()) = tokio::join!(told(running), stop);
            match told.end {
                TurnEvent::Done(_) => ends[0] += 1,
                TurnEvent::Failed { code, .. } => {
                    let shown = !told.text.is_empty();
                    assert_eq!(code, if shown { "broke_off" } else { "offline" }, "seed {seed}");
                    ends[1] += 1;
                }
                _ => ends[2] += 1,
            }
        }
        println!("seed {seed}: {ends:?} done, failed, stopped");
        assert!(ends[0] >= 15, "seed {seed}: {ends:?}");
        sim.clear();
        ollama.clear();
        house.closed(0).await;
        house.closed(1).await;
        until("both servers are well", || !sim.state().lock_held).await;
        assert_eq!(house.ask("at last").await.backend, "hailo", "seed {seed}");
    }
}
