//! The supervisor on a paused clock.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::stream::{self, BoxStream};
use tokio::sync::broadcast;
use tokio::time::sleep;

use super::*;
use crate::daemon::exit;
use crate::event::Event;
use crate::limits;

/// Signals at these seconds from now, then never again.
fn signals(at_s: &[(u64, Signal)]) -> BoxStream<'static, Signal> {
    let start = Instant::now();
    let at_s = at_s.to_vec();
    stream::iter(at_s)
        .then(move |(at_s, signal)| async move {
            tokio::time::sleep_until(start + Duration::from_secs(at_s)).await;
            signal
        })
        .chain(stream::pending())
        .boxed()
}

const STOP_AT_100_S: &[(u64, Signal)] = &[(100, Signal::Stop)];

fn spec(name: &'static str, policy: Policy, drain: u8) -> Spec {
    let drain_max = Duration::from_secs(2);
    Spec { name, policy, drain, grace: Duration::ZERO, drain_max }
}

const RESTART: Policy = Policy::Restart(Restart::USUAL);

/// Starts a task that runs until it is asked to stop, then takes `takes` to end, and notes it.
fn obedient(supervisor: &Supervisor, spec: Spec, takes: Duration, log: &Log) {
    let log = log.clone();
    let started = supervisor.spawn(spec, move |cx| {
        let log = log.clone();
        async move {
            cx.stop.cancelled().await;
            sleep(takes).await;
            log.note(spec.name);
            Ok::<(), Infallible>(())
        }
    });
    assert!(started.is_ok(), "{}", spec.name);
}

/// Who ended, and when.
#[derive(Clone)]
struct Log(Arc<Mutex<Vec<(&'static str, u64)>>>, Instant);

impl Log {
    fn new() -> Self {
        Self(Arc::default(), Instant::now())
    }

    fn note(&self, name: &'static str) {
        self.0.lock().unwrap().push((name, self.1.elapsed().as_secs()));
    }

    fn all(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().unwrap().clone()
    }
}

fn failures(events: &mut broadcast::Receiver<Event>) -> Vec<String> {
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let Event::TaskFailed { task, outcome } = event {
            told.push(format!("{task} {outcome}"));
        }
    }
    told
}

#[tokio::test(start_paused = true)]
async fn a_crashing_task_is_restarted_while_others_keep_running() {
    let events = Events::default();
    let mut told = events.listen();
    let supervisor = Supervisor::new(events);
    let log = Log::new();
    obedient(&supervisor, spec("steady", Policy::ExitProcess, 1), Duration::ZERO, &log);
    let starts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&starts);
    supervisor
        .spawn(spec("shaky", RESTART, 0), move |cx| {
            let start = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match start {
                    0 => panic!("first {}", "crash"),
                    1 => Err("second end"),
                    _ => {
                        cx.stop.cancelled().await;
                        Ok(())
                    }
                }
            }
        })
        .unwrap();
    let spawner = supervisor.spawner();
    let exit = supervisor.run(signals(STOP_AT_100_S), |_| {}).await;
    assert_eq!(exit, Exit::Stopped);
    assert_eq!(exit.code(), exit::STOPPED);
    assert_eq!(starts.load(Ordering::SeqCst), 3);
    assert_eq!(log.all(), [("steady", 100)]);
    assert_eq!(
        failures(&mut told),
        [
            "shaky panicked: first crash; restarts in 1 s",
            "shaky failed: second end; restarts in 2 s"
        ]
    );
    assert_eq!(spawner.reports(), []);
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_panics_is_a_task_that_panicked() {
    let events = Events::default();
    let mut told = events.listen();
    let supervisor = Supervisor::new(events);
    supervisor
        .spawn(spec("stillborn", Policy::Once, 0), |_| {
            if true {
                panic!("no parts");
            }
            async { Ok::<(), Infallible>(()) }
        })
        .unwrap();
    assert_eq!(supervisor.run(signals(STOP_AT_100_S), |_| {}).await, Exit::Stopped);
    assert_eq!(failures(&mut told), ["stillborn panicked: no parts"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_keeps_ending_is_given_up_and_told() {
    let events = Events::default();
    let mut told = events.listen();
    let supervisor = Supervisor::new(events);
    let starts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&starts);
    supervisor
        .spawn(spec("broken", RESTART, 0), move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Err("no port") }
        })
        .unwrap();
    let spawner = supervisor.spawner();
    let exit = supervisor.run(signals(STOP_AT_100_S), |_| {}).await;
    assert_eq!(exit, Exit::Stopped, "a task given up does not hold the drain");
    assert_eq!(starts.load(Ordering::SeqCst), 6, "one start and five restarts");
    let told = failures(&mut told);
    assert_eq!(told.last().map(String::as_str), Some("broken failed: no port; given up"));
    assert_eq!(told.len(), 6);
    let report = spawner.reports().remove(0);
    assert_eq!((report.name, report.state, report.restarts), ("broken", "given up", 5));
    assert_eq!(report.last_outcome.as_deref(), Some("failed: no port"));
}

