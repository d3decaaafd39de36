//! Temperature, voltage, throttling, fan and clock, from sysfs.
//!
//! Sensors are found by their names: the number of an hwmon device depends on the order in which
//! drivers came up, and the first sensor of a Pi 5 may be its disk or its I/O chip.

use super::tree::Tree;
use crate::snapshot::body::Throttling;

/// Names of hwmon devices that measure the processor: a Pi's, then those of PCs.
const PROCESSOR_SENSORS: [&str; 5] =
    ["cpu_thermal", "soc_thermal", "coretemp", "k10temp", "zenpower"];

/// Types of thermal zones that measure the processor.
const PROCESSOR_ZONES: [&str; 4] = ["cpu-thermal", "cpu_thermal", "soc-thermal", "x86_pkg_temp"];

/// What a processor's sensor can honestly say, in thousandths of a degree. A sensor that is not
/// connected tells 0 or its most negative number.
const TEMPERATURES_MC: std::ops::RangeInclusive<i64> = 1..=150_000;

/// The named hwmon devices of a tree.
pub(super) struct Sensors<'a> {
    tree: &'a Tree,
    /// Name and directory.
    devices: Vec<(String, String)>,
}

impl<'a> Sensors<'a> {
    /// Looks for devices: some ten small files.
    pub(super) fn find(tree: &'a Tree) -> Self {
        let devices = tree.names("sys/class/hwmon").into_iter().filter_map(|entry| {
            let directory = format!("sys/class/hwmon/{entry}");
            Some((tree.line(&format!("{directory}/name"))?, directory))
        });
        Self { tree, devices: devices.collect() }
    }

    fn device(&self, name: &str) -> Option<&str> {
        self.devices.iter().find(|(known, _)| known == name).map(|(_, at)| at.as_str())
    }

    /// Temperature of the processor, in degrees Celsius.
    pub(super) fn temperature_c(&self) -> Option<f32> {
        let by_name = PROCESSOR_SENSORS.iter().find_map(|name| {
            let directory = self.device(name)?;
            celsius(self.tree.number(&format!("{directory}/temp1_input"))?)
        });
        by_name.or_else(|| self.zone_c())
    }

    fn zone_c(&self) -> Option<f32> {
        self.tree.names("sys/class/thermal").into_iter().find_map(|zone| {
            let at = format!("sys/class/thermal/{zone}");
            let kind = self.tree.line(&format!("{at}/type"))?;
            if !zone.starts_with("thermal_zone") || !PROCESSOR_ZONES.contains(&kind.as_str()) {
                return None;
            }
            celsius(self.tree.number(&format!("{at}/temp"))?)
        })
    }

    /// The supply's alarm: the kernel's own look at the voltage, every two seconds.
    pub(super) fn under_voltage(&self) -> Option<bool> {
        let directory = self.device("rpi_volt")?;
        match self.tree.number::<u8>(&format!("{directory}/in0_lcrit_alarm"))? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Turns a minute, and how hard it is driven in percent.
    pub(super) fn fan(&self) -> (Option<u32>, Option<f32>) {
        let Some(directory) = self.device("pwmfan") else { return (None, None) };
        let drive = self.tree.number::<u8>(&format!("{directory}/pwm1"));
        let percent = drive.map(|drive| f32::from(drive) * 100.0 / 255.0);
        (self.tree.number(&format!("{directory}/fan1_input")), percent)
    }
}

/// The firmware's bits. The file is deprecated and absent from newer kernels; its place has the
/// address of the chip's bus in it on a Pi 5 and none on older boards.
pub(super) fn throttling(tree: &Tree) -> Option<Throttling> {
    let platform = "sys/devices/platform";
    tree.names(platform).into_iter().filter(|name| name.starts_with("soc")).find_map(|soc| {
        let firmware = format!("{soc}:firmware");
        bits(&tree.line(&format!("{platform}/{soc}/{firmware}/get_throttled"))?)
    })
}

/// Clock of the first processor and its fastest, in MHz.
pub(super) fn clock_mhz(tree: &Tree) -> (Option<u32>, Option<u32>) {
    let mhz = |file: &str| {
        let khz: u32 = tree.number(&format!("sys/devices/system/cpu/cpu0/cpufreq/{file}"))?;
        Some(khz / 1000)
    };
    (mhz("scaling_cur_freq"), mhz("cpuinfo_max_freq"))
}

/// What the supply has promised, in milliamperes: a number of the device tree, big end first.
pub(super) fn supply_ma(tree: &Tree) -> Option<u32> {
    let bytes = tree.bytes("proc/device-tree/chosen/power/max_current")?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?)).filter(|ma| *ma > 0)
}

fn celsius(thousandths: i64) -> Option<f32> {
    TEMPERATURES_MC.contains(&thousandths).then_some(thousandths as f32 / 1000.0)
}

/// Reads the bits: hexadecimal, with or without `0x`. Bits 0 to 3 are now, 16 to 19 since the
/// start (the firmware's documentation of `get_throttled`).
fn bits(text: &str) -> Option<Throttling> {
    let bits = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?;
    let has = |bit: u32| bits & (1 << bit) != 0;
    Some(Throttling {
        under_voltage: has(0),
        frequency_capped: has(1),
        throttled: has(2),
        soft_limit: has(3),
        under_voltage_before: has(16),
        frequency_capped_before: has(17),
        throttled_before: has(18),
        soft_limit_before: has(19),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bits_are_now_and_before() {
        let now = bits("50005").unwrap();
        assert!(now.under_voltage && now.throttled && !now.frequency_capped && !now.soft_limit);
        assert!(now.under_voltage_before && now.throttled_before && !now.soft_limit_before);
        assert_eq!(bits("0x0\n"), Some(Throttling::default()));
        for broken in ["", "0x", "zz", "-1", "123456789"] {
            assert_eq!(bits(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_sensor_that_is_not_connected_is_absent() {
        assert_eq!(celsius(48_300), Some(48.3));
        for odd in [0, -127_000, 150_001, i64::MIN, i64::MAX] {
            assert_eq!(celsius(odd), None);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_bits_or_nothing(text: String) {
            let _ = bits(&text);
        }
    }
}
