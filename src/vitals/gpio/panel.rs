//! The panel: the light, the button, the motion sensor and the room, as one task.
//!
//! # Invariants
//! - A steady light and a quiet room wake nobody: the task sleeps until an edge, the next reading
//!   or the next blink.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::button::{Button, Press};
use super::lamp::{self, Lamp, Rhythm};
use crate::snapshot::Room;

/// How long a short press is answered with quick blinks.
const NOTICED_FOR: Duration = Duration::from_secs(1);

/// How often a steady light looks whether the level has changed.
const LEVEL_EVERY: Duration = Duration::from_secs(30);

/// What a pin saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The button went down or up.
    Button {
        /// Down.
        down: bool,
    },
    /// Somebody moved.
    Motion,
}

/// Whoever the panel belongs to.
pub trait Owner: Send + Sync {
    /// The governor's level, 0 to 3.
    fn level(&self) -> u8;

    /// A short or long press.
    fn pressed(&self, press: Press);

    /// Somebody moved in the room.
    fn moved(&self);

    /// The room was read.
    fn told(&self, room: &Room);
}

/// Reads the room, off the runtime's thread.
pub trait RoomReader: Send {
    /// One reading of all sensors.
    ///
    /// # Cancel safety
    /// A reading that is dropped must not be lost: the next one gets it.
    fn read(&mut self) -> BoxFuture<'_, Room>;
}

/// The parts of a panel; those that are not fitted are absent.
pub struct Panel {
    /// The light.
    pub lamp: Option<Box<dyn Lamp>>,
    /// Edges of the pins. A queue that is closed is a panel without pins.
    pub edges: mpsc::Receiver<Edge>,
    /// The sensors.
    pub room: Option<Box<dyn RoomReader>>,
    /// Time between two readings.
    pub every: Duration,
}

/// The light's state.
struct Light {
    lamp: Box<dyn Lamp>,
    on: bool,
    next: Instant,
    noticed_until: Option<Instant>,
}

/// Runs the panel until `stop`, then switches the light off.
pub async fn run(mut panel: Panel, owner: Arc<dyn Owner>, stop: CancellationToken) {
    let mut button = Button::default();
    let mut light = panel.lamp.take().map(Light::new);
    let mut next_reading = Instant::now();
    loop {
        let ripe_at = button.ripe_at();
        let blink_at = light.as_ref().map(|light| light.next);
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(edge) = panel.edges.recv() => match edge {
                Edge::Motion => owner.moved(),
                Edge::Button { down } => {
                    if let Some(press) = button.edge(down, Instant::now()) {
                        answer(press, light.as_mut(), &*owner);
                    }
                }
            },
            () = at(ripe_at) => answer(button.ripen(), light.as_mut(), &*owner),
            () = at(blink_at) => {
                if let Some(light) = &mut light {
                    light.turn(owner.level(), Instant::now());
                }
            }
            room = read(&mut panel.room, next_reading) => {
                owner.told(&room);
                next_reading = Instant::now() + panel.every;
            }
        }
    }
    if let Some(light) = &mut light {
        light.lamp.shine(false);
    }
}

fn answer(press: Press, light: Option<&mut Light>, owner: &dyn Owner) {
    if let (Some(light), Press::Short) = (light, press) {
        light.notice(Instant::now());
    }
    owner.pressed(press);
}

/// Sleeps until then, or for ever.
async fn at(then: Option<Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}

/// A reading when it is due.
async fn read(room: &mut Option<Box<dyn RoomReader>>, due: Instant) -> Room {
    tokio::time::sleep_until(due).await;
    match room {
        Some(room) => room.read().await,
        None => std::future::pending().await,
    }
}

// === impl Light ===

impl Light {
    fn new(lamp: Box<dyn Lamp>) -> Self {
        Self { lamp, on: false, next: Instant::now(), noticed_until: None }
    }

    fn notice(&mut self, now: Instant) {
        self.noticed_until = Some(now + NOTICED_FOR);
        self.next = now;
    }

    /// The next change of the light.
    fn turn(&mut self, level: u8, now: Instant) {
        self.noticed_until = self.noticed_until.filter(|until| now < *until);
        let Rhythm { on, off } = match self.noticed_until {
            Some(_) => lamp::NOTICED,
            None => lamp::rhythm(level),
        };
        self.on = off == Duration::ZERO || !self.on;
        self.lamp.shine(self.on);
        self.next = now
            + match (self.on, off) {
                (_, Duration::ZERO) => LEVEL_EVERY,
                (true, _) => on,
                (false, _) => off,
            };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    #[derive(Default)]
    struct Told {
        level: AtomicU8,
        presses: Mutex<Vec<Press>>,
        moved: Mutex<usize>,
        rooms: Mutex<Vec<Room>>,
    }

    impl Owner for Told {
        fn level(&self) -> u8 {
            self.level.load(Ordering::SeqCst)
        }
        fn pressed(&self, press: Press) {
            self.presses.lock().unwrap().push(press);
        }
        fn moved(&self) {
            *self.moved.lock().unwrap() += 1;
        }
        fn told(&self, room: &Room) {
            self.rooms.lock().unwrap().push(*room);
        }
    }

    #[derive(Clone, Default)]
    struct Bulb(Arc<Mutex<Vec<bool>>>);

    impl Lamp for Bulb {
        fn shine(&mut self, on: bool) {
            self.0.lock().unwrap().push(on);
        }
    }

    struct Warm;

    impl RoomReader for Warm {
        fn read(&mut self) -> BoxFuture<'_, Room> {
            Box::pin(async { Room { temperature_c: Some(24.0), ..Room::default() } })
        }
    }

    struct Rig {
        told: Arc<Told>,
        bulb: Bulb,
        edges: mpsc::Sender<Edge>,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    fn rig(level: u8) -> Rig {
        let (edges, heard) = mpsc::channel(8);
        let (told, bulb, stop) =
            (Arc::new(Told::default()), Bulb::default(), CancellationToken::new());
        told.level.store(level, Ordering::SeqCst);
        let panel = Panel {
            lamp: Some(Box::new(bulb.clone())),
            edges: heard,
            room: Some(Box::new(Warm)),
            every: Duration::from_secs(60),
        };
        let task = tokio::spawn(run(panel, Arc::clone(&told) as _, stop.clone()));
        Rig { told, bulb, edges, stop, task }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tap_a_hold_and_a_movement_are_told() {
        let rig = rig(0);
        for down in [true, false, true] {
            rig.edges.send(Edge::Button { down }).await.unwrap();
        }
        rig.edges.send(Edge::Motion).await.unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(*rig.told.presses.lock().unwrap(), [Press::Short, Press::Long]);
        assert_eq!(*rig.told.moved.lock().unwrap(), 1);
        rig.stop.cancel();
        rig.task.await.unwrap();
        assert_eq!(rig.bulb.0.lock().unwrap().last(), Some(&false), "the light goes out");
    }

    #[tokio::test(start_paused = true)]
    async fn the_room_is_read_at_once_and_then_every_minute() {
        let rig = rig(0);
        tokio::time::sleep(Duration::from_secs(150)).await;
        assert_eq!(rig.told.rooms.lock().unwrap().len(), 3);
        rig.stop.cancel();
        rig.task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_light_blinks_by_the_level_and_a_steady_one_rarely_wakes() {
        for (level, changes) in [(0, 2), (2, 60)] {
            let rig = rig(level);
            tokio::time::sleep(Duration::from_millis(59_900)).await;
            assert_eq!(rig.bulb.0.lock().unwrap().len(), changes, "level {level}");
            rig.stop.cancel();
            rig.task.await.unwrap();
        }
    }
}
