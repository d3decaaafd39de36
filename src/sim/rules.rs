//! What must hold after every step, in the log, at the end of a life, and after the faults.

use std::collections::BTreeMap;
use std::time::Duration;

use super::book::{End, Facts, Question};
use super::disk::Mode;
use super::world::{House, World, disk_is_well};
use crate::limits;
use crate::session::log::Line;
use crate::store::EventRow;

/// After a stop, the turn has ended within this time, if the disk is well.
const STOP_MAX: Duration = Duration::from_secs(3);

/// A turn ends at its deadline; closing it in the log may take so long.
const CLOSING_MAX: Duration = Duration::from_secs(15);

/// A slow reader hears of the end later: a queue of events, one after the other.
const SLOW_READING: Duration = Duration::from_secs(60);

/// A fault that began before they stopped is over by then.
const LAST_FAULTS: Duration = Duration::from_secs(45);

/// After the faults everything must be well within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(300);

/// Rules that need no questions to the daemon.
pub(super) fn step(world: &World, house: &House) {
    let broken = |rule: &str| world.journal.broken(rule);
    let turns = house.room.agent.turns();
    if turns > limits::TURNS_MAX {
        broken(&format!("{turns} turns at once"));
    }
    let now = world.journal.now();
    let facts = world.book.open();
    let mut late = Vec::new();
    for (id, one) in facts.questions.iter().filter(|(_, one)| one.life == facts.life) {
        if one.end.is_some() || one.walked_away {
            continue;
        }
        let Some(accepted_at) = one.accepted_at else { continue };
        let reading = if one.slow { SLOW_READING } else { Duration::ZERO };
        if now > accepted_at + house.deadline + CLOSING_MAX + reading {
            late.push(format!("q{id} has no end {:?} after it was accepted", now - accepted_at));
        }
        let stopped = one.cancelled_at.is_some_and(|at| now > at + STOP_MAX + reading);
        if stopped && disk_is_well(world) && !one.loose {
            late.push(format!("q{id} runs on although it was stopped"));
        }
    }
    drop(facts);
    for rule in late {
        broken(&rule);
    }
}

/// After an orderly stop every reader has heard an end.
pub(super) fn all_ended(world: &World) {
    let facts = world.book.open();
    let open = facts.questions.iter().find(|(_, one)| {
        one.life == facts.life
            && one.accepted_at.is_some()
            && one.end.is_none()
            && !one.walked_away
            && !one.slow
    });
    let open = open.map(|(id, _)| *id);
    drop(facts);
    if let Some(id) = open {
        world.journal.broken(&format!("q{id} has no end after an orderly stop"));
    }
}

/// What people were shown is in the log, once. Asked only while the database can answer.
pub(super) async fn log(world: &World, house: &House) {
    let health = house.store.health();
    if world.disk.mode() != Mode::Well || health.degraded || health.kept > 0 {
        return;
    }
    // The log may be newer than what was read before, never older.
    let before = world.book.open().questions.clone();
    for session in ["main", "kitchen"] {
        let rows = house.store.events_of(session, 0..u64::MAX).await;
        let lines = house.sessions.history(session, 100_000).await;
        if world.disk.mode() != Mode::Well || house.store.health().degraded {
            return;
        }
        let (Ok(rows), Ok(lines)) = (rows, lines) else {
            world.journal.broken("a healthy disk cannot be read");
            return;
        };
        let mut wrong = sequence(&rows);
        let facts = world.book.open();
        let asked = before.iter().filter(|(_, one)| one.session == session);
        wrong.extend(lines_of(&facts, asked, &lines, world.began_well));
        drop(facts);
        for rule in wrong.iter().take(1) {
            world.journal.broken(&format!("log of {session}: {rule}"));
        }
    }
}

/// `seq` without gaps, and each turn with one beginning and at most one answer and one end.
fn sequence(rows: &[EventRow]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut kinds: BTreeMap<(u64, &str), u32> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        if row.seq != at as u64 + 1 {
            wrong.push(format!("event {} has seq {}", at + 1, row.seq));
        }
        *kinds.entry((row.turn, row.kind.as_str())).or_default() += 1;
    }
    for ((turn, kind), count) in kinds {
        if count > 1 {
            wrong.push(format!("turn {turn} has {count} events {kind}"));
        }
    }
    wrong
}

