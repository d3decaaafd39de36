//! The real pins and the real I2C bus, through rppal.

use std::time::Duration;

use embedded_hal::delay::DelayNs;
use embedded_hal::i2c::{ErrorKind, ErrorType, I2c, NoAcknowledgeSource, Operation};
use futures_util::future::BoxFuture;
use rppal::gpio::{Gpio, InputPin, OutputPin, Trigger};
use rppal::i2c::I2c as Bus;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::lamp::Lamp;
use super::panel::{Edge, Panel, RoomReader};
use super::room::{Fitted, Sensors};
use crate::snapshot::Room;

/// Edges on their way from the pins: a person does not press faster.
const EDGES: usize = 16;

/// A contact is at rest after this; cheap buttons bounce for a few milliseconds.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// What is connected where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wiring {
    /// The light's pin, by its BCM number.
    pub led_pin: Option<u8>,
    /// The button's pin; pressed, it connects to ground.
    pub button_pin: Option<u8>,
    /// The motion sensor's pin; high means motion.
    pub pir_pin: Option<u8>,
    /// Number of the I2C bus: 1 is `/dev/i2c-1`.
    pub bus: u8,
    /// The sensors on it.
    pub fitted: Fitted,
    /// Time between two readings.
    pub every: Duration,
}

/// The pins, held: dropping them ends their interrupts.
pub struct Pins(#[expect(dead_code, reason = "held, not read")] Vec<InputPin>);

/// Opens what is there. What is not costs a warning, and the rest works without it.
#[must_use]
pub fn open(wiring: &Wiring) -> (Panel, Pins) {
    let (sender, edges) = mpsc::channel(EDGES);
    let gpio = Gpio::new().map_err(|error| warn("the pins", &error)).ok();
    let lamp = gpio.as_ref().zip(wiring.led_pin).and_then(|(gpio, pin)| led(gpio, pin));
    let mut pins = Vec::new();
    if let Some((gpio, pin)) = gpio.as_ref().zip(wiring.button_pin) {
        let sender = sender.clone();
        let opened = input(gpio, pin, true, Trigger::Both, move |trigger| {
            let down = trigger == Trigger::FallingEdge;
            // A full queue means that nobody listens.
            let _ = sender.try_send(Edge::Button { down });
        });
        pins.extend(opened);
    }
    if let Some((gpio, pin)) = gpio.as_ref().zip(wiring.pir_pin) {
        let opened = input(gpio, pin, false, Trigger::RisingEdge, move |_| {
            let _ = sender.try_send(Edge::Motion);
        });
        pins.extend(opened);
    }
    let some_sensor = wiring.fitted != Fitted::default();
    let room = some_sensor.then(|| bus(wiring)).flatten();
    (Panel { lamp, edges, room, every: wiring.every }, Pins(pins))
}

fn warn(what: &str, error: &dyn std::fmt::Display) {
    tracing::warn!(event = "gpio.absent", what, %error, "a part of the panel cannot be used");
}

fn led(gpio: &Gpio, pin: u8) -> Option<Box<dyn Lamp>> {
    let pin = gpio.get(pin).map_err(|error| warn("the light's pin", &error)).ok()?;
    Some(Box::new(Led(pin.into_output_low())))
}

fn input(
    gpio: &Gpio,
    pin: u8,
    pull_up: bool,
    trigger: Trigger,
    seen: impl Fn(Trigger) + Send + 'static,
) -> Option<InputPin> {
    let pin = gpio.get(pin).map_err(|error| warn("an input pin", &error)).ok()?;
    let mut pin = if pull_up { pin.into_input_pullup() } else { pin.into_input() };
    pin.set_async_interrupt(trigger, Some(DEBOUNCE), move |event| seen(event.trigger))
        .map_err(|error| warn("an input pin", &error))
        .ok()?;
    Some(pin)
}

fn bus(wiring: &Wiring) -> Option<Box<dyn RoomReader>> {
    let bus = Bus::with_bus(wiring.bus).map_err(|error| warn("the I2C bus", &error)).ok()?;
    Some(Box::new(OnThread::Idle(Sensors::new(Shared(bus), wiring.fitted))))
}

struct Led(OutputPin);

impl Lamp for Led {
    fn shine(&mut self, on: bool) {
        if on { self.0.set_high() } else { self.0.set_low() }
    }
}

/// The bus as the drivers want it; rppal's own adapter brings five more packages.
struct Shared(Bus);

impl ErrorType for Shared {
    type Error = ErrorKind;
}

impl I2c for Shared {
    fn transaction(
        &mut self,
        address: u8,
        operations: &mut [Operation<'_>],
    ) -> Result<(), ErrorKind> {
        let failed = |_| ErrorKind::NoAcknowledge(NoAcknowledgeSource::Unknown);
        self.0.set_slave_address(u16::from(address)).map_err(failed)?;
        match operations {
            // A repeated start between the two, as registers are read.
            [Operation::Write(bytes), Operation::Read(buffer)] => {
                self.0.write_read(bytes, buffer).map_err(failed)
            }
            // One transfer, as the contract of neighbouring writes says.
            [Operation::Write(register), Operation::Write(bytes)] => {
                self.0.write(&[*register, *bytes].concat()).map(drop).map_err(failed)
            }
            [Operation::Write(bytes)] => self.0.write(bytes).map(drop).map_err(failed),
            [Operation::Read(buffer)] => self.0.read(buffer).map(drop).map_err(failed),
            _ => Err(ErrorKind::Other),
        }
    }
}

/// Sleeps the thread.
#[derive(Clone, Copy)]
struct Sleep;

impl DelayNs for Sleep {
    fn delay_ns(&mut self, ns: u32) {
        std::thread::sleep(Duration::from_nanos(u64::from(ns)));
    }
}

/// Reads on a thread for blocking calls. A reading that nobody waits for any more goes on, and the
/// next one who asks gets it.
enum OnThread {
    Idle(Sensors<Shared>),
    Reading(JoinHandle<(Sensors<Shared>, Room)>),
    /// A driver has panicked; its sensors went with it.
    Lost,
}

impl RoomReader for OnThread {
    fn read(&mut self) -> BoxFuture<'_, Room> {
        Box::pin(async move {
            if let Self::Idle(_) = self
                && let Self::Idle(mut sensors) = std::mem::replace(self, Self::Lost)
            {
                *self = Self::Reading(tokio::task::spawn_blocking(move || {
                    let room = sensors.read(Sleep);
                    (sensors, room)
                }));
            }
            let Self::Reading(reading) = self else { return std::future::pending().await };
            let read = reading.await;
            *self = Self::Lost;
            match read {
                Ok((sensors, room)) => {
                    *self = Self::Idle(sensors);
                    room
                }
                Err(_) => Room::default(),
            }
        })
    }
}
