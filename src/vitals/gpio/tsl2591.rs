//! TSL2591, a light sensor by ams, over I2C. Registers, bits and the formula for lux are those of
//! its data sheet (ams DS000338) and of the maker's application note DN40; the driver crates of it
//! are unmaintained.

use embedded_hal::i2c::I2c;

/// The sensor's only address.
pub const ADDRESS: u8 = 0x29;

/// Set in every byte that names a register.
const COMMAND: u8 = 0xa0;
const ENABLE: u8 = 0x00;
const CONTROL: u8 = 0x01;
const ID: u8 = 0x12;
const CHANNEL_0: u8 = 0x14;

/// What the identity register holds.
const IS_TSL2591: u8 = 0x50;

/// Power on, light measurement on.
const ON: u8 = 0x03;

/// Medium gain (25 times), one measurement in 100 ms: from dusk to a bright room, and not full
/// before direct sun.
const MEDIUM_100_MS: u8 = 0x10;
const GAIN: f32 = 25.0;
const INTEGRATION_MS: f32 = 100.0;

/// Counts at which a channel is full after 100 ms.
const FULL: u16 = 0x8fff;

/// Lux of one count at gain 1 and 1 ms, from DN40.
const DEVICE_FACTOR: f32 = 408.0;

/// Why there is no reading.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Dark<E: std::fmt::Debug> {
    /// Nobody answers at the address.
    #[error("it does not answer ({0:?})")]
    Bus(E),
    /// Somebody else is at the address.
    #[error("its identity is {0:#04x}, not 0x50")]
    Other(u8),
}

/// Starts measuring.
///
/// # Errors
/// Nobody or somebody else is at the address.
pub fn start<B: I2c>(bus: &mut B) -> Result<(), Dark<B::Error>> {
    let mut id = [0];
    bus.write_read(ADDRESS, &[COMMAND | ID], &mut id).map_err(Dark::Bus)?;
    if id[0] != IS_TSL2591 {
        return Err(Dark::Other(id[0]));
    }
    bus.write(ADDRESS, &[COMMAND | CONTROL, MEDIUM_100_MS]).map_err(Dark::Bus)?;
    bus.write(ADDRESS, &[COMMAND | ENABLE, ON]).map_err(Dark::Bus)
}

/// The newest measurement, in lux; nothing while a channel is full, in direct sun.
///
/// # Errors
/// The sensor no longer answers.
pub fn lux<B: I2c>(bus: &mut B) -> Result<Option<f32>, Dark<B::Error>> {
    let mut counts = [0; 4];
    bus.write_read(ADDRESS, &[COMMAND | CHANNEL_0], &mut counts).map_err(Dark::Bus)?;
    let all = u16::from_le_bytes([counts[0], counts[1]]);
    let infrared = u16::from_le_bytes([counts[2], counts[3]]);
    Ok(in_lux(all, infrared))
}

/// The formula: visible light, less the more of it is infrared.
fn in_lux(all: u16, infrared: u16) -> Option<f32> {
    if all >= FULL || infrared >= FULL {
        return None;
    }
    if all == 0 {
        return Some(0.0);
    }
    let (all, infrared) = (f32::from(all), f32::from(infrared));
    let counts_per_lux = INTEGRATION_MS * GAIN / DEVICE_FACTOR;
    Some(((all - infrared) * (1.0 - infrared / all) / counts_per_lux).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::super::fake_bus::FakeBus;
    use super::*;

    #[test]
    fn a_sensor_is_started_and_its_counts_become_lux() {
        let mut bus = FakeBus::default();
        bus.device(ADDRESS, 0x1f).registers[usize::from(ID)] = IS_TSL2591;
        start(&mut bus).unwrap();
        let device = bus.device(ADDRESS, 0x1f);
        assert_eq!(device.registers[usize::from(ENABLE)], ON);
        device.registers[0x14..0x18].copy_from_slice(&[0xe8, 0x03, 0x64, 0x00]);
        let lux = lux(&mut bus).unwrap().unwrap();
        assert!((lux - 900.0 * 0.9 * 408.0 / 2500.0).abs() < 0.01, "{lux}");
    }

    #[test]
    fn darkness_is_0_and_too_much_light_is_no_reading() {
        assert_eq!(in_lux(0, 0), Some(0.0));
        assert_eq!(in_lux(FULL, 10), None);
        // More infrared than light is noise near darkness.
        assert!(in_lux(10, 20).is_some_and(|lux| lux >= 0.0));
    }

    #[test]
    fn an_empty_address_and_a_stranger_are_told_apart() {
        let mut bus = FakeBus::default();
        assert!(matches!(start(&mut bus), Err(Dark::Bus(_))));
        bus.device(ADDRESS, 0x1f);
        assert_eq!(start(&mut bus), Err(Dark::Other(0)));
    }
}
