//! One turn, top to bottom.
//!
//! 1. The turn's settings and the session's past are loaded once.
//! 2. The conversation is handed to the provider, which fits it to each backend it tries.
//! 3. What the model says is stored, then shown, piece by piece.
//! 4. The turn is closed in the log, then its door is told the end.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::audience::Telling;
use super::service::{Pending, Settings, Shared};
use super::words::{TurnError, for_person};
use super::{Answer, TurnEvent};
use crate::event::Event;
use crate::provider::lease::Priority;
use crate::provider::prompt::{Fitted, NoRoom, Prompt};
use crate::provider::{Completed, Job, Progress};
use crate::session::log::{Assistant, End, Outcome};
use crate::session::window::{self, PastTurn};

/// Pieces of an answer between the provider and the log: as many as a fast server decodes during
/// one commit. They share the next one; a slow server never has more than one here.
const PROGRESS_QUEUE: usize = 64;

/// The conversation as it can be fitted to any backend.
struct Ledger<'a> {
    settings: &'a Settings,
    past: Vec<PastTurn>,
    turn: u64,
    sent: &'a str,
}

/// How the work of a turn ended.
enum Ended {
    Answered(Completed),
    Failed(TurnError),
    Cancelled,
}

/// When the first word was shown, and how late.
#[derive(Default)]
struct Shown {
    text: String,
    first_at: Option<Instant>,
}

/// Runs a turn to its end.
pub(super) async fn run(shared: &Shared, mut pending: Pending) {
    let settings = shared.settings.load_full();
    let mut shown = Shown::default();
    let ended = answer(shared, &settings, &mut pending, &mut shown).await;
    close(shared, pending, shown, ended).await;
}

/// Closes a turn whose work has panicked.
pub(super) async fn close_failed(shared: &Shared, session: &str, turn: u64, telling: &Telling) {
    let (words, code) = for_person(&TurnError::Internal);
    let end =
        End { outcome: Outcome::Error, code: Some(code.to_owned()), words: Some(words.clone()) };
    log_if_lost(shared.sessions.finish(session, turn, None, end).await.err());
    tell(shared, session, turn, Outcome::Error);
    telling.end(TurnEvent::Failed { words, code });
}

/// Steps 1 to 3.
async fn answer(
    shared: &Shared,
    settings: &Settings,
    pending: &mut Pending,
    shown: &mut Shown,
) -> Ended {
    let past = match shared.sessions.turns(&pending.session).await {
        Ok(past) => past,
        Err(error) => {
            // Without its past the conversation still goes on; the person is told by the notice
            // that the store publishes.
            tracing::error!(error = %error, session = pending.session, "the past is not readable");
            Vec::new()
        }
    };
    let job = Job {
        priority: Priority::Owner,
        conversation: pending.session.clone(),
        route: pending.backend.clone(),
        deadline: pending.accepted_at + settings.deadline,
        answer_tokens: settings.answer_tokens_max,
        answer_tokens_max: pending.answer_tokens_max,
        sampling: settings.sampling,
        schema: None,
        tools: Vec::new(),
        events: shared.events.clone(),
    };
    let sent = std::mem::take(&mut pending.sent);
    let ledger = Ledger { settings, past, turn: pending.turn, sent: &sent };
    let (out, mut progress) = mpsc::channel(PROGRESS_QUEUE);
    let chat = shared.provider.chat(&job, &ledger, &out);
    tokio::pin!(chat);
    let result = loop {
        tokio::select! {
            biased;
            () = pending.cancel.person.cancelled() => return Ended::Cancelled,
            () = pending.cancel.shutdown.cancelled() => {
                return Ended::Failed(TurnError::Interrupted);
            }
            Some(piece) = progress.recv() => {
                let piece = gather(piece, &mut progress);
                let showing = show(shared, pending, shown, piece);
                // The server is read on while the commit is under way; what comes meanwhile
                // shares the next one.
                if let Some(result) = beside(showing, chat.as_mut()).await {
                    break result;
                }
            }
            result = &mut chat => break result,
        }
    };
    // What was decoded before the end is still in the queue.
    while let Ok(piece) = progress.try_recv() {
        let piece = gather(piece, &mut progress);
        show(shared, pending, shown, piece).await;
    }
    match result {
        Ok(completed) => Ended::Answered(completed),
        Err(error) => Ended::Failed(TurnError::Provider(error)),
    }
}

/// Waits for `first` and drives `second` meanwhile; gives `second`'s result if it has one by then.
async fn beside<T>(
    first: impl Future<Output = ()>,
    mut second: impl Future<Output = T> + Unpin,
) -> Option<T> {
    let mut result = None;
    tokio::pin!(first);
    loop {
        tokio::select! {
            biased;
            () = &mut first => return result,
            done = &mut second, if result.is_none() => result = Some(done),
        }
    }
}

