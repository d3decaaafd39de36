//! The beat: looks at regular times whether the critical tasks get on, and only then feeds the
//! watchdog.
//!
//! # Invariants
//! - No feeding without looking: a beat that finds a task standing still starves the watchdog, and
//!   the service manager kills and restarts the process.
//! - The beat is a critical task itself, so that its own end is an end of the process.
//!
//! # Absences
//! - No vitals, mood or idle work.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::supervisor::{Liveness, Spawner, Stopping, TaskCx};
use super::systemd::Manager;
use super::tasks;

/// Beats inside one watchdog interval: one may come late and one may find a task that is slow for
/// once, before the process is taken for dead.
const BEATS_PER_WATCHDOG: u32 = 3;

/// Shortest period: a watchdog of a few milliseconds is a mistake, not a wish.
const PERIOD_MIN: Duration = Duration::from_millis(50);

/// What the beat remembers from one time to the next.
#[derive(Debug, Default)]
struct Past {
    stuck: Vec<&'static str>,
}

/// What a beat does.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    FeedWatchdog,
    /// These tasks stand still since this beat.
    LogStuck(Vec<&'static str>),
    /// All move again.
    LogMoving,
}

/// Starts the beat: every `pulse`, or more often if the watchdog needs it.
///
/// # Errors
/// `Stopping` during the drain.
pub fn start(
    spawner: &Spawner,
    pulse: Duration,
    watchdog: Option<Duration>,
    manager: Arc<Manager>,
) -> Result<CancellationToken, Stopping> {
    let period = period(pulse, watchdog);
    let owner = spawner.clone();
    spawner.spawn(tasks::BEAT, move |cx| run(cx, period, owner.liveness(), Arc::clone(&manager)))
}

fn period(pulse: Duration, watchdog: Option<Duration>) -> Duration {
    let needed = watchdog.map_or(pulse, |watchdog| watchdog / BEATS_PER_WATCHDOG);
    pulse.min(needed).max(PERIOD_MIN)
}

async fn run(
    cx: TaskCx,
    period: Duration,
    mut liveness: Liveness,
    manager: Arc<Manager>,
) -> Result<(), Infallible> {
    let mut ticks = interval(period);
    // After a stall one beat, not a burst of them: a burst would ask tasks that had no time.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut past = Past::default();
    loop {
        tokio::select! {
            biased;
            () = cx.stop.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        cx.progress.tick();
        let stuck = liveness.all_moved().err().unwrap_or_default();
        for action in beat(&mut past, stuck) {
            perform(action, &manager);
        }
    }
}

/// Decides.
fn beat(past: &mut Past, stuck: Vec<&'static str>) -> Vec<Action> {
    let mut actions = Vec::new();
    if stuck.is_empty() {
        actions.push(Action::FeedWatchdog);
    }
    if stuck != past.stuck {
        past.stuck.clone_from(&stuck);
        actions.push(match stuck.is_empty() {
            true => Action::LogMoving,
            false => Action::LogStuck(stuck),
        });
    }
    actions
}

fn perform(action: Action, manager: &Manager) {
    match action {
        Action::FeedWatchdog => manager.feed_watchdog(),
        Action::LogStuck(tasks) => {
            tracing::error!(event = "beat.stuck", ?tasks, "tasks stand still; watchdog not fed");
        }
        Action::LogMoving => tracing::info!(event = "beat.moving", "all tasks move again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::supervisor::{Spec, Supervisor};
    use crate::event::Events;

    #[test]
    fn a_beat_feeds_only_when_all_move_and_says_each_change_once() {
        let mut past = Past::default();
        assert_eq!(beat(&mut past, vec![]), [Action::FeedWatchdog]);
        assert_eq!(beat(&mut past, vec!["store"]), [Action::LogStuck(vec!["store"])]);
        assert_eq!(beat(&mut past, vec!["store"]), []);
        let both = vec!["store", "signals"];
        assert_eq!(beat(&mut past, both.clone()), [Action::LogStuck(both)]);
        assert_eq!(beat(&mut past, vec![]), [Action::FeedWatchdog, Action::LogMoving]);
    }

    #[test]
    fn the_period_is_the_pulse_unless_the_watchdog_needs_it_shorter() {
        let s = Duration::from_secs;
        assert_eq!(period(s(5), None), s(5));
        assert_eq!(period(s(5), Some(s(30))), s(5));
        assert_eq!(period(s(5), Some(s(6))), s(2));
        assert_eq!(period(s(5), Some(Duration::from_millis(3))), PERIOD_MIN);
    }

    /// Real time: the datagrams are real. A period of 50 ms, and conditions instead of instants.
    #[tokio::test]
    async fn the_watchdog_is_fed_until_a_critical_task_stands_still() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = tokio::net::UnixDatagram::bind(&path).unwrap();
        let manager = Arc::new(Manager::at(path.as_os_str()).unwrap());
        let supervisor = Supervisor::new(Events::default());
        let stuck = CancellationToken::new();
        let watched = stuck.clone();
        let spec = Spec { name: "worker", drain: 0, ..tasks::BEAT };
        supervisor
            .spawn(spec, move |mut cx| {
                let watched = watched.clone();
                async move {
                    cx.progress.idle(watched.cancelled()).await;
                    std::future::pending::<Result<(), Infallible>>().await
                }
            })
            .unwrap();
        let second = Duration::from_secs(1);
        start(&supervisor.spawner(), second, Some(PERIOD_MIN * 3), manager).unwrap();
        let mut bytes = [0; 256];
        let mut fed = 0;
        while fed < 5 {
            let heard = tokio::time::timeout(second * 20, socket.recv(&mut bytes));
            let length = heard.await.expect("the watchdog is fed").unwrap();
            fed += u32::from(&bytes[..length] == b"WATCHDOG=1");
        }
        stuck.cancel();
        // At most two more: one in the queue, one by the beat that saw the task take its work.
        // Then silence for a time in which ten beats pass.
        let mut more = 0;
        while let Ok(length) = tokio::time::timeout(PERIOD_MIN * 10, socket.recv(&mut bytes)).await
        {
            assert_eq!(&bytes[..length.unwrap()], b"WATCHDOG=1");
            more += 1;
            assert!(more <= 100, "a task that stands still must starve the watchdog");
        }
    }
}
