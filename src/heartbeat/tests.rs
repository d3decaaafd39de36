//! The loop: real datagrams on real time for the watchdog, a paused clock for the rest.

use std::sync::Mutex;

use super::*;
use crate::clock::SteppedClock;
use crate::config::Config;
use crate::daemon::supervisor::{Policy, Spec, Supervisor};
use crate::daemon::systemd::Manager;
use crate::daemon::tasks;
use crate::snapshot::body::VitalSigns;
use crate::vitals::governor::Ladder;
use crate::vitals::stress::Limits;
use jiff::civil::time;
use tokio_util::sync::CancellationToken;

/// 2026-11-30 14:05 UTC.
const NOW_MS: i64 = 1_796_047_500_000;

/// A house with nothing in it but what it was told.
#[derive(Default)]
struct Empty {
    manager: Option<Manager>,
    turns: Mutex<usize>,
    published: Mutex<Vec<Snapshot>>,
    kept: Mutex<usize>,
}

impl House for Empty {
    fn facts(&self) -> Snapshot {
        Snapshot { turns: *self.turns.lock().unwrap(), online: true, ..Snapshot::default() }
    }

    fn heard(&self, _event: &Event) {}

    fn publish(&self, snapshot: Snapshot) {
        self.published.lock().unwrap().push(snapshot);
    }

    fn keep(&self, _now: &Snapshot) {
        *self.kept.lock().unwrap() += 1;
    }

    fn remember_night(&self, _night: civil::Date) {}

    fn feed_watchdog(&self) {
        if let Some(manager) = &self.manager {
            manager.feed_watchdog();
        }
    }
}

/// A machine whose temperature the test sets.
#[derive(Clone)]
struct Dial(Arc<Mutex<f32>>);

impl VitalsSource for Dial {
    fn sample(&mut self) -> VitalSigns {
        let temperature_c = Some(*self.0.lock().unwrap());
        VitalSigns { temperature_c, ..VitalSigns::default() }
    }
}

/// Remembers the orders it got.
#[derive(Default)]
struct Obedient(Mutex<Vec<Level>>);

impl Governed for Obedient {
    fn obey(&self, order: &Order) {
        self.0.lock().unwrap().push(order.level);
    }
}

struct Rig {
    supervisor: Supervisor,
    house: Arc<Empty>,
    dial: Dial,
    obedient: Arc<Obedient>,
    order: watch::Receiver<Order>,
    events: Events,
    stirred: Arc<Notify>,
}

/// Starts a heart that beats every 30 s.
fn start(house: Empty, watchdog: Option<Duration>) -> Rig {
    let config = Config::default();
    let events = Events::default();
    let supervisor = Supervisor::new(events.clone());
    let house = Arc::new(house);
    let dial = Dial(Arc::new(Mutex::new(50.0)));
    let obedient = Arc::new(Obedient::default());
    let (order, receiver) = watch::channel(Order::default());
    let stirred = Arc::new(Notify::new());
    let heart = Heart {
        rhythm: Rhythm {
            pulse: Duration::from_secs(30),
            duty_start: time(6, 0, 0, 0),
            sleep_start: time(2, 0, 0, 0),
            idle: Duration::from_secs(300),
            stress: Limits::of(&config, false),
            ladder: Ladder::of(&config),
        },
        last_night: None,
        zone: TimeZone::UTC,
        on_guard: Duration::from_secs(5),
        watchdog,
        source: Box::new(dial.clone()),
        alarm: Box::new(RuntimeAlarm),
        house: Arc::clone(&house) as _,
        governed: vec![Arc::clone(&obedient) as _],
        order,
        clock: Arc::new(SteppedClock::new(NOW_MS)),
        events: events.clone(),
        stirred: Arc::clone(&stirred),
    };
    let liveness = supervisor.spawner().liveness();
    supervisor.spawner().spawn_once(tasks::HEARTBEAT, move |cx| run(cx, heart, liveness)).unwrap();
    Rig { supervisor, house, dial, obedient, order: receiver, events, stirred }
}

impl Rig {
    fn published(&self) -> usize {
        self.house.published.lock().unwrap().len()
    }
}

#[test]
fn the_looks_divide_the_beat_and_are_as_often_as_the_watchdog_needs() {
    let s = Duration::from_secs;
    let now = Instant::now();
    let table = [
        (s(30), None, s(30), 1),
        (s(30), Some(s(90)), s(30), 1),
        (s(30), Some(s(60)), s(15), 2),
        (s(30), Some(s(45)), s(15), 2),
        (s(5), Some(s(30)), s(5), 1),
        (s(5), Some(Duration::from_millis(3)), LOOK_MIN, 100),
    ];
    for (pulse, watchdog, period, looks) in table {
        let plan = Plan::new(pulse, watchdog, now);
        assert_eq!((plan.period, plan.looks_per_beat), (period, looks), "{pulse:?} {watchdog:?}");
    }
}

