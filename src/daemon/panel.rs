//! The panel's owner: what the button, the motion sensor and the room mean to the house.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::Instant;

use super::status::status_line;
use super::supervisor::{Stopping, Supervisor};
use super::tasks;
use super::wiring::House;
use crate::agent::service::Agent;
use crate::config::sections::gpio::Gpio;
use crate::snapshot::body::Level;
use crate::snapshot::{Reader, Room};
use crate::vitals::gpio::button::Press;
use crate::vitals::gpio::panel::{self, Owner};
use crate::vitals::gpio::raspberry::{self, Wiring};
use crate::vitals::gpio::room::{Address, Fitted};

/// Somebody who walks about is noticed this often.
const MOTION_EVERY: Duration = Duration::from_secs(60);

struct Front {
    settings: Gpio,
    agent: Arc<Agent>,
    now: Reader,
    room: Arc<ArcSwapOption<Room>>,
    last_motion: Mutex<Option<Instant>>,
}

/// Starts the panel if anything is connected.
///
/// # Errors
/// `Stopping` during a drain.
pub(super) fn start(
    supervisor: &Supervisor,
    house: &House,
    settings: &Gpio,
) -> Result<(), Stopping> {
    let wiring = wiring(settings);
    let pins = [wiring.led_pin, wiring.button_pin, wiring.pir_pin];
    if pins == [None; 3] && wiring.fitted == Fitted::default() {
        return Ok(());
    }
    let front = Arc::new(Front {
        settings: settings.clone(),
        agent: Arc::clone(&house.agent),
        now: house.reader.clone(),
        room: Arc::clone(&house.room),
        last_motion: Mutex::default(),
    });
    supervisor.spawn(tasks::PANEL, move |cx| {
        let front = Arc::clone(&front);
        async move {
            let (panel, _pins) = raspberry::open(&wiring);
            panel::run(panel, front, cx.stop).await;
            Ok::<_, Infallible>(())
        }
    })?;
    Ok(())
}

fn wiring(settings: &Gpio) -> Wiring {
    let bme680 = settings.bme680.map(|address| match address {
        "0x77" => Address::High,
        _ => Address::Low,
    });
    Wiring {
        led_pin: settings.led_pin,
        button_pin: settings.button_pin,
        pir_pin: settings.pir_pin,
        bus: settings.i2c_bus,
        fitted: Fitted { bme680, tsl2591: settings.tsl2591 },
        every: settings.read_every,
    }
}

impl Owner for Front {
    fn level(&self) -> u8 {
        let now = self.now.load();
        // Without a model nothing more can be forbidden.
        let level = if now.online { now.body.order.level } else { Level::NoModel };
        level as u8
    }

    fn pressed(&self, press: Press) {
        match press {
            Press::Short => {
                let status = status_line(&self.now.load());
                tracing::info!(event = "button.short", status, "the button was pressed");
            }
            Press::Long => {
                tracing::info!(event = "button.long", "the button was held: shutting down");
                if let Err(error) = kill_process(getpid(), Signal::TERM) {
                    tracing::error!(%error, "the shutdown could not be asked for");
                }
            }
        }
    }

    fn moved(&self) {
        let now = Instant::now();
        let mut last = self.last_motion.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| now >= last + MOTION_EVERY) {
            *last = Some(now);
            self.agent.nudge(self.settings.motion);
        }
    }

    fn told(&self, room: &Room) {
        if room.temperature_c.is_some_and(|celsius| celsius >= self.settings.hot_from_c) {
            self.agent.nudge(self.settings.hot_room);
        }
        self.room.store(Some(Arc::new(*room)));
    }
}
