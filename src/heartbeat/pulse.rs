//! One beat as a function: what was seen goes in, what is to be done comes out (pure).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil;
use tokio::time::Instant;

use super::sums::Sums;
use crate::clock::duty::{night_of, on_duty};
use crate::event::Event;
use crate::limits::HISTORY_SAMPLES;
use crate::snapshot::body::{Body, Counters, Order, Sample, VitalSigns};
use crate::vitals::governor::{Governor, Ladder};
use crate::vitals::stress::{Detector, Edge, Limits};
use crate::vitals::words;

/// The heart's settings.
#[derive(Debug, Clone)]
pub struct Rhythm {
    /// Time between two beats.
    pub pulse: Duration,
    /// Start of the waking day.
    pub duty_start: civil::Time,
    /// Start of sleep.
    pub sleep_start: civil::Time,
    /// Quiet time after which nobody is taken to be there.
    pub idle: Duration,
    /// Where stress begins and ends.
    pub stress: Limits,
    /// The governor's ladder.
    pub ladder: Ladder,
}

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The vital signs.
    pub vitals: VitalSigns,
    /// Whether the backend that would answer decodes much slower than it used to.
    pub slow: bool,
    /// Its measured rate, in tokens a second.
    pub tokens_per_s: Option<f32>,
    /// Whether a model could answer.
    pub online: bool,
    /// Since somebody said something, or since the start.
    pub quiet: Duration,
    /// Turns that run or wait.
    pub turns: usize,
    /// The machine's clock, in milliseconds since 1970.
    pub at_ms: i64,
    /// The same by the person's clock; absent while the clock is not set.
    pub civil: Option<civil::DateTime>,
    /// Critical tasks that stand still, if this beat looked for them.
    pub stuck: Option<Vec<&'static str>>,
    /// Whether this is a whole beat, or only a look at the body in between.
    pub whole: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// All critical tasks get on: the service manager may know.
    FeedWatchdog,
    /// Something happened.
    Tell(Event),
    /// The governor has another order.
    Obey(Order),
    /// The night of this date begins.
    StartSleep(civil::Date),
    /// The night of this date is over.
    EndSleep(civil::Date),
    /// Nobody is there; time for thoughts of its own.
    StartIdle,
    /// The state is to be left for other processes.
    Keep,
}

/// What the heart remembers from beat to beat.
#[derive(Debug)]
pub struct Pulse {
    rhythm: Rhythm,
    detector: Detector,
    governor: Governor,
    history: VecDeque<Sample>,
    sums: Sums,
    counters: Counters,
    stuck: Vec<&'static str>,
    /// The night that lasts.
    night: Option<civil::Date>,
    /// The last one whose beginning was told, also before a restart.
    last_night: Option<civil::Date>,
    /// When it woke last: before that nobody counts as quiet.
    woke: Option<Instant>,
    idle: bool,
    body: Body,
}

impl Pulse {
    /// A heart that has not beaten yet. A night that has begun already, before a restart, does not
    /// begin again.
    #[must_use]
    pub fn new(rhythm: Rhythm, last_night: Option<civil::Date>) -> Self {
        let body = Body { pulse: rhythm.pulse, ..Body::default() };
        let governor = Governor::new(rhythm.ladder);
        Self {
            rhythm,
            detector: Detector::default(),
            governor,
            history: VecDeque::new(),
            sums: Sums::default(),
            counters: Counters::default(),
            stuck: Vec::new(),
            night: None,
            last_night,
            woke: None,
            idle: false,
            body,
        }
    }

    /// The body as of the last beat.
    #[must_use]
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// What of the last hour has not been told yet.
    #[must_use]
    pub fn last_words(&mut self) -> Option<Event> {
        self.sums.take().map(Event::BeatsSummed)
    }

