//! The heart: looks at the body and at the tasks at regular times, decides in `pulse`, and does
//! what was decided.
//!
//! There are three reasons for a look: a beat is due; something was said or the governor is on
//! guard, so that the temperature has to be watched more closely; or the watchdog wants to know
//! more often than the heart beats.
//!
//! # Invariants
//! - The watchdog is fed only by a look that found every critical task alive. No timer feeds it.
//! - The heart is a critical task itself, so that its own end is an end of the process.
//! - A beat writes nothing to the disk: what it tells goes to the broadcast, what it keeps to
//!   memory. An hour of beats is one happening.
//!
//! # Absences
//! - What sleep and idle time are used for: they begin and end here, and that is told.
//! - The sync of the database after a quiet while: the store has its own timer for it, which runs
//!   only if there is something to sync.

pub mod pulse;
mod sums;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::civil;
use jiff::tz::TimeZone;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::pulse::{Action, Pulse, Rhythm, Seen};
use crate::clock::WallClock;
use crate::daemon::supervisor::{Liveness, TaskCx};
use crate::event::{Event, Events};
use crate::snapshot::Snapshot;
use crate::snapshot::body::{Governed, Level, Order};
use crate::vitals::VitalsSource;

/// Looks inside one watchdog interval: one may come late and one may find a task that is slow for
/// once, before the process is taken for dead.
const LOOKS_PER_WATCHDOG: u32 = 3;

/// Shortest time between two looks: a watchdog of a few milliseconds is a mistake, not a wish.
const LOOK_MIN: Duration = Duration::from_millis(50);

/// The house as the heart sees it.
pub trait House: Send + Sync {
    /// What is true now, but for the body.
    fn facts(&self) -> Snapshot;

    /// Something happened that may be worth a notice.
    fn heard(&self, event: &Event);

    /// Puts a snapshot in the place of the old one.
    fn publish(&self, snapshot: Snapshot);

    /// Leaves the state for other processes, after each beat.
    fn keep(&self, now: &Snapshot);

    /// The night of this date has begun. To be told at the next start, in [`Heart::last_night`].
    fn remember_night(&self, night: civil::Date);

    /// All critical tasks get on.
    fn feed_watchdog(&self);
}

/// Wakes the heart.
pub trait Alarm: Send {
    /// Resolves at `when`, or at once if that is over. A later call takes the place of this one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn at(&mut self, when: Instant) -> BoxFuture<'_, ()>;
}

/// The runtime's own timers. They sort a time that is far away several times on its way, and wake
/// the process for it: thirty seconds are up to three wake-ups.
#[derive(Debug)]
pub struct RuntimeAlarm;

impl Alarm for RuntimeAlarm {
    fn at(&mut self, when: Instant) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep_until(when))
    }
}

/// What the heart is made of.
pub struct Heart {
    /// Its settings.
    pub rhythm: Rhythm,
    /// The last night that began, in this life of the process or one before.
    pub last_night: Option<civil::Date>,
    /// The zone in which the person lives.
    pub zone: TimeZone,
    /// Time between two looks while there is work or the governor is on guard.
    pub on_guard: Duration,
    /// How often the service manager wants to be fed, if it does.
    pub watchdog: Option<Duration>,
    /// Where the vital signs come from.
    pub source: Box<dyn VitalsSource>,
    /// What wakes it.
    pub alarm: Box<dyn Alarm>,
    /// The house.
    pub house: Arc<dyn House>,
    /// Who obeys the governor at once.
    pub governed: Vec<Arc<dyn Governed>>,
    /// The governor's order, for whoever waits for a change.
    pub order: watch::Sender<Order>,
    /// The clock.
    pub clock: Arc<dyn WallClock>,
    /// Where happenings are told and heard.
    pub events: Events,
    /// Notified when somebody says something.
    pub stirred: Arc<Notify>,
}

/// When to look next, and what for.
struct Plan {
    /// Time between two looks at the tasks.
    period: Duration,
    /// Looks in one beat.
    looks_per_beat: u32,
    /// Looks since the last beat.
    looks: u32,
    next_look: Instant,
    /// A look at the body before that.
    next_glance: Option<Instant>,
}

