//! The agent's one task: takes messages on, runs one turn per session at a time, and closes every
//! turn it began.
//!
//! # Invariants
//! - A message is in the log before its door is told that it was taken on.
//! - Turns of one session run one after the other, in the order in which they were taken on.
//! - Every turn ends in exactly one terminal event, whatever happens in it, a panic included.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::again;
use super::audience::{Audience, Said, Telling};
use super::door::not_stored;
use super::feelings::Feelings;
use super::turn;
use super::volatile;
use super::{Refused, Submission, Turn};
use crate::clock::WallClock;
use crate::config::sections::mood::Nudges;
use crate::event::Events;
use crate::limits;
use crate::mood::Tuning;
use crate::provider::backend::Sampling;
use crate::provider::{Provider, sanitise};
use crate::session::{self, Sessions};

/// What a turn loads once at its start and keeps: a reload changes the next turn, not this one.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The identity block, byte-identical until the soul or the configuration changes.
    pub system: String,
    /// Tokens an answer may take.
    pub answer_tokens_max: u32,
    /// Past turns the model sees at most.
    pub turns_max: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// How long a turn may take in all.
    pub deadline: std::time::Duration,
    /// The zone in which the person lives.
    pub zone: jiff::tz::TimeZone,
    /// Where the mood rests and how it comes back. What the agent was built with counts.
    pub mood: Tuning,
    /// What moves the mood.
    pub nudges: Nudges,
}

/// The agent as the doors hold it.
pub struct Agent {
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: mpsc::Sender<Incoming>,
}

/// The agent's task, to be run by the supervisor.
pub struct AgentTask {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Incoming>,
    lines: BTreeMap<String, SessionLine>,
}

/// What the agent and its turns share.
pub(super) struct Shared {
    pub(super) provider: Arc<Provider>,
    pub(super) sessions: Sessions,
    pub(super) settings: ArcSwap<Settings>,
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) events: Events,
    pub(super) audience: Arc<Audience>,
    pub(super) feelings: Feelings,
    /// Cancels turns by session; every turn taken on and not yet ended is here.
    running: Mutex<BTreeMap<String, Vec<(u64, CancellationToken)>>>,
    pub(super) stopping: AtomicBool,
}

/// A turn that was taken on.
pub(super) struct Pending {
    pub(super) session: String,
    pub(super) turn: u64,
    /// What the model reads.
    pub(super) sent: String,
    pub(super) backend: Option<String>,
    pub(super) answer_tokens_max: Option<u32>,
    pub(super) telling: Telling,
    pub(super) cancel: Cancel,
    pub(super) accepted_at: Instant,
}

/// The two ways in which a turn is stopped from outside.
#[derive(Clone, Default)]
pub(super) struct Cancel {
    /// By the person.
    pub(super) person: CancellationToken,
    /// By the shutdown.
    pub(super) shutdown: CancellationToken,
}

pub(super) enum Incoming {
    Message(Submission, oneshot::Sender<Result<Turn, Refused>>),
    /// Answered by the task itself, as its proof of life.
    Ping(oneshot::Sender<()>),
}

/// The turns of one session: one runs, the others wait.
#[derive(Default)]
struct SessionLine {
    running: bool,
    waiting: VecDeque<Pending>,
}

type Accepting<'a> = BoxFuture<'a, Option<Pending>>;
type Running<'a> = BoxFuture<'a, String>;

