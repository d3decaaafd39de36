//! The reader against recorded trees. The trees are Pis and a laptop as `tests/golden/vitals` has
//! them; what each must give is here.

use std::path::PathBuf;

use super::*;
use crate::snapshot::body::Throttling;

fn tree(name: &str) -> Reader {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/vitals").join(name);
    assert!(root.is_dir(), "{}", root.display());
    Reader::new(&root, Path::new("/var/lib/crayfish"))
}

fn read(name: &str) -> VitalSigns {
    tree(name).sample()
}

#[test]
fn a_healthy_pi_tells_everything_but_what_its_kernel_keeps_back() {
    let vitals = read("pi5-healthy");
    let expected = VitalSigns {
        board: Some("Raspberry Pi 5 Model B Rev 1.0".into()),
        machine_uptime_s: Some(273_641.15),
        cpu_percent: None,
        load_1m: Some(0.31),
        load_5m: Some(0.22),
        load_15m: Some(0.18),
        cpu_mhz: Some(1500),
        cpu_mhz_max: Some(2400),
        ram_percent: Some(27.065_245),
        ram_total_bytes: Some(8_255_488 * 1024),
        ram_available_bytes: Some(6_021_120 * 1024),
        swap_used_bytes: Some(0),
        cma_free_bytes: Some(61_216 * 1024),
        rss_bytes: Some(10_752 * 1024),
        page_bytes: Some(4096),
        cpu_pressure_percent: None,
        memory_pressure_percent: None,
        memory_stall_percent: None,
        io_pressure_percent: None,
        temperature_c: Some(48.3),
        under_voltage: Some(false),
        throttling: Some(Throttling::default()),
        supply_ma: Some(5000),
        fan_rpm: Some(2100),
        fan_percent: Some(29.411_764),
        card_written_bytes: Some(4_718_592 * 512),
        card_written_per_day_bytes: Some(762_807_094),
        disk_free_bytes: Some(21_474_836_480),
        disk_total_bytes: Some(31_138_512_896),
        disk_read_only: Some(false),
        clock_synchronised: Some(true),
        npu_present: Some(true),
        npu_node: Some("hailo0".into()),
        npu_driver: Some("5.1.1".into()),
        npu_link: Some("8.0 GT/s PCIe".into()),
    };
    assert_eq!(vitals, expected);
}

#[test]
fn a_hot_pi_is_throttled_and_under_pressure() {
    let vitals = read("pi5-hot");
    assert_eq!(vitals.temperature_c, Some(81.7));
    let bits = vitals.throttling.unwrap();
    assert!(bits.soft_limit && bits.soft_limit_before && bits.throttled_before);
    assert!(!bits.throttled && !bits.under_voltage);
    assert_eq!(vitals.cpu_pressure_percent, Some(38.0));
    assert_eq!(vitals.memory_stall_percent, Some(0.4));
    assert_eq!(vitals.fan_percent, Some(100.0));
}

#[test]
fn a_weak_supply_is_seen_and_named() {
    let vitals = read("pi5-under-voltage");
    assert_eq!(vitals.under_voltage, Some(true));
    assert!(vitals.throttling.unwrap().throttled);
    assert_eq!(vitals.supply_ma, Some(3000));
    assert_eq!(words::troubles(&vitals).len(), 2);
}

#[test]
fn a_newer_kernel_has_no_bits_and_its_driver_another_node() {
    for name in ["pi5-16k-pages", "pi5-npu-5.3"] {
        let vitals = read(name);
        assert_eq!(vitals.page_bytes, Some(16_384), "{name}");
        assert_eq!(vitals.throttling, None, "absent, not all zero");
        assert_eq!(vitals.under_voltage, Some(false), "the alarm tells it all the same");
        assert_eq!(vitals.npu_node.as_deref(), Some("h1x-0"));
        assert_eq!(vitals.npu_driver.as_deref(), Some("5.3.0"));
    }
}

#[test]
fn a_worn_card_and_a_missing_hat_are_seen() {
    let vitals = read("pi5-read-only");
    assert_eq!(vitals.disk_read_only, Some(true));
    assert_eq!(vitals.clock_synchronised, Some(false));
    assert_eq!((vitals.npu_present, vitals.npu_driver), (Some(false), None));
}

#[test]
fn a_laptop_without_a_sensor_of_its_processor_has_no_temperature() {
    let vitals = read("laptop");
    assert_eq!(vitals.temperature_c, None, "the mainboard's sensor is not the processor's");
    assert_eq!((vitals.fan_rpm, vitals.throttling, vitals.supply_ma), (None, None, None));
    assert_eq!(vitals.clock_synchronised, None, "nobody says");
    assert_eq!(vitals.card_written_bytes, Some(700 * 512));
    assert_eq!(vitals.card_written_per_day_bytes, None, "half an hour is no day");
    assert!(vitals.ram_percent.is_some());
}

#[test]
fn a_machine_that_tells_nothing_gives_nothing() {
    assert_eq!(read("empty"), VitalSigns::default());
    let nowhere = Reader::new(Path::new("/nonexistent"), Path::new("/")).sample();
    assert_eq!(nowhere, VitalSigns::default());
}

#[test]
fn absent_readings_are_null_outside_and_never_zero() {
    let json = serde_json::to_value(read("empty")).unwrap();
    let fields = json.as_object().unwrap();
    assert!(fields.len() > 30);
    assert!(fields.values().all(serde_json::Value::is_null), "{json}");
}

/// This machine, whatever it is: what every Linux tells.
#[test]
fn this_machine_can_be_read() {
    let mut reader = Reader::new(Path::new("/"), &std::env::temp_dir());
    let first = reader.sample();
    assert_eq!(first.cpu_percent, None, "a share needs two readings");
    assert!(first.ram_percent.is_some() && first.rss_bytes.is_some());
    assert!(first.page_bytes.is_some() && first.disk_free_bytes.is_some());
    let second = reader.sample();
    assert!(second.cpu_percent.is_none_or(|share| (0.0..=100.0).contains(&share)));
}
