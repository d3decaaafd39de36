//! People in front of the daemon: they ask, read, stop it, go away and come back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::book::{Book, End};
use super::disk::{Mode, SimDisk};
use super::journal::Journal;
use crate::agent::audience::TurnEvents;
use crate::agent::service::Agent;
use crate::agent::{Converse, Refused, Submission, TurnEvent};
use crate::event::Events;
use crate::provider::backend::{Message, Role, Sampling};
use crate::provider::lease::Priority;
use crate::provider::prompt::{Fitted, NoRoom, Prompt};
use crate::provider::{Job, Provider};

/// After a stop, words that were on their way may still come for so long.
const LATE_WORDS: Duration = Duration::from_millis(60);

/// What a person needs.
#[derive(Clone)]
pub(super) struct Room {
    pub(super) journal: Arc<Journal>,
    pub(super) book: Arc<Book>,
    pub(super) disk: Arc<SimDisk>,
    pub(super) agent: Arc<Agent>,
}

/// Asks question `id` and reads its answer to the end.
pub(super) async fn ask(room: Room, id: u32, submission: Submission) {
    let Room { journal, book, .. } = &room;
    match room.agent.submit(submission).await {
        Ok(mut turn) => {
            let now = journal.now();
            journal.note(&format!("q{id} is turn {} of {}", turn.turn, turn.session));
            let slow = {
                let mut facts = book.open();
                let loose = room.disk.mode() != Mode::Well;
                let Some(question) = facts.questions.get_mut(&id) else { return };
                question.accepted_at = Some(now);
                question.turn = turn.turn;
                question.loose |= loose;
                question.slow
            };
            read(&room, id, &mut turn.events, slow).await;
        }
        Err(refused) => {
            journal.note(&format!("q{id} is refused: {refused}"));
            let known = matches!(refused, Refused::Overloaded | Refused::Stopping);
            let excused =
                matches!(refused, Refused::NotStored(_)) && room.disk.mode() != Mode::Well;
            if !known && !excused {
                journal.broken(&format!("q{id} was refused: {refused}"));
            }
            if let Some(question) = book.open().questions.get_mut(&id) {
                question.refused = true;
            }
        }
    }
}

async fn read(room: &Room, id: u32, events: &mut TurnEvents, slow: bool) {
    loop {
        if slow {
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        if room.book.open().questions.get(&id).is_none_or(|one| one.walked_away) {
            return;
        }
        let event = events.recv().await;
        if !heard(room, id, event) {
            return;
        }
    }
}

/// Takes one event in; false when there is nothing more to read.
fn heard(room: &Room, id: u32, event: Option<TurnEvent>) -> bool {
    let now = room.journal.now();
    let mut facts = room.book.open();
    let Some(question) = facts.questions.get_mut(&id) else { return false };
    let broken = |rule: &str| room.journal.broken(&format!("q{id}: {rule}"));
    let end = match event {
        None => {
            if question.end.is_none() {
                broken("the events stopped without an end");
            }
            return false;
        }
        Some(_) if question.end.is_some() => {
            broken("an event after the end");
            return false;
        }
        Some(TurnEvent::Waiting { .. }) => return true,
        Some(TurnEvent::Delta(text)) => {
            let stopped = question.cancelled_at;
            question.shown.push_str(&text);
            let late = stopped.is_some_and(|at| now > at + LATE_WORDS);
            if late && !question.slow && room.disk.mode() == Mode::Well {
                broken("words after it was stopped");
            }
            let shown = question.shown.clone();
            if !facts.may_have_shown(id, &shown) {
                broken(&format!("shows what no model said: {shown:?}"));
            }
            return true;
        }
        Some(TurnEvent::Done(answer)) => {
            if !answer.text.starts_with(&question.shown) {
                broken("the answer is not what was shown");
            }
            question.shown.clone_from(&answer.text);
            End::Done { text: answer.text, backend: answer.backend }
        }
        Some(TurnEvent::Failed { words, code }) => End::Failed { code, words },
        Some(TurnEvent::Cancelled) => End::Cancelled,
    };
    room.journal.note(&format!("q{id} ends: {end:?}"));
    question.ended_at = Some(now);
    question.end = Some(end.clone());
    match &end {
        End::Done { text, backend } => {
            let said = facts.answer_from(id, backend);
            let visible = said.and_then(|one| one.visible.as_deref());
            if said.is_none() || visible.is_some_and(|visible| visible != text) {
                broken(&format!("the answer is {text:?}, the model said {visible:?}"));
            }
        }
        End::Failed { code: "internal", words } => broken(words),
        End::Failed { .. } | End::Cancelled => {}
    }
    true
}

/// Stops a session; true if something ran.
pub(super) fn stop(room: &Room, session: &str) -> bool {
    let stopped = room.agent.cancel(Some(session));
    let now = room.journal.now();
    room.journal.note(&format!("stop {session}: {stopped}"));
    let mut facts = room.book.open();
    let life = facts.life;
    let open = facts.questions.values_mut().filter(|one| {
        one.session == session
            && one.life == life
            && one.accepted_at.is_some()
            && one.end.is_none()
            && one.cancelled_at.is_none()
    });
    if stopped {
        for question in open {
            question.cancelled_at = Some(now);
        }
    }
    stopped
}

struct Musing(String);

impl Prompt for Musing {
    fn fit(&self, _prompt_tokens_max: u32) -> Result<Fitted, NoRoom> {
        let message = |role, text: &str| Message { role, content: text.to_owned() };
        let messages =
            vec![message(Role::System, super::BACKGROUND_SYSTEM), message(Role::User, &self.0)];
        Ok(Fitted { messages, clipped: None, voices: Vec::new() })
    }
}

/// Background work, as the agent will have it: it must give way.
pub(super) async fn muse(provider: Arc<Provider>, events: Events, journal: Arc<Journal>) {
    let job = Job {
        priority: Priority::Reflection,
        conversation: "background".into(),
        route: None,
        deadline: Instant::now() + Duration::from_secs(90),
        answer_tokens: 48,
        answer_tokens_max: None,
        sampling: Sampling::default(),
        schema: None,
        tools: Vec::new(),
        events,
    };
    let (out, mut heard) = mpsc::channel(64);
    let work = async {
        let ended = provider.chat(&job, &Musing("what was that about?".into()), &out).await;
        journal.note(&format!(
            "background work: {}",
            ended.map_or_else(|e| e.to_string(), |_| { "done".to_owned() })
        ));
    };
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            () = &mut work => return,
            _ = heard.recv() => {}
        }
    }
}
