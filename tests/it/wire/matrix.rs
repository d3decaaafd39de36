//! Every fault of the specification's table, at every phase of an answer, on each backend.
//!
//! A cell is one house: a turn that goes well, a turn under a fault that hits every request until
//! it is cleared, then turns until the server is used again. What must hold in all cells is in
//! `cell`; what the table says of one is in the functions that give an [`Expect`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crayfish::agent::TurnEvent;
use crayfish::event::Event;
use crayfish::provider::backend::Backend;
use futures_util::{StreamExt, stream};
use hailo::model::Release;
use hailo::sim::scenario::{Fault, Kind, Phase};

use super::house::{House, Parts, Recorder, Told};
use super::openai_peer::OpenAiPeer;
use super::servers::{HailoSim, OllamaSim, always, every, instant, instant_ollama};

/// What the server under test says, token by token, and what the other one says.
const WORDS: [&str; 8] = ["One", " two", " three", " four", " five", " six", " seven", "."];
const OTHER: [&str; 3] = ["Another", " voice", "."];

/// What the table says of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// The fault does no harm: the server under test answers.
    Answered,
    /// Nothing was shown: the other backend answers, after so many tries on this one. `trip`:
    /// the breaker opens at once.
    FellBack { tries: u64, trip: bool },
    /// Part was shown: the turn says that it broke off.
    BrokeOff,
}

/// A server that can be broken.
trait Target: Send + Sync {
    fn backend(&self, recorder: &Arc<Recorder>) -> (Arc<dyn Backend>, u32);
    fn plan(&self, fault: Fault);
    fn clear(&self);
    /// Requests for an answer that reached it.
    fn generations(&self) -> u64;
}

impl Target for HailoSim {
    fn backend(&self, recorder: &Arc<Recorder>) -> (Arc<dyn Backend>, u32) {
        self.backend(recorder)
    }

    fn plan(&self, fault: Fault) {
        self.fault(fault);
    }

    fn clear(&self) {
        self.clear();
    }

    fn generations(&self) -> u64 {
        self.state().counters.generations
    }
}

impl Target for OllamaSim {
    fn backend(&self, recorder: &Arc<Recorder>) -> (Arc<dyn Backend>, u32) {
        self.backend(recorder)
    }

    fn plan(&self, fault: Fault) {
        self.fault(fault);
    }

    fn clear(&self) {
        self.clear();
    }

    fn generations(&self) -> u64 {
        self.state().counters.generations
    }
}

impl Target for OpenAiPeer {
    fn backend(&self, recorder: &Arc<Recorder>) -> (Arc<dyn Backend>, u32) {
        self.backend(recorder)
    }

    fn plan(&self, fault: Fault) {
        self.fault(fault);
    }

    fn clear(&self) {
        self.clear();
    }

    fn generations(&self) -> u64 {
        self.bodies().len() as u64
    }
}

fn status(code: u16, text: &str) -> Kind {
    Kind::Status { code, text: text.into() }
}

/// Every kind that every simulator has, with one harmless one.
fn kinds() -> Vec<Kind> {
    vec![
        Kind::Reset,
        Kind::Close,
        Kind::Hang,
        Kind::Truncate,
        Kind::Garbage,
        Kind::ErrorLine("the device is on fire".into()),
        Kind::Slow(0.5),
        Kind::Stall(200),
        Kind::Crash,
    ]
}

/// What the table says once the head is out, the same for all dialects.
fn after_head(phase: Phase, kind: &Kind) -> Expect {
    match (phase, kind) {
        (_, Kind::Slow(_) | Kind::Stall(_)) => Expect::Answered,
        (Phase::AfterHead, Kind::Hang) => Expect::FellBack { tries: 1, trip: true },
        (Phase::AfterHead, _) => Expect::FellBack { tries: 1, trip: false },
        _ => Expect::BrokeOff,
    }
}

fn hailo_cells() -> Vec<(Phase, Kind, Expect)> {
    let gone = Expect::FellBack { tries: 1, trip: true };
    let once = Expect::FellBack { tries: 1, trip: false };
    let twice = Expect::FellBack { tries: 2, trip: false };
    let mut cells = vec![
        (Phase::BeforeHead, status(500, "Failed to create VDevice"), gone),
        (Phase::BeforeHead, status(500, "Failed to create LLM"), twice),
        (Phase::BeforeHead, status(500, "Failed to clear context"), twice),
        (Phase::BeforeHead, status(500, "Failed to generate"), twice),
        (Phase::BeforeHead, status(500, "LLM not loaded"), twice),
        (Phase::BeforeHead, status(400, "\"m\" does not support tools"), twice),
        (Phase::BeforeHead, status(500, "read failed!"), twice),
        (Phase::BeforeHead, status(500, "No suitable mapper found to deserialize"), once),
        (Phase::BeforeHead, status(503, "Service Unavailable"), twice),
    ];
    for kind in kinds() {
        for phase in [Phase::BeforeHead, Phase::DuringLoad] {
            let expect = match &kind {
                // A line cannot be sent before the head, so this one does nothing.
                Kind::Garbage | Kind::Slow(_) | Kind::Stall(_) => Expect::Answered,
                Kind::ErrorLine(_) => once,
                _ => gone,
            };
            cells.push((phase, kind.clone(), expect));
        }
        for phase in [Phase::AfterHead, Phase::Token(1), Phase::Token(4), Phase::BeforeDone] {
            let expect = after_head(phase, &kind);
            cells.push((phase, kind.clone(), expect));
        }
    }
    cells
}