#[test]
fn after_a_stall_there_is_one_look_and_beats_stay_beats() {
    let now = Instant::now();
    let s = Duration::from_secs;
    let mut plan = Plan::new(s(30), Some(s(45)), now);
    assert_eq!(plan.arrive(now), (true, true), "the first is a beat");
    assert_eq!(plan.arrive(now + s(7)), (false, false), "a look at the body only");
    assert_eq!(plan.arrive(now + s(15)), (true, false));
    assert_eq!(plan.arrive(now + s(100)), (true, true));
    assert_eq!(plan.next(), now + s(115));
}

#[tokio::test(start_paused = true)]
async fn at_rest_it_looks_with_each_beat_only() {
    let rig = start(Empty::default(), None);
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(*rig.house.kept.lock().unwrap(), 10);
    assert_eq!(rig.published(), 10, "nothing else wakes it");
    let last = rig.house.published.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last.body.counters.pulses, 10);
    assert_eq!(last.body.vitals.temperature_c, Some(50.0));
}

#[tokio::test(start_paused = true)]
async fn a_message_wakes_it_and_while_it_works_it_looks_more_often() {
    let rig = start(Empty::default(), None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.published(), 1);
    *rig.house.turns.lock().unwrap() = 1;
    rig.stirred.notify_one();
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(rig.published(), 4, "at once, and twice after 5 s each");
    *rig.house.turns.lock().unwrap() = 0;
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(rig.published(), 5, "the look that finds it at rest is the last before the beat");
    assert_eq!(*rig.house.kept.lock().unwrap(), 1, "none of them is a beat");
}

#[tokio::test(start_paused = true)]
async fn orders_reach_those_who_obey_and_the_watch_channel() {
    let mut rig = start(Empty::default(), None);
    let mut happenings = rig.events.listen();
    tokio::time::sleep(Duration::from_secs(1)).await;
    *rig.dial.0.lock().unwrap() = 74.0;
    rig.order.changed().await.unwrap();
    assert_eq!(rig.order.borrow_and_update().level, Level::NoModel);
    assert_eq!(*rig.obedient.0.lock().unwrap(), [Level::NoModel]);
    let told = happenings.recv().await.unwrap();
    let Event::GovernorStepped { from, to, reason } = told else { panic!("{told:?}") };
    assert_eq!((from, to), ("full", "no_model"));
    assert!(reason.contains("74 °C"), "{reason}");
    *rig.dial.0.lock().unwrap() = 45.0;
    rig.order.changed().await.unwrap();
    assert_eq!(rig.order.borrow_and_update().level, Level::Full);
}

#[tokio::test(start_paused = true)]
async fn at_its_end_it_tells_what_the_hour_held() {
    let rig = start(Empty::default(), None);
    let mut happenings = rig.events.listen();
    tokio::time::sleep(Duration::from_secs(95)).await;
    let stop = futures_util::stream::once(async { crate::daemon::signals::Signal::Stop });
    rig.supervisor.run(Box::pin(stop), |_| {}).await;
    let told = happenings.recv().await.unwrap();
    let Event::BeatsSummed(summary) = told else { panic!("{told:?}") };
    assert_eq!(summary.beats, 4);
}

/// Real time: the datagrams are real. A look every 50 ms, and conditions instead of instants.
#[tokio::test]
async fn the_watchdog_is_fed_until_a_critical_task_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = tokio::net::UnixDatagram::bind(&path).unwrap();
    let manager = Some(Manager::at(path.as_os_str()).unwrap());
    let rig = start(Empty { manager, ..Empty::default() }, Some(LOOK_MIN * 3));
    let stuck = CancellationToken::new();
    let watched = stuck.clone();
    let spec = Spec { name: "worker", drain: 0, policy: Policy::ExitProcess, ..tasks::HEARTBEAT };
    rig.supervisor
        .spawn(spec, move |mut cx| {
            let watched = watched.clone();
            async move {
                cx.progress.idle(watched.cancelled()).await;
                std::future::pending::<Result<(), Infallible>>().await
            }
        })
        .unwrap();
    let second = Duration::from_secs(1);
    let mut bytes = [0; 256];
    let mut fed = 0;
    while fed < 5 {
        let heard = tokio::time::timeout(second * 20, socket.recv(&mut bytes));
        let length = heard.await.expect("the watchdog is fed").unwrap();
        fed += u32::from(&bytes[..length] == b"WATCHDOG=1");
    }
    let mut happenings = rig.events.listen();
    stuck.cancel();
    // At most two more: one in the queue, one by the look that saw the task take its work. Then
    // silence for a time in which ten looks pass.
    let mut more = 0;
    while let Ok(length) = tokio::time::timeout(LOOK_MIN * 10, socket.recv(&mut bytes)).await {
        assert_eq!(&bytes[..length.unwrap()], b"WATCHDOG=1");
        more += 1;
        assert!(more <= 100, "a task that stands still must starve the watchdog");
    }
    let told = happenings.recv().await.unwrap();
    assert_eq!(told, Event::TasksStuck { tasks: vec!["worker"] });
}