    /// Decides. The actions are in the order in which they are to be done.
    #[must_use]
    pub fn beat(&mut self, now: Instant, seen: Seen) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(stuck) = &seen.stuck {
            self.look(stuck, &mut actions);
        }
        self.feel(now, &seen, &mut actions);
        if seen.whole {
            self.counters.pulses += 1;
            self.day_and_night(now, &seen, &mut actions);
            self.notice_quiet(now, &seen, &mut actions);
            self.remember(now, &seen, &mut actions);
            actions.push(Action::Keep);
        }
        self.body.counters = self.counters;
        self.body.at_ms = seen.at_ms;
        self.body.stress = self.detector.state();
        self.body.describe = words::describe(&seen.vitals, self.body.stress.active, seen.online);
        self.body.order = self.governor.order().clone();
        self.body.sleeping = self.night.is_some();
        self.body.vitals = seen.vitals;
        actions
    }

    fn look(&mut self, stuck: &[&'static str], actions: &mut Vec<Action>) {
        if stuck.is_empty() {
            actions.push(Action::FeedWatchdog);
        }
        if stuck != self.stuck {
            self.stuck = stuck.to_vec();
            actions.push(Action::Tell(match stuck {
                [] => Event::TasksMoving,
                stuck => Event::TasksStuck { tasks: stuck.to_vec() },
            }));
        }
    }

    /// Stress and governor.
    fn feel(&mut self, now: Instant, seen: &Seen, actions: &mut Vec<Action>) {
        let vitals = &seen.vitals;
        let (temperature_c, ram_percent, cpu_percent) =
            (vitals.temperature_c, vitals.ram_percent, vitals.cpu_percent);
        match self.detector.update(now, vitals, &self.rhythm.stress) {
            None => {}
            Some(Edge::Entered { reason }) => {
                self.counters.stress += 1;
                let entered =
                    Event::StressEntered { reason, temperature_c, ram_percent, cpu_percent };
                actions.push(Action::Tell(entered));
            }
            Some(Edge::Left { lasted, episode }) => actions.push(Action::Tell(Event::StressLeft {
                lasted_s: lasted.as_secs(),
                peak_temperature_c: episode.peak_temperature_c,
                peak_ram_percent: episode.peak_ram_percent,
                temperature_c,
                ram_percent,
                cpu_percent,
            })),
        }
        let before = self.governor.order().clone();
        if let Some(step) = self.governor.update(now, vitals, seen.slow) {
            actions.push(Action::Tell(Event::GovernorStepped {
                from: step.from.as_str(),
                to: step.to.as_str(),
                reason: step.reason,
            }));
        }
        if *self.governor.order() != before {
            actions.push(Action::Obey(self.governor.order().clone()));
        }
    }

    /// Before the clock is set it is day.
    fn day_and_night(&mut self, now: Instant, seen: &Seen, actions: &mut Vec<Action>) {
        let Rhythm { duty_start, sleep_start, .. } = self.rhythm;
        let asleep = seen.civil.filter(|civil| !on_duty(civil.time(), duty_start, sleep_start));
        match (asleep, self.night) {
            (Some(civil), None) => {
                let night = night_of(civil, sleep_start);
                self.night = Some(night);
                if self.last_night.replace(night) != Some(night) {
                    self.counters.sleeps += 1;
                    actions.push(Action::StartSleep(night));
                }
            }
            (None, Some(night)) => {
                self.night = None;
                self.woke = Some(now);
                actions.push(Action::EndSleep(night));
            }
            _ => {}
        }
    }

    fn notice_quiet(&mut self, now: Instant, seen: &Seen, actions: &mut Vec<Action>) {
        let awake = self.woke.map_or(Duration::MAX, |woke| now.saturating_duration_since(woke));
        let quiet = seen.quiet.min(awake) >= self.rhythm.idle;
        let idle = quiet && seen.turns == 0 && self.night.is_none();
        if idle && !self.idle {
            self.counters.idle += 1;
            actions.push(Action::StartIdle);
        }
        self.idle = idle;
    }

    /// Charts and sums.
    fn remember(&mut self, now: Instant, seen: &Seen, actions: &mut Vec<Action>) {
        let vitals = &seen.vitals;
        let sample = Sample {
            at_ms: seen.at_ms,
            cpu_percent: vitals.cpu_percent,
            ram_percent: vitals.ram_percent,
            temperature_c: vitals.temperature_c,
            load_1m: vitals.load_1m,
            tokens_per_s: seen.tokens_per_s,
            stressed: self.detector.state().active,
            online: seen.online,
            level: self.governor.order().level,
        };
        self.sums.add(now, &sample, vitals.card_written_bytes);
        if self.sums.is_due(now)
            && let Some(summary) = self.sums.take()
        {
            actions.push(Action::Tell(Event::BeatsSummed(summary)));
        }
        if self.history.len() >= HISTORY_SAMPLES {
            self.history.pop_front();
        }
        self.history.push_back(sample);
        self.body.history = Arc::from_iter(self.history.iter().cloned());
    }
}

#[cfg(test)]
mod tests;