fn ollama_cells() -> Vec<(Phase, Kind, Expect)> {
    let gone = Expect::FellBack { tries: 1, trip: true };
    let once = Expect::FellBack { tries: 1, trip: false };
    let twice = Expect::FellBack { tries: 2, trip: false };
    let busy = "server busy, please try again.  maximum pending requests exceeded";
    let died = "llama runner process has terminated: signal: killed";
    let mut cells = vec![
        (Phase::BeforeHead, status(503, busy), twice),
        (Phase::BeforeHead, status(500, died), once),
        (Phase::DuringLoad, status(500, died), once),
        (Phase::BeforeHead, status(400, "prompt too long"), once),
        (Phase::BeforeHead, status(404, "model 'm' not found"), once),
        (Phase::Token(4), status(500, died), Expect::BrokeOff),
    ];
    for kind in kinds() {
        let before = match &kind {
            Kind::Slow(_) | Kind::Stall(_) => Expect::Answered,
            // Before a token Ollama's error still has its status; garbage and a proper end come
            // under a head of their own.
            Kind::ErrorLine(_) | Kind::Garbage | Kind::Truncate => once,
            _ => gone,
        };
        cells.push((Phase::BeforeHead, kind.clone(), before));
        cells.push((Phase::DuringLoad, kind.clone(), before));
        for phase in [Phase::AfterHead, Phase::Token(1), Phase::Token(4), Phase::BeforeDone] {
            cells.push((phase, kind.clone(), after_head(phase, &kind)));
        }
    }
    cells
}

fn openai_cells() -> Vec<(Phase, Kind, Expect)> {
    let gone = Expect::FellBack { tries: 1, trip: true };
    let once = Expect::FellBack { tries: 1, trip: false };
    let twice = Expect::FellBack { tries: 2, trip: false };
    let mut cells = vec![
        (Phase::BeforeHead, status(429, "slow down"), twice),
        (Phase::BeforeHead, status(503, "loading model"), twice),
        (Phase::BeforeHead, status(500, "out of memory"), once),
        (Phase::BeforeHead, status(502, "bad gateway"), once),
        (Phase::BeforeHead, status(401, "who are you"), once),
        (Phase::BeforeHead, status(400, "bad request"), once),
        (Phase::BeforeHead, status(404, "the model `peer` does not exist"), once),
    ];
    for kind in kinds() {
        let before = match &kind {
            Kind::Garbage | Kind::Slow(_) | Kind::Stall(_) => Expect::Answered,
            Kind::ErrorLine(_) => once,
            _ => gone,
        };
        cells.push((Phase::BeforeHead, kind.clone(), before));
        for phase in [Phase::AfterHead, Phase::Token(1), Phase::Token(4), Phase::BeforeDone] {
            cells.push((phase, kind.clone(), after_head(phase, &kind)));
        }
    }
    cells
}

/// Runs one cell. Gives a complaint instead of a panic, so that all bad cells are told at once.
async fn cell(
    target: Box<dyn Target>,
    other: Box<dyn Target>,
    (phase, kind, expect): (Phase, Kind, Expect),
) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::<Recorder>::default();
    let backends = vec![target.backend(&recorder), other.backend(&recorder)];
    let mut house = Parts::new(Arc::clone(&recorder), backends).start(dir.path());
    if phase != Phase::DuringLoad {
        house.ask("hello").await;
    }
    house.heard();
    let before = target.generations();
    target.plan(every(phase, kind.clone()));
    let told = house.say("and now?").await;
    let tries = target.generations() - before;
    let tripped = house.breaker(0) != "closed";
    let fell_back = house.heard().iter().any(|event| matches!(event, Event::FellBack { .. }));
    let what = format!("{phase:?} {kind:?}: {told:?}, {tries} tries, tripped {tripped}");
    let verdict = judge(&kind, expect, &told, &Seen { tries, tripped, fell_back });
    target.clear();
    house.recover();
    let used_again = used_again(&house).await;
    let whole = house.agent.turns() == 0;
    drop(house);
    match verdict {
        Err(why) => Err(format!("{why}; want {expect:?}: {what}")),
        Ok(()) if !used_again => Err(format!("not used again: {what}")),
        Ok(()) if !whole => Err(format!("a turn is left over: {what}")),
        Ok(()) => Ok(()),
    }
}