/// Joins text that has arrived already: a fast server's tokens share one commit. A wait that was
/// overtaken by text is no longer true and is left out.
fn gather(first: Progress, progress: &mut mpsc::Receiver<Progress>) -> Progress {
    let mut gathered = first;
    while let Ok(next) = progress.try_recv() {
        match (&mut gathered, next) {
            (Progress::Text(text), Progress::Text(more)) => text.push_str(&more),
            (Progress::Text(_), Progress::Waiting { .. }) => {}
            (Progress::Waiting { .. }, next) => gathered = next,
        }
    }
    gathered
}

/// Step 3 for one piece: stored first, then shown.
async fn show(shared: &Shared, pending: &mut Pending, shown: &mut Shown, piece: Progress) {
    match piece {
        Progress::Waiting { about } => pending.telling.waiting(whole_seconds(about)),
        Progress::Text(text) => {
            // Resolves after `COMMIT_WAIT_MAX` at the latest, committed or not: the person does
            // not wait for a card that stalls.
            shared.sessions.shown(&pending.session, pending.turn, &text).await;
            shown.first_at.get_or_insert_with(Instant::now);
            shown.text.push_str(&text);
            pending.telling.text(&text);
        }
    }
}

/// Step 4.
async fn close(shared: &Shared, pending: Pending, shown: Shown, ended: Ended) {
    let Pending { session, turn, telling, accepted_at, .. } = pending;
    let elapsed_ms = millis(accepted_at.elapsed());
    let first_word_ms =
        shown.first_at.map_or(elapsed_ms, |at| millis(at.saturating_duration_since(accepted_at)));
    let (assistant, end, event) = match ended {
        Ended::Answered(completed) => {
            let (assistant, answer) = answered(completed, shown.text, first_word_ms, elapsed_ms);
            (Some(assistant), End::new(Outcome::Done), TurnEvent::Done(answer))
        }
        Ended::Cancelled => (None, End::new(Outcome::Cancelled), TurnEvent::Cancelled),
        Ended::Failed(error) => {
            let (words, code) = for_person(&error);
            let outcome = match error {
                TurnError::Interrupted => Outcome::Interrupted,
                TurnError::Provider(_) | TurnError::Internal => Outcome::Error,
            };
            let end = End { outcome, code: Some(code.to_owned()), words: Some(words.clone()) };
            (None, end, TurnEvent::Failed { words, code })
        }
    };
    let outcome = end.outcome;
    log_if_lost(shared.sessions.finish(&session, turn, assistant, end).await.err());
    tell(shared, &session, turn, outcome);
    telling.end(event);
}

/// The answer as the log and as the door have it.
fn answered(
    completed: Completed,
    text: String,
    first_word_ms: u64,
    elapsed_ms: u64,
) -> (Assistant, Answer) {
    let answer = Answer {
        text,
        backend: completed.backend.clone(),
        model: completed.model.clone(),
        cut: completed.cut,
        clipped: completed.clipped.is_some(),
        tokens: completed.tokens,
        first_word_ms,
        elapsed_ms,
    };
    let assistant = Assistant {
        shown: (completed.shown != completed.raw).then_some(completed.shown),
        raw: completed.raw,
        backend: completed.backend,
        model: completed.model,
        sent: completed.clipped,
        tokens: completed.tokens,
        prompt_tokens: completed.prompt_tokens,
        cut: completed.cut,
        first_word_ms,
        elapsed_ms,
    };
    (assistant, answer)
}

fn log_if_lost(error: Option<crate::store::StoreError>) {
    if let Some(error) = error {
        tracing::error!(error = %error, "the end of a turn could not be stored");
    }
}

fn tell(shared: &Shared, session: &str, turn: u64, outcome: Outcome) {
    let session = session.to_owned();
    shared.feelings.ended(outcome, &shared.settings.load().nudges);
    shared.events.tell(Event::TurnEnded { session, turn, outcome: outcome.as_str() });
}

impl Prompt for Ledger<'_> {
    fn fit(&self, prompt_tokens_max: u32) -> Result<Fitted, NoRoom> {
        let newest = window::Newest { turn: self.turn, content: self.sent };
        let budget = window::Budget { prompt_tokens_max, turns_max: self.settings.turns_max };
        let window = window::build(&self.settings.system, &self.past, newest, budget)
            .map_err(|error| NoRoom(error.to_string()))?;
        let window::Window { messages, clipped, voices, .. } = window;
        Ok(Fitted { messages, clipped, voices })
    }
}

fn whole_seconds(d: Duration) -> u32 {
    // Rounded up: nobody minds words that come sooner than announced.
    u32::try_from(d.as_secs() + u64::from(d.subsec_nanos() > 0)).unwrap_or(u32::MAX)
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
