//! The room around the machine: what the sensors say of it.
//!
//! # Invariants
//! - A sensor that is not there costs one warning and nothing more: the others are read on.
//! - What could not be read is absent, never 0.

use bme68x::blocking::Bme68x;
use bme68x::interface::{I2cAddress, I2cInterface};
use bme68x::{
    Configuration, Filter, HeaterConfiguration, OperationMode, Oversampling, StandbyTime,
};
use embedded_hal::delay::DelayNs;
use embedded_hal::i2c::I2c;

use super::tsl2591;
use crate::snapshot::Room;

/// Time in which a BME680 warms its plate and measures with the settings below.
const MEASURING_MS: u32 = 250;

/// The plate on which air quality is measured, as in the maker's examples.
const PLATE: HeaterConfiguration<'static> =
    HeaterConfiguration::Forced { enabled: true, temperature_celsius: 300, duration_ms: 100 };

/// Which sensors there should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fitted {
    /// A BME680, with the lower (0x76) or the higher (0x77) of its addresses.
    pub bme680: Option<Address>,
    /// A TSL2591.
    pub tsl2591: bool,
}

/// The two addresses of a BME680, chosen by a pin of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// 0x76.
    Low,
    /// 0x77.
    High,
}

/// The sensors on one bus.
pub struct Sensors<B> {
    bus: B,
    fitted: Fitted,
    light_started: bool,
    /// Sensors that have been warned about since they last answered.
    silent: Vec<&'static str>,
}

impl<B: I2c> Sensors<B> {
    /// Sensors that nobody has asked yet.
    #[must_use]
    pub fn new(bus: B, fitted: Fitted) -> Self {
        Self { bus, fitted, light_started: false, silent: Vec::new() }
    }

    /// Reads all of them. Blocks for some 300 ms if there is a BME680; `delay` does the waiting.
    pub fn read(&mut self, delay: impl DelayNs + Copy) -> Room {
        let mut room = Room::default();
        if let Some(address) = self.fitted.bme680 {
            let read = air(&mut self.bus, address, delay);
            self.note("BME680", read.as_ref().err());
            if let Ok(Some(values)) = read {
                room.temperature_c = Some(values.temperature_celsius());
                room.humidity_percent = Some(values.humidity_percent());
                room.pressure_hpa = Some(values.pressure as f32 / 100.0);
                room.gas_ohm = (values.gas_resistance > 0).then_some(values.gas_resistance);
            }
        }
        if self.fitted.tsl2591 {
            let read = self.light(delay);
            self.note("TSL2591", read.as_ref().err());
            room.lux = read.ok().flatten();
        }
        room
    }

    /// A sensor that lost its power starts anew when it answers again.
    fn light(&mut self, mut delay: impl DelayNs + Copy) -> Result<Option<f32>, String> {
        if !self.light_started {
            tsl2591::start(&mut self.bus).map_err(|error| error.to_string())?;
            self.light_started = true;
            delay.delay_ms(120);
        }
        let read = tsl2591::lux(&mut self.bus).map_err(|error| error.to_string());
        self.light_started = read.is_ok();
        read
    }

    /// Warns once when a sensor falls silent, and says when it is back.
    fn note(&mut self, sensor: &'static str, fault: Option<&String>) {
        match (self.silent.contains(&sensor), fault) {
            (false, Some(why)) => {
                self.silent.push(sensor);
                tracing::warn!(event = "sensor.silent", sensor, why, "a sensor gives no readings");
            }
            (true, None) => {
                self.silent.retain(|silent| *silent != sensor);
                tracing::info!(event = "sensor.back", sensor, "a sensor gives readings again");
            }
            _ => {}
        }
    }
}