impl Agent {
    /// The agent and the task that does its work.
    #[must_use]
    pub fn new(
        provider: Arc<Provider>,
        sessions: Sessions,
        settings: Settings,
        clock: Arc<dyn WallClock>,
        events: Events,
    ) -> (Arc<Self>, AgentTask) {
        let shared = Arc::new(Shared {
            provider,
            sessions,
            feelings: Feelings::new(settings.mood),
            settings: ArcSwap::from_pointee(settings),
            clock,
            events,
            audience: Arc::default(),
            running: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let (sender, inbox) = mpsc::channel(limits::TURNS_MAX);
        let agent = Arc::new(Self { shared: Arc::clone(&shared), inbox: sender });
        (agent, AgentTask { shared, inbox, lines: BTreeMap::new() })
    }

    /// Puts new settings in force for the turns to come.
    pub fn set(&self, settings: Settings) {
        self.shared.settings.store(Arc::new(settings));
    }

    /// Resolves when the task has answered: it serves its queue. Pends while it does not.
    pub async fn ping(&self) {
        let (reply, answer) = oneshot::channel();
        if self.inbox.send(Incoming::Ping(reply)).await.is_err() || answer.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Turns taken on and not yet ended.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.shared.running().values().map(Vec::len).sum()
    }
}

impl Shared {
    pub(super) fn running(
        &self,
    ) -> MutexGuard<'_, BTreeMap<String, Vec<(u64, CancellationToken)>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the message and makes a turn of it. `None` if it was refused.
    async fn accept(
        &self,
        submission: Submission,
        reply: oneshot::Sender<Result<Turn, Refused>>,
        shutdown: CancellationToken,
    ) -> Option<Pending> {
        let session = submission.session.unwrap_or_else(|| session::MAIN.to_owned());
        let id = submission.id;
        match again::turn_of(self, &session, id.as_deref()).await {
            Ok(None) => {}
            known => {
                let _ = reply.send(known.and_then(|turn| turn.ok_or(Refused::Stopping)));
                return None;
            }
        }
        let settings = self.settings.load_full();
        let clean = sanitise::untrusted(&submission.text);
        let moved = self.feelings.hear(&clean, &settings.nudges);
        let sent = volatile::with_block(&clean, &*self.clock, &settings.zone, &moved);
        match self.sessions.begin(&session, &submission.text, &sent, id.as_deref()).await {
            Ok(begun) => {
                self.feelings.nudge(moved.nudge);
                let person = CancellationToken::new();
                if begun.turn == 1 {
                    let title = session::title(&submission.text);
                    let now_ms = self.clock.now().as_millisecond();
                    self.audience.titled(&session, &title, now_ms);
                }
                let said = Said { text: submission.text, id };
                let (telling, events) =
                    self.audience.begin(&session, begun.turn, said, submission.seat);
                self.running()
                    .entry(session.clone())
                    .or_default()
                    .push((begun.turn, person.clone()));
                // The door may be gone; the turn goes on all the same.
                let turn = begun.turn;
                let _ =
                    reply.send(Ok(Turn { session: session.clone(), turn, events, again: false }));
                Some(Pending {
                    session,
                    turn: begun.turn,
                    sent,
                    backend: submission.backend,
                    answer_tokens_max: submission.answer_tokens_max,
                    telling,
                    cancel: Cancel { person, shutdown },
                    accepted_at: Instant::now(),
                })
            }
            Err(error) => {
                let _ = reply.send(Err(not_stored(error)));
                None
            }
        }
    }

    /// Runs a turn to its end, and tells its session.
    async fn run(&self, pending: Pending) -> String {
        let (session, turn) = (pending.session.clone(), pending.turn);
        let telling = pending.telling.clone();
        let outcome = AssertUnwindSafe(turn::run(self, pending)).catch_unwind().await;
        if outcome.is_err() {
            // The panic itself is in the log; here the turn gets the end it owes.
            turn::close_failed(self, &session, turn, &telling).await;
        }
        let mut running = self.running();
        if let Some(turns) = running.get_mut(&session) {
            turns.retain(|(number, _)| *number != turn);
            if turns.is_empty() {
                running.remove(&session);
            }
        }
        drop(running);
        session
    }
}

impl AgentTask {
    /// Works until `stop`, then lets running turns finish for `limits::DRAIN_TURNS_MAX` and closes
    /// the rest as interrupted.
    pub async fn run(mut self, stop: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        let shutdown = CancellationToken::new();
        let mut accepting: Option<Accepting<'_>> = None;
        let mut running: FuturesUnordered<Running<'_>> = FuturesUnordered::new();
        let mut stopping = false;
        let mut give_up_at = Instant::now();
        loop {
            if stopping && accepting.is_none() && running.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    shared.stopping.store(true, Ordering::SeqCst);
                    self.inbox.close();
                    give_up_at = Instant::now() + limits::DRAIN_TURNS_MAX;
                }
                () = tokio::time::sleep_until(give_up_at),
                    if stopping && !shutdown.is_cancelled() => {
                    shutdown.cancel();
                    // None of them asks a model any more, so they need not wait for each other:
                    // one after the other they would wait for a slow disk one after the other.
                    let waiting = self.lines.values_mut().flat_map(|line| line.waiting.drain(..));
                    running.extend(waiting.map(|pending| shared.run(pending).boxed()));
                }
                Some(session) = running.next(), if !running.is_empty() => {
                    if let Some(next) = self.next_of(&session) {
                        running.push(shared.run(next).boxed());
                    }
                }
                accepted = poll_accept(&mut accepting), if accepting.is_some() => {
                    accepting = None;
                    if let Some(pending) = accepted
                        && let Some(first) = self.line_up(pending)
                    {
                        running.push(shared.run(first).boxed());
                    }
                }
                incoming = self.inbox.recv(), if accepting.is_none() && !stopping => {
                    match incoming {
                        Some(Incoming::Message(submission, reply)) => {
                            let accepted = shared.accept(submission, reply, shutdown.clone());
                            accepting = Some(accepted.boxed());
                        }
                        Some(Incoming::Ping(reply)) => drop(reply.send(())),
                        // Every handle is gone: nobody can ask for anything any more.
                        None => stopping = true,
                    }
                }
            }
        }
    }

    /// Puts a turn into its session's line; gives it back if it may run now.
    fn line_up(&mut self, pending: Pending) -> Option<Pending> {
        let line = self.lines.entry(pending.session.clone()).or_default();
        if line.running {
            line.waiting.push_back(pending);
            None
        } else {
            line.running = true;
            Some(pending)
        }
    }

    /// The next turn of a session whose turn has ended.
    fn next_of(&mut self, session: &str) -> Option<Pending> {
        let next = self.lines.get_mut(session).and_then(|line| line.waiting.pop_front());
        if next.is_none() {
            self.lines.remove(session);
        }
        next
    }
}

/// The accepting future, or never.
async fn poll_accept(accepting: &mut Option<Accepting<'_>>) -> Option<Pending> {
    match accepting {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
