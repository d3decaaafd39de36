//! Section `gpio`: what is connected to the pins of a Raspberry Pi (pure).

use std::time::Duration;

use crate::config::channels::Channels;
use crate::config::key::{AnyKey, Key};
use crate::config::values::Values;

/// Pins of the header, by their BCM numbers.
const PINS: (u32, u32) = (0, 27);

/// The two addresses of a BME680.
const BME680_ADDRESSES: &[&str] = &["0x76", "0x77"];

/// The status light.
pub const LED_PIN: Key<Option<u32>> = Key::maybe_count(
    "gpio.led_pin",
    PINS,
    "",
    "Pin of the status light, by its BCM number: steady when all is well, slower and darker the \
     less the governor allows. null: none.",
);

/// The button.
pub const BUTTON_PIN: Key<Option<u32>> = Key::maybe_count(
    "gpio.button_pin",
    PINS,
    "",
    "Pin of a button to ground. A short press has the state logged and the light blink, one of 3 \
     seconds shuts crayfish down. null: none.",
);

/// The motion sensor.
pub const PIR_PIN: Key<Option<u32>> = Key::maybe_count(
    "gpio.pir_pin",
    PINS,
    "",
    "Pin of a motion sensor (PIR) that is high when somebody moves. null: none.",
);

/// The bus.
pub const I2C_BUS: Key<u32> =
    Key::count("gpio.i2c_bus", 1, (0, 255), "", "Number of the I2C bus; 1 is /dev/i2c-1.");

/// The air.
pub const BME680: Key<Option<&'static str>> = Key::maybe_choice(
    "gpio.bme680",
    BME680_ADDRESSES,
    "Address of a BME680 (temperature, humidity, pressure, air quality). null: none.",
);

/// The light of the room.
pub const TSL2591: Key<bool> =
    Key::flag("gpio.tsl2591", false, "Whether there is a TSL2591 (light).");

/// How often.
pub const READ_EVERY: Key<Duration> = Key::seconds(
    "gpio.read_every_s",
    60.0,
    (5.0, 3600.0),
    "Time between two readings of the sensors.",
);

/// From when on a room is hot.
pub const HOT_FROM: Key<f64> = Key::number(
    "gpio.hot_from_celsius",
    30.0,
    (0.0, 60.0),
    "degrees Celsius",
    "Temperature from which on the room counts as hot.",
);

/// What a hot room does.
pub const HOT_ROOM: Key<Channels> = Key::channels(
    "gpio.hot_room",
    "anger 0.04, calm -0.04",
    "What each reading of a hot room adds to the mood.",
);

/// What a visitor does.
pub const MOTION: Key<Channels> = Key::channels(
    "gpio.motion",
    "excitement 0.06",
    "What somebody who moves in the room adds to the mood, at most once a minute.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[
    &LED_PIN,
    &BUTTON_PIN,
    &PIR_PIN,
    &I2C_BUS,
    &BME680,
    &TSL2591,
    &READ_EVERY,
    &HOT_FROM,
    &HOT_ROOM,
    &MOTION,
];

/// Settings of the section.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpio {
    /// The status light's pin.
    pub led_pin: Option<u8>,
    /// The button's pin.
    pub button_pin: Option<u8>,
    /// The motion sensor's pin.
    pub pir_pin: Option<u8>,
    /// The I2C bus.
    pub i2c_bus: u8,
    /// The BME680's address, `0x76` or `0x77`.
    pub bme680: Option<&'static str>,
    /// Whether there is a TSL2591.
    pub tsl2591: bool,
    /// Time between two readings.
    pub read_every: Duration,
    /// Temperature from which on the room is hot, in degrees Celsius.
    pub hot_from_c: f32,
    /// What each reading of a hot room adds to the mood.
    pub hot_room: Channels,
    /// What motion adds to the mood.
    pub motion: Channels,
}

impl Gpio {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        let pin = |key| values.get::<Option<u32>>(key).and_then(|pin| u8::try_from(pin).ok());
        Self {
            led_pin: pin(&LED_PIN),
            button_pin: pin(&BUTTON_PIN),
            pir_pin: pin(&PIR_PIN),
            i2c_bus: u8::try_from(values.get(&I2C_BUS)).unwrap_or(1),
            bme680: values.get(&BME680),
            tsl2591: values.get(&TSL2591),
            read_every: values.get(&READ_EVERY),
            hot_from_c: values.get(&HOT_FROM) as f32,
            hot_room: values.get(&HOT_ROOM),
            motion: values.get(&MOTION),
        }
    }
}
