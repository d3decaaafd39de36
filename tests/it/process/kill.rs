//! `kill -9` at random moments of a conversation.
//!
//! A client keeps what it was shown; after each kill the next process must have all of it, each
//! thing once and in its order, and the file must be sound. `CRAYFISH_SEED` replays the moments.
//!
//! A disk that is slower than `limits::COMMIT_WAIT_MAX` is the one excuse for a loss, and the
//! process must have said that it showed words before they were stored.

use std::time::Duration;

use hailo::sim::clock::Pace;
use hailo::sim::scenario::Reply;
use serde_json::Value;

use super::{copied_database, hailo_that};
use crate::client::{Streamed, history};
use crate::daemon::Setup;

/// Kills.
const KILLS: usize = 300;

/// Answers in the script, and words in each: no two words are the same.
const ANSWERS: usize = 6_000;
const WORDS: usize = 10;

/// Simulated seconds in a real one: some 3 ms for each word, so that most kills hit an answer.
const PACE: f64 = 40.0;

/// The longest a process lives after it is ready.
const LIFE_MAX_MS: u64 = 160;

/// The longest a process lives that is killed before it is ready; a start takes some 15 ms.
const BIRTH_MAX_MS: u64 = 20;

/// Lines after which a new conversation is begun, so that all of one can be asked for.
const LINES_MAX: usize = 150;

/// One thing that was said, and what the client saw of the answer.
#[derive(Debug, Clone, Default)]
struct Seen {
    message: String,
    /// The door said that it took the message.
    taken: bool,
    shown: String,
    /// The last frame, if it was one that ends a turn.
    end: Option<String>,
    /// The process said that it showed words before they were stored.
    late: bool,
}

fn script() -> Vec<Reply> {
    let words = |answer| (0..WORDS).map(move |word| format!(" a{answer}w{word}"));
    (0..ANSWERS)
        .map(|answer| Reply { tokens: Some(words(answer).collect()), ..Reply::default() })
        .collect()
}

/// Talks until the connection breaks.
fn talk(port: u16, session: &str, round: usize) -> Vec<Seen> {
    let mut all = Vec::new();
    for number in 0.. {
        let message = format!("message {round}/{number}");
        let mut seen = Seen { message: message.clone(), ..Seen::default() };
        let asked = Streamed::ask(port, session, &message);
        let Ok(mut answer) = asked else {
            all.push(seen);
            break;
        };
        seen.taken = true;
        let broken = loop {
            match answer.next() {
                Ok(Some(frame)) => match frame["event"].as_str().unwrap() {
                    "delta" => seen.shown.push_str(frame["text"].as_str().unwrap()),
                    end @ ("done" | "error" | "cancelled") => seen.end = Some(end.to_owned()),
                    _ => {}
                },
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        all.push(seen);
        if broken {
            break;
        }
    }
    all
}

/// The lines of the log against what the client saw.
fn compare(lines: &[Value], all: &[Seen], round: usize) {
    let text = |line: &Value| line["content"].as_str().unwrap().to_owned();
    let turns: Vec<u64> = lines.iter().map(|line| line["turn"].as_u64().unwrap()).collect();
    assert!(turns.is_sorted(), "round {round}: turns out of order: {lines:#?}");
    let mut last_turn = 0;
    for seen in all {
        let found: Vec<&Value> = lines
            .iter()
            .filter(|line| line["role"] == "user" && text(line) == seen.message)
            .collect();
        assert!(found.len() <= 1, "round {round}: twice: {seen:?} {found:?}");
        let Some(line) = found.first() else {
            assert!(!seen.taken, "round {round}: taken and lost: {seen:?}\n{lines:#?}");
            continue;
        };
        let turn = line["turn"].as_u64().unwrap();
        assert!(turn > last_turn, "round {round}: out of order: {seen:?}");
        last_turn = turn;
        let answers: Vec<&Value> = lines
            .iter()
            .filter(|line| line["role"] == "agent" && line["turn"].as_u64() == Some(turn))
            .collect();
        assert!(answers.len() <= 1, "round {round}: answered twice: {answers:?}");
        let kept = answers.first().map(|line| text(line)).unwrap_or_default();
        let outcome = answers.first().map_or("", |line| line["outcome"].as_str().unwrap());
        let excused = seen.late && seen.shown.starts_with(&kept);
        assert!(
            kept.starts_with(&seen.shown) || excused,
            "round {round}: shown {:?}, kept {kept:?} ({outcome})",
            seen.shown
        );
        match &seen.end {
            Some(end) => {
                assert_eq!((end.as_str(), outcome), ("done", "done"), "round {round}: {seen:?}");
                assert_eq!(kept, seen.shown, "round {round}");
            }
            // The end may have been stored in the moment in which it was no more told.
            None => assert!(
                matches!(outcome, "interrupted" | "done" | ""),
                "round {round}: {seen:?} ended as {outcome}"
            ),
        }
        assert!(!outcome.is_empty() || kept.is_empty(), "round {round}: an answer without an end");
        let words: Vec<&str> = kept.split_whitespace().collect();
        let mut once = words.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), words.len(), "round {round}: words twice: {kept}");
    }
}

#[test]
fn kill_9_at_random_moments_loses_nothing_that_was_shown_and_tells_nothing_twice() {
    let seed = std::env::var("CRAYFISH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("CRAYFISH_SEED={seed}, {KILLS} kills");
    let mut random = fastrand::Rng::with_seed(seed);
    let hailo = hailo_that(Pace::Factor(PACE), script());
    let setup = Setup::on_hailo(hailo.addr());
    let (mut session, mut all) = ("c0".to_owned(), Vec::new());
    let (mut hit, mut late) = (0, 0);
    for round in 0..=KILLS {
        if random.u8(..4) == 0 {
            // Killed while it closes what the last one left open.
            let mut early = setup.spawn();
            std::thread::sleep(Duration::from_micros(random.u64(..BIRTH_MAX_MS * 1000)));
            early.kill();
        }
        let mut daemon = setup.start();
        let lines = history(daemon.port, &session);
        compare(&lines, &all, round);
        if lines.len() > LINES_MAX {
            session = format!("c{round}");
            all.clear();
        }
        if round == KILLS {
            assert_eq!(daemon.stop(), 0);
            break;
        }
        let life = Duration::from_micros(random.u64(..LIFE_MAX_MS * 1000));
        let (port, name) = (daemon.port, session.clone());
        let client = std::thread::spawn(move || talk(port, &name, round));
        std::thread::sleep(life);
        daemon.kill();
        let mut seen = client.join().unwrap();
        let was_late = daemon.log.has("store.late");
        late += usize::from(was_late);
        if let Some(last) = seen.last_mut() {
            last.late = was_late;
        }
        hit += usize::from(seen.last().is_some_and(|last| last.taken && last.end.is_none()));
        all.extend(seen);
        // The file as the kill left it.
        drop(copied_database(setup.state(), &setup.dir().join("copy")));
    }
    println!("{hit} of {KILLS} kills hit an open answer; {late} processes showed before storing");
    assert!(hit * 4 > KILLS, "only {hit} of {KILLS} kills hit an open answer");
}
