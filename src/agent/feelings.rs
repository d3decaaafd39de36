//! How the agent feels while it talks: every message and every end of a turn nudges the mood, and
//! the mood, the body's condition and the tone of the message go along with the next prompt.
//!
//! One task owns the mood and is told each nudge in one message with all its channels; everybody
//! else reads a copy of it, and finds out what the time since has left of it.
//!
//! # Invariants
//! - A nudge that cannot be told at once is lost: no turn waits for a feeling.
//! - The task sleeps until something happens. Without stress nothing here wakes the processor.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::service::Agent;
use crate::config::sections::mood::Nudges;
use crate::event::{Event, Events};
use crate::limits::NUDGE_QUEUE;
use crate::mood::sentiment::{Analyst, Reading};
use crate::mood::{Channel, Mood, Nudge, Tuning, nudge_of};
use crate::session::log::Outcome;

/// How the body is, as far as a prompt should know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// It is too hot or too full: answers have to be short.
    pub stressed: bool,
    /// A few words about it, such as `62 °C`; absent if nothing was measured.
    pub brief: Option<String>,
}

/// The mood and when it was so.
#[derive(Debug, Clone, Copy)]
struct Felt {
    mood: Mood,
    at: Instant,
}

/// What a message does to the agent, and what its answer should know of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moved {
    pub(super) nudge: Nudge,
    pub(super) reading: Reading,
    /// The channel that is felt after the nudge.
    pub(super) felt: Option<Channel>,
    pub(super) condition: Arc<Condition>,
}

/// What the agent and the mood's task share.
pub(super) struct Feelings {
    analyst: Analyst,
    tuning: Tuning,
    felt: ArcSwap<Felt>,
    condition: ArcSwap<Condition>,
    /// To the task that runs now.
    nudges: ArcSwap<mpsc::Sender<Nudge>>,
    condition_changed: Notify,
}

impl Feelings {
    /// At rest, and not yet listened to.
    pub(super) fn new(tuning: Tuning) -> Self {
        let at_rest = Felt { mood: Mood::at_rest(&tuning), at: Instant::now() };
        Self {
            analyst: Analyst::new(),
            tuning,
            felt: ArcSwap::from_pointee(at_rest),
            condition: ArcSwap::default(),
            nudges: ArcSwap::from_pointee(mpsc::channel(NUDGE_QUEUE).0),
            condition_changed: Notify::new(),
        }
    }

    /// The mood now.
    fn now(&self) -> Mood {
        let felt = self.felt.load();
        felt.mood.after(felt.at.elapsed(), &self.tuning)
    }

    /// Reads a message. Nothing is nudged yet: the message may still be refused.
    pub(super) fn hear(&self, message: &str, nudges: &Nudges) -> Moved {
        let reading = self.analyst.read(message);
        let nudge = nudge_of(reading, nudges);
        let felt = self.now().with(nudge).felt(&self.tuning).map(|(channel, _)| channel);
        Moved { nudge, reading, felt, condition: self.condition.load_full() }
    }

    /// A turn has ended.
    pub(super) fn ended(&self, outcome: Outcome, nudges: &Nudges) {
        match outcome {
            Outcome::Done => self.nudge(nudges.turn_done),
            Outcome::Error => self.nudge(nudges.turn_failed),
            // Stopped by the person or by a shutdown: nobody's success or failure.
            Outcome::Cancelled | Outcome::Interrupted => {}
        }
    }

    /// Tells the task what moves the mood.
    pub(super) fn nudge(&self, nudge: Nudge) {
        if self.nudges.load().try_send(nudge).is_err() {
            tracing::debug!("a nudge was lost: nobody keeps the mood, or too many come at once");
        }
    }
}

impl Agent {
    /// The mood now, the channel that is felt and how far it is above its rest.
    #[must_use]
    pub fn mood(&self) -> (Mood, Option<(Channel, f64)>) {
        let feelings = &self.shared.feelings;
        let mood = feelings.now();
        (mood, mood.felt(&feelings.tuning))
    }

    /// Adds to the mood what something in the world does to it.
    pub fn nudge(&self, nudge: Nudge) {
        self.shared.feelings.nudge(nudge);
    }

    /// Puts a new condition of the body in force for the turns to come.
    pub fn be_in(&self, condition: Condition) {
        let feelings = &self.shared.feelings;
        if **feelings.condition.load() != condition {
            feelings.condition.store(Arc::new(condition));
            feelings.condition_changed.notify_one();
        }
    }
}

/// Keeps the mood until `stop`: takes nudges, and adds the body's stress with every `pulse`. After
/// a restart it goes on from the mood that was.
///
/// # Errors
/// None: it ends only when it is told to.
///
/// # Cancel safety
/// Not cancel safe: nudges in the queue are lost. Use `stop`.
pub async fn keep(
    agent: Arc<Agent>,
    pulse: Duration,
    events: Events,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let feelings = &agent.shared.feelings;
    let (sender, mut nudges) = mpsc::channel(NUDGE_QUEUE);
    feelings.nudges.store(Arc::new(sender));
    let mut told = None;
    let mut next_pulse = Instant::now() + pulse;
    loop {
        let stressed = feelings.condition.load().stressed;
        let nudge = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            Some(nudge) = nudges.recv() => nudge,
            () = feelings.condition_changed.notified() => {
                next_pulse = Instant::now() + pulse;
                continue;
            }
            () = tokio::time::sleep_until(next_pulse), if stressed => {
                next_pulse += pulse;
                agent.shared.settings.load().nudges.vitals_stress
            }
        };
        let mood = feelings.now().with(nudge);
        feelings.felt.store(Arc::new(Felt { mood, at: Instant::now() }));
        let felt = mood.felt(&feelings.tuning).map(|(channel, _)| channel);
        if felt != told {
            let word = |felt: Option<Channel>| felt.map_or("rest", Channel::as_str);
            events.tell(Event::MoodChanged { from: word(told), to: word(felt) });
            told = felt;
        }
    }
}