#[tokio::test(start_paused = true)]
async fn a_critical_task_that_ends_leaves_with_70_after_the_others_drained() {
    let supervisor = Supervisor::new(Events::default());
    let log = Log::new();
    obedient(&supervisor, spec("store", Policy::ExitProcess, 6), Duration::from_secs(1), &log);
    supervisor
        .spawn(spec("heartbeat", Policy::ExitProcess, 5), |_| async {
            sleep(Duration::from_secs(3)).await;
            Ok::<(), Infallible>(())
        })
        .unwrap();
    let mut moments = Vec::new();
    let exit = supervisor.run(signals(STOP_AT_100_S), |moment| moments.push(moment)).await;
    assert_eq!(
        exit,
        Exit::CriticalEnded { task: "heartbeat", outcome: Outcome::Returned },
        "even a good end is an end"
    );
    assert_eq!(exit.code(), exit::INTERNAL);
    assert_eq!(log.all(), [("store", 4)]);
    assert_eq!(moments, [Moment::Stopping]);
}

#[tokio::test(start_paused = true)]
async fn groups_drain_one_after_the_other_in_their_order() {
    let supervisor = Supervisor::new(Events::default());
    let log = Log::new();
    let second = Duration::from_secs(1);
    obedient(&supervisor, spec("store", Policy::ExitProcess, 6), second, &log);
    obedient(&supervisor, spec("http", RESTART, 1), second, &log);
    obedient(&supervisor, spec("turn", Policy::Once, 2), Duration::ZERO, &log);
    obedient(&supervisor, spec("terminal", RESTART, 1), second, &log);
    let exit = supervisor.run(signals(STOP_AT_100_S), |_| {}).await;
    assert_eq!(exit, Exit::Stopped);
    let mut ends = log.all();
    ends[..2].sort_unstable();
    assert_eq!(ends, [("http", 101), ("terminal", 101), ("turn", 101), ("store", 102)]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_overrun_names_the_task_and_returns_75() {
    let supervisor = Supervisor::new(Events::default());
    let log = Log::new();
    obedient(&supervisor, spec("store", Policy::ExitProcess, 6), Duration::ZERO, &log);
    obedient(&supervisor, spec("deaf", RESTART, 1), Duration::from_secs(3600), &log);
    let exit = supervisor.run(signals(STOP_AT_100_S), |_| {}).await;
    assert_eq!(exit, Exit::Overrun(vec!["deaf"]));
    assert_eq!(exit.code(), exit::OVERRUN);
    assert_eq!(log.all(), [("store", 102)], "the next group had its turn");
}

#[tokio::test(start_paused = true)]
async fn the_whole_drain_stays_within_its_bound() {
    let supervisor = Supervisor::new(Events::default());
    let log = Log::new();
    for (drain, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let drain = u8::try_from(drain).unwrap();
        let slow = Spec { drain_max: Duration::from_secs(9), ..spec(name, RESTART, drain) };
        obedient(&supervisor, slow, Duration::from_secs(8), &log);
    }
    let start = Instant::now();
    let exit = supervisor.run(signals(STOP_AT_100_S), |_| {}).await;
    assert_eq!(exit, Exit::Overrun(vec!["b", "c", "d"]));
    let drain = start.elapsed() - Duration::from_secs(100);
    assert!(drain >= limits::DRAIN_MAX, "{drain:?}");
    assert!(drain < limits::DRAIN_MAX + Duration::from_secs(1), "{drain:?}");
}

#[tokio::test(start_paused = true)]
async fn grace_lets_a_task_finish_before_it_is_asked() {
    let supervisor = Supervisor::new(Events::default());
    let log = Log::new();
    for (name, rest_s) in [("short turn", 103), ("long turn", 3600)] {
        let grace = Duration::from_secs(5);
        let noted = log.clone();
        let turn = Spec { grace, ..spec(name, Policy::Once, 2) };
        supervisor
            .spawn(turn, move |cx| {
                let noted = noted.clone();
                async move {
                    tokio::select! {
                        biased;
                        () = cx.stop.cancelled() => noted.note("cancelled"),
                        () = sleep(Duration::from_secs(rest_s)) => noted.note("finished"),
                    }
                    Ok::<(), Infallible>(())
                }
            })
            .unwrap();
    }
    assert_eq!(supervisor.run(signals(STOP_AT_100_S), |_| {}).await, Exit::Stopped);
    assert_eq!(log.all(), [("finished", 103), ("cancelled", 105)]);
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_leaves_at_once_with_130_and_a_reload_is_passed_on() {
    let supervisor = Supervisor::new(Events::default());
    let log = Log::new();
    let slow = Spec { drain_max: Duration::from_secs(9), ..spec("slow", RESTART, 0) };
    obedient(&supervisor, slow, Duration::from_secs(8), &log);
    let sent = [(1, Signal::Reload), (2, Signal::Stop), (3, Signal::Reload), (4, Signal::Stop)];
    let mut moments = Vec::new();
    let start = Instant::now();
    let exit = supervisor.run(signals(&sent), |moment| moments.push(moment)).await;
    assert_eq!((exit.code(), exit), (exit::KILLED, Exit::Killed));
    assert_eq!(start.elapsed(), Duration::from_secs(4));
    assert_eq!(moments, [Moment::Reload, Moment::Stopping], "no reload during the drain");
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_in_an_order_that_was_drained() {
    let supervisor = Supervisor::new(Events::default());
    let spawner = supervisor.spawner();
    let late = supervisor.spawner();
    let answers = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&answers);
    supervisor
        .spawn(spec("http", RESTART, 1), move |cx| {
            let (late, kept) = (late.clone(), Arc::clone(&kept));
            async move {
                cx.stop.cancelled().await;
                for order in [0, 1, 2] {
                    let again = late.spawn(spec("late", Policy::Once, order), |_| async {
                        Ok::<(), Infallible>(())
                    });
                    kept.lock().unwrap().push(again.is_ok());
                }
                Ok::<(), Infallible>(())
            }
        })
        .unwrap();
    assert_eq!(supervisor.run(signals(STOP_AT_100_S), |_| {}).await, Exit::Stopped);
    assert_eq!(*answers.lock().unwrap(), [false, false, true]);
    let after =
        spawner.spawn(spec("after", Policy::Once, u8::MAX), |_| async { Ok::<(), Infallible>(()) });
    assert_eq!(after.err(), Some(Stopping));
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_waits_does_not_hold_the_drain() {
    let supervisor = Supervisor::new(Events::default());
    let hourly = Restart { delay_first: Duration::from_secs(3600), ..Restart::USUAL };
    let hourly = Restart { delay_max: Duration::from_secs(3600), ..hourly };
    supervisor
        .spawn(spec("hourly", Policy::Restart(hourly), 0), |_| async { Err("ended") })
        .unwrap();
    let start = Instant::now();
    assert_eq!(supervisor.run(signals(STOP_AT_100_S), |_| {}).await, Exit::Stopped);
    assert_eq!(start.elapsed(), Duration::from_secs(100));
}

/// Starts a critical task that waits for work once, then waits for something else for ever.
fn waits_then_sticks(supervisor: &Supervisor, name: &'static str, mut inbox: mpsc::Receiver<()>) {
    let spec = spec(name, Policy::ExitProcess, 0);
    let started = supervisor.spawner().spawn_once(spec, async move |mut cx: TaskCx| {
        cx.progress.idle(inbox.recv()).await;
        std::future::pending::<Result<(), Infallible>>().await
    });
    assert!(started.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_can_start_only_once_says_so_when_it_is_restarted() {
    let events = Events::default();
    let mut told = events.listen();
    let supervisor = Supervisor::new(events);
    let owned = String::from("first end");
    let spec = spec("owner", RESTART, 0);
    supervisor.spawner().spawn_once(spec, async move |_| Err::<(), _>(owned)).unwrap();
    assert_eq!(supervisor.run(signals(STOP_AT_100_S), |_| {}).await, Exit::Stopped);
    let told = failures(&mut told);
    assert_eq!(told[0], "owner failed: first end; restarts in 1 s");
    assert_eq!(told.last().unwrap(), "owner failed: it can start only once; given up");
}

#[tokio::test(start_paused = true)]
async fn liveness_names_the_critical_task_that_stands_still_and_trusts_the_idle_one() {
    let supervisor = Supervisor::new(Events::default());
    let mut liveness = supervisor.spawner().liveness();
    // Never sends; kept so that its queue stays open.
    let (_open, idle_inbox) = mpsc::channel(1);
    waits_then_sticks(&supervisor, "idle", idle_inbox);
    let (work, inbox) = mpsc::channel(1);
    waits_then_sticks(&supervisor, "worker", inbox);
    supervisor
        .spawn(spec("edge", RESTART, 0), |_| async {
            std::future::pending::<()>().await;
            Ok::<(), Infallible>(())
        })
        .unwrap();
    let beat = Duration::from_secs(5);
    for _ in 0..3 {
        sleep(beat).await;
        assert_eq!(liveness.all_moved(), Ok(()));
    }
    work.send(()).await.unwrap();
    sleep(beat).await;
    assert_eq!(liveness.all_moved(), Ok(()), "taking the work was progress");
    sleep(beat).await;
    assert_eq!(liveness.all_moved(), Err(vec!["worker"]));
}