/// What was seen of the turn under the fault.
struct Seen {
    tries: u64,
    tripped: bool,
    fell_back: bool,
}

fn judge(kind: &Kind, expect: Expect, told: &Told, seen: &Seen) -> Result<(), &'static str> {
    let words = WORDS.concat();
    let shown = &told.text;
    // What a reset overtakes in the peer's buffers is lost, down to nothing at all.
    let overtaken = matches!(kind, Kind::Reset | Kind::Crash);
    let ensure = |holds: bool, why| if holds { Ok(()) } else { Err(why) };
    ensure(seen.tries <= 2, "more than one retry")?;
    match &told.end {
        TurnEvent::Done(answer) if *shown == OTHER.concat() => {
            ensure(seen.fell_back, "the fallback is told")?;
            ensure(!answer.cut, "not cut")?;
        }
        TurnEvent::Done(_) => {
            ensure(*shown == words, "the whole answer")?;
            ensure(!seen.fell_back, "no fallback once something was shown")?;
        }
        TurnEvent::Failed { code: "broke_off", .. } => {
            ensure(!shown.is_empty(), "nothing was shown, so another could answer")?;
            ensure(on_a_boundary(shown), "what was shown is what was sent")?;
            ensure(!seen.fell_back, "no fallback once something was shown")?;
        }
        _ => return Err("an end it should not have"),
    }
    let now = match &told.end {
        TurnEvent::Done(_) if *shown == words => Expect::Answered,
        TurnEvent::Done(_) => Expect::FellBack { tries: seen.tries, trip: seen.tripped },
        _ => Expect::BrokeOff,
    };
    let overtook = overtaken && expect == Expect::BrokeOff;
    ensure(now == expect || overtook, "not what the table says")?;
    ensure(seen.tripped == matches!(expect, Expect::FellBack { trip: true, .. }), "the breaker")
}

fn on_a_boundary(shown: &str) -> bool {
    (0..=WORDS.len()).any(|count| WORDS[..count].concat() == shown)
}

/// Talks until the server under test answers again. While it comes back the other one may.
async fn used_again(house: &House) -> bool {
    for _ in 0..40 {
        house.closed(0).await;
        let told = house.say("and again?").await;
        match told.end {
            TurnEvent::Done(_) if told.text == WORDS.concat() => return true,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    false
}

/// Runs all cells, some at a time, and tells of all that went wrong.
async fn run_all<F>(cells: Vec<F>)
where
    F: Future<Output = Result<(), String>>,
{
    let results: Vec<_> = stream::iter(cells).buffer_unordered(8).collect().await;
    let wrong: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} cells:\n{}", wrong.len(), wrong.join("\n"));
}

async fn hailo_matrix(release: Release) {
    let cell = |one| {
        let hailo = HailoSim::start(instant(release, always(&WORDS)));
        let ollama = OllamaSim::start(instant_ollama(always(&OTHER)));
        cell(Box::new(hailo), Box::new(ollama), one)
    };
    run_all(hailo_cells().into_iter().map(cell).collect()).await;
}

#[tokio::test]
async fn every_fault_at_every_phase_of_hailo_ollama_5_1_1_ends_as_the_table_says() {
    hailo_matrix(Release::V5_1_1).await;
}

#[tokio::test]
async fn every_fault_at_every_phase_of_hailo_ollama_5_3_ends_as_the_table_says() {
    hailo_matrix(Release::V5_3).await;
}

#[tokio::test]
async fn every_fault_at_every_phase_of_hailo_ollama_5_4_ends_as_the_table_says() {
    hailo_matrix(Release::V5_4).await;
}

#[tokio::test]
async fn every_fault_at_every_phase_of_ollama_ends_as_the_table_says() {
    let cell = |one| async {
        let ollama = OllamaSim::start(instant_ollama(always(&WORDS)));
        let openai = OpenAiPeer::start(&OTHER).await;
        cell(Box::new(ollama), Box::new(openai), one).await
    };
    run_all(ollama_cells().into_iter().map(cell).collect()).await;
}

#[tokio::test]
async fn every_fault_at_every_phase_of_an_openai_server_ends_as_the_table_says() {
    let cell = |one| async {
        let openai = OpenAiPeer::start(&WORDS).await;
        let ollama = OllamaSim::start(instant_ollama(always(&OTHER)));
        cell(Box::new(openai), Box::new(ollama), one).await
    };
    run_all(openai_cells().into_iter().map(cell).collect()).await;
}