/// Beats until `stop`.
///
/// # Errors
/// None: it ends only when it is told to.
pub async fn run(cx: TaskCx, mut heart: Heart, mut liveness: Liveness) -> Result<(), Infallible> {
    let mut happenings = heart.events.listen();
    let mut pulse = Pulse::new(heart.rhythm.clone(), heart.last_night);
    let mut plan = Plan::new(heart.rhythm.pulse, heart.watchdog, Instant::now());
    loop {
        tokio::select! {
            biased;
            () = cx.stop.cancelled() => break,
            happening = happenings.recv() => {
                match happening {
                    Ok(event) => heart.house.heard(&event),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => break,
                }
                heart.house.publish(heart.snapshot(&pulse));
                continue;
            }
            () = heart.stirred.notified(), if plan.next_glance.is_none() => {}
            () = heart.alarm.at(plan.next()) => {}
        }
        cx.progress.tick();
        let now = Instant::now();
        let (look, whole) = plan.arrive(now);
        let stuck = look.then(|| liveness.all_moved().err().unwrap_or_default());
        let seen = heart.see(stuck, whole);
        let busy = seen.turns > 0;
        let actions = pulse.beat(now, seen);
        let snapshot = heart.snapshot(&pulse);
        heart.house.publish(snapshot.clone());
        for action in actions {
            heart.perform(action, &snapshot);
        }
        let on_guard = busy || pulse.body().order.level != Level::Full;
        plan.next_glance = on_guard.then(|| now + heart.on_guard);
    }
    if let Some(event) = pulse.last_words() {
        heart.events.tell(event);
    }
    Ok(())
}

impl Heart {
    /// Looks.
    fn see(&mut self, stuck: Option<Vec<&'static str>>, whole: bool) -> Seen {
        let facts = self.house.facts();
        let active = facts.backends.iter().find(|backend| backend.name == facts.active_backend);
        let now = self.clock.now();
        let civil = self.clock.is_set().then(|| self.zone.to_datetime(now));
        Seen {
            vitals: self.source.sample(),
            slow: active.is_some_and(|backend| backend.degraded),
            tokens_per_s: active.and_then(|backend| backend.tokens_per_s),
            online: facts.online,
            quiet: facts.quiet,
            turns: facts.turns,
            at_ms: now.as_millisecond(),
            civil,
            stuck,
            whole,
        }
    }

    fn snapshot(&self, pulse: &Pulse) -> Snapshot {
        Snapshot { body: pulse.body().clone(), ..self.house.facts() }
    }

    fn perform(&self, action: Action, now: &Snapshot) {
        match action {
            Action::FeedWatchdog => self.house.feed_watchdog(),
            Action::Tell(event) => self.events.tell(event),
            Action::Obey(order) => {
                for governed in &self.governed {
                    governed.obey(&order);
                }
                self.order.send_replace(order);
            }
            Action::StartSleep(night) => {
                self.house.remember_night(night);
                self.events.tell(Event::SleepBegan { night: night.to_string() });
            }
            Action::EndSleep(night) => {
                self.events.tell(Event::SleepEnded { night: night.to_string() });
            }
            Action::StartIdle => {
                self.events.tell(Event::IdleBegan { after_s: self.rhythm.idle.as_secs() });
            }
            Action::Keep => self.house.keep(now),
        }
    }
}

impl Plan {
    /// Looks at even distances, a whole number of them in a beat; the first beat is now.
    fn new(pulse: Duration, watchdog: Option<Duration>, now: Instant) -> Self {
        let needed = watchdog.map_or(pulse, |watchdog| watchdog / LOOKS_PER_WATCHDOG);
        let needed = needed.max(LOOK_MIN).min(pulse.max(LOOK_MIN));
        let looks_per_beat = pulse.as_secs_f64() / needed.as_secs_f64();
        // Between 1 and an hour of looks every 50 ms.
        let looks_per_beat = looks_per_beat.ceil().clamp(1.0, 72_000.0) as u32;
        let period = (pulse / looks_per_beat).max(LOOK_MIN);
        Self { period, looks_per_beat, looks: looks_per_beat, next_look: now, next_glance: None }
    }

    fn next(&self) -> Instant {
        self.next_glance.map_or(self.next_look, |glance| glance.min(self.next_look))
    }

    /// Whether the tasks are to be looked at now, and whether this is a whole beat. After a stall
    /// there is one look, not a burst: a burst would ask tasks that had no time.
    fn arrive(&mut self, now: Instant) -> (bool, bool) {
        if now < self.next_look {
            return (false, false);
        }
        let late = now > self.next_look + self.period / 2;
        self.next_look = if late { now } else { self.next_look } + self.period;
        self.looks += 1;
        let whole = self.looks >= self.looks_per_beat;
        if whole {
            self.looks = 0;
        }
        (true, whole)
    }
}

#[cfg(test)]
mod tests;