fn lines_of<'a>(
    facts: &Facts,
    asked: impl Iterator<Item = (&'a u32, &'a Question)>,
    lines: &[Line],
    recovered: bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut found: BTreeMap<u32, &Line> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.from_person) {
        let Some(id) = Facts::question_in(&line.text) else { continue };
        if found.insert(id, line).is_some() {
            wrong.push(format!("q{id} stands there twice"));
        }
    }
    for (id, question) in asked {
        match found.get(id) {
            None if must_be_there(facts, question) => {
                wrong.push(format!("q{id} was accepted and is not there"));
            }
            None => {}
            Some(_) if question.refused => wrong.push(format!("q{id} was refused and is there")),
            Some(line) if line.text != question.typed => {
                wrong.push(format!("q{id} is not what was typed"));
            }
            Some(line) => {
                let answer = lines.iter().find(|one| one.turn == line.turn && !one.from_person);
                wrong.extend(answer_of(facts, *id, question, answer, recovered));
            }
        }
    }
    wrong
}

fn must_be_there(facts: &Facts, question: &Question) -> bool {
    question.accepted_at.is_some() && (question.life == facts.life || !question.loose)
}

fn answer_of(
    facts: &Facts,
    id: u32,
    question: &Question,
    answer: Option<&Line>,
    recovered: bool,
) -> Option<String> {
    let here = question.life == facts.life;
    let Some(answer) = answer else {
        let ended = question.end.is_some() && must_be_there(facts, question);
        return (ended || (!here && recovered)).then(|| format!("q{id} has no end there"));
    };
    let (text, outcome) = (answer.text.as_str(), answer.outcome.unwrap_or("none"));
    let surely = must_be_there(facts, question);
    let fits = match &question.end {
        Some(End::Done { text: said, .. }) => outcome == "done" && text == said,
        Some(End::Cancelled) => outcome == "cancelled" && text.starts_with(&question.shown),
        Some(End::Failed { words, .. }) => {
            matches!(outcome, "error" | "interrupted")
                && text.starts_with(&question.shown)
                && text.ends_with(words.as_str())
        }
        None => {
            let interrupted = outcome == "interrupted";
            let whole = facts.may_have_shown(id, text) || text.contains("shut down");
            text.starts_with(&question.shown) && (!interrupted || whole)
        }
    };
    // A crash while the disk was bad may have made less of it.
    let less = !surely && question.shown.starts_with(text);
    let interrupted = !here && outcome == "interrupted" && !surely;
    (!fits && !less && !interrupted).then(|| {
        format!(
            "q{id} ended {:?} after {:?}; there: {outcome} {text:?}",
            question.end, question.shown
        )
    })
}

/// Whether everything is as it should be, or what is not.
fn well(house: &House) -> Result<(), String> {
    let states = house.provider.states();
    let health = house.store.health();
    let turns = house.room.agent.turns();
    let closed = states.iter().all(|state| state.breaker == "closed");
    if closed && !health.degraded && health.kept == 0 && turns == 0 {
        return Ok(());
    }
    let breakers: Vec<_> = states.iter().map(|one| (&one.name, one.breaker)).collect();
    Err(format!("breakers {breakers:?}, {health:?}, {turns} turns"))
}

/// The faults stop; within five minutes all is well and a new question is answered by the NPU.
pub(super) async fn recovery(world: &mut World, house: &House) {
    world.journal.note("the faults stop");
    world.mends.clear();
    world.disk.set(Mode::Well);
    for server in &world.servers {
        server.recover();
    }
    let until = world.journal.now() + RECOVERY_MAX;
    // Requests that were spoilt before are still on their way.
    tokio::time::sleep(LAST_FAULTS).await;
    // A server that lost its model while nobody looked costs one answer.
    loop {
        if let Err(why) = well(house) {
            if world.journal.now() > until {
                world.journal.broken(&format!("not well after five minutes: {why}"));
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        }
        let id = world.ask(house, "main");
        let end = loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            step(world, house);
            let end = world.book.open().questions.get(&id).and_then(|one| one.end.clone());
            if end.is_some() || world.journal.first_broken().is_some() {
                break end;
            }
        };
        match end {
            Some(End::Done { backend, .. }) if backend == "hailo" => break,
            end if end.is_none() || world.journal.now() > until => {
                world.journal.broken(&format!("q{id}, asked when all was well, ends {end:?}"));
                return;
            }
            _ => {}
        }
    }
    let snapshot = house.snapshot.load();
    if !snapshot.online || !snapshot.store_ok || snapshot.active_backend != "hailo" {
        world.journal.broken(&format!("all is well and the status says {snapshot:?}"));
    }
    step(world, house);
    log(world, house).await;
}