/// One measurement of a BME680; nothing if it was not ready in time.
fn air<B: I2c>(
    bus: &mut B,
    address: Address,
    delay: impl DelayNs + Copy,
) -> Result<Option<bme68x::FixedMeasurement>, String> {
    let address = match address {
        Address::Low => I2cAddress::Low,
        Address::High => I2cAddress::High,
    };
    let mut wait = delay;
    let measure = || {
        let mut sensor = Bme68x::new(I2cInterface::new(bus, address), delay)?;
        sensor.set_configuration(&Configuration {
            humidity_oversampling: Oversampling::X2,
            temperature_oversampling: Oversampling::X2,
            pressure_oversampling: Oversampling::X1,
            filter: Filter::Off,
            standby_time: StandbyTime::None,
        })?;
        sensor.set_heater_configuration(&PLATE)?;
        sensor.set_operation_mode(OperationMode::Forced)?;
        wait.delay_ms(MEASURING_MS);
        let fields = sensor.measurements(OperationMode::Forced)?;
        Ok(fields.as_slice().first().map(|field| field.values))
    };
    measure().map_err(|error: bme68x::Error<B::Error>| format!("{error:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::fake_bus::FakeBus;
    use super::*;

    /// Waits for nobody.
    #[derive(Clone, Copy)]
    struct AtOnce;

    impl DelayNs for AtOnce {
        fn delay_ns(&mut self, _: u32) {}
    }

    /// A BME680 in air of about 23 degrees, by its data sheet's formula for temperature.
    fn put_bme680(bus: &mut FakeBus) {
        let registers = &mut bus.device(0x76, 0xff).registers;
        registers[0xd0] = 0x61;
        for (at, coefficient) in [(0xe9, 26_000_u16), (0x8a, 26_400), (0x8e, 36_000)] {
            registers[at..at + 2].copy_from_slice(&coefficient.to_le_bytes());
        }
        registers[0x1d] = 0x80;
        let adc = 489_080_u32 << 4;
        registers[0x22..0x25].copy_from_slice(&adc.to_be_bytes()[1..]);
    }

    fn put_tsl2591(bus: &mut FakeBus) {
        let registers = &mut bus.device(tsl2591::ADDRESS, 0x1f).registers;
        registers[0x12] = 0x50;
        registers[0x14..0x18].copy_from_slice(&[0xe8, 0x03, 0x64, 0x00]);
    }

    const BOTH: Fitted = Fitted { bme680: Some(Address::Low), tsl2591: true };

    #[test]
    fn both_sensors_are_read() {
        let mut bus = FakeBus::default();
        put_bme680(&mut bus);
        put_tsl2591(&mut bus);
        let room = Sensors::new(bus, BOTH).read(AtOnce);
        let temperature = room.temperature_c.expect("temperature");
        assert!((22.9..23.1).contains(&temperature), "{room:?}");
        assert!((132.0..132.4).contains(&room.lux.expect("light")), "{room:?}");
    }

    #[test]
    fn a_sensor_that_is_not_there_is_noted_once_and_the_other_is_read_on() {
        let mut bus = FakeBus::default();
        put_tsl2591(&mut bus);
        let mut sensors = Sensors::new(bus, BOTH);
        for _ in 0..3 {
            let room = sensors.read(AtOnce);
            assert_eq!((room.temperature_c, room.humidity_percent), (None, None));
            assert!(room.lux.is_some());
            assert_eq!(sensors.silent, ["BME680"]);
        }
    }

    #[test]
    fn a_sensor_that_comes_back_is_started_again() {
        let mut bus = FakeBus::default();
        put_tsl2591(&mut bus);
        let mut sensors = Sensors::new(bus, Fitted { bme680: None, tsl2591: true });
        assert!(sensors.read(AtOnce).lux.is_some());
        sensors.bus.unplug(tsl2591::ADDRESS);
        assert_eq!(sensors.read(AtOnce), Room::default());
        assert_eq!(sensors.silent, ["TSL2591"]);
        put_tsl2591(&mut sensors.bus);
        assert!(sensors.read(AtOnce).lux.is_some());
        assert!(sensors.silent.is_empty());
        let power = sensors.bus.device(tsl2591::ADDRESS, 0x1f).registers[0];
        assert_eq!(power, 0x03, "switched on again");
    }
}
