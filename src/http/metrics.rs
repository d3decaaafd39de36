//! `GET /metrics`: the state in Prometheus' text format, version 0.0.4 (pure).
//!
//! Names follow its conventions: base units (seconds, bytes, celsius, ratios of 1), `_total` for
//! what only rises. A reading that is absent has no line.

use std::fmt::Write as _;

use crate::snapshot::body::{Level, VitalSigns};
use crate::snapshot::{BackendState, Snapshot};

/// A family being written.
struct Page(String);

/// The whole page.
pub(super) fn page(now: &Snapshot) -> String {
    let mut page = Page(String::new());
    house(&mut page, now);
    backends(&mut page, &now.backends);
    body(&mut page, now);
    machine(&mut page, &now.body.vitals);
    page.0
}

fn house(page: &mut Page, now: &Snapshot) {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("designation", &now.designation)];
    page.family("crayfish_info", "gauge", "The program and its name.");
    page.sample("crayfish_info", &labels, Some(1.0));
    page.gauge("crayfish_uptime_seconds", "Since the daemon is up.", Some(now.uptime_s as f64));
    page.gauge("crayfish_inference_online", "A model can answer now.", flag(Some(now.online)));
    page.gauge("crayfish_turns_active", "Turns that run or wait.", Some(now.turns as f64));
    page.gauge("crayfish_quiet_seconds", "Since the last message.", Some(now.quiet.as_secs_f64()));
    page.gauge("crayfish_store_writable", "The database can be written.", flag(Some(now.store_ok)));
    page.gauge(
        "crayfish_notices",
        "Sentences about what is degraded.",
        Some(now.notices.len() as f64),
    );
}

fn backends(page: &mut Page, backends: &[BackendState]) {
    type Read = fn(&BackendState) -> Option<f64>;
    let families: [(&str, &str, Read); 4] = [
        ("crayfish_backend_usable", "The breaker is closed.", |backend| {
            flag(Some(backend.breaker == "closed"))
        }),
        ("crayfish_backend_degraded", "It decodes much slower than it used to.", |backend| {
            flag(Some(backend.degraded))
        }),
        ("crayfish_backend_decode_tokens_per_second", "Measured decode rate.", |backend| {
            backend.tokens_per_s.map(f64::from)
        }),
        ("crayfish_backend_healthy_tokens_per_second", "Decode rate when it is well.", |backend| {
            backend.healthy_tokens_per_s.map(f64::from)
        }),
    ];
    for (name, help, read) in families {
        page.family(name, "gauge", help);
        for backend in backends {
            let labels =
                [("backend", &*backend.name), ("slot", backend.slot), ("model", &*backend.model)];
            page.sample(name, &labels, read(backend));
        }
    }
}

fn body(page: &mut Page, now: &Snapshot) {
    let body = &now.body;
    let counters = body.counters;
    page.counter("crayfish_beats_total", "Beats of the heart.", Some(counters.pulses as f64));
    page.counter(
        "crayfish_stress_episodes_total",
        "Times under stress.",
        Some(counters.stress as f64),
    );
    page.counter(
        "crayfish_idle_periods_total",
        "Times nobody was there.",
        Some(counters.idle as f64),
    );
    page.counter("crayfish_sleeps_total", "Nights.", Some(counters.sleeps as f64));
    page.gauge("crayfish_stress_active", "Under stress now.", flag(Some(body.stress.active)));
    page.gauge("crayfish_sleeping", "It is the time of sleep.", flag(Some(body.sleeping)));
    page.family("crayfish_governor_level", "gauge", "1 for the level in force, 0 for the others.");
    for level in Level::ALL {
        let on = flag(Some(level == body.order.level));
        page.sample("crayfish_governor_level", &[("level", level.as_str())], on);
    }
    if let Some(mood) = &now.mood {
        page.family("crayfish_mood_ratio", "gauge", "Channels of the mood.");
        let channels = [
            ("joy", mood.joy),
            ("anger", mood.anger),
            ("sorrow", mood.sorrow),
            ("excitement", mood.excitement),
            ("calm", mood.calm),
        ];
        for (channel, value) in channels {
            page.sample("crayfish_mood_ratio", &[("channel", channel)], Some(f64::from(value)));
        }
    }
}

fn machine(page: &mut Page, v: &VitalSigns) {
    let float = |value: Option<f32>| value.map(f64::from);
    let ratio = |percent: Option<f32>| percent.map(|percent| f64::from(percent) / 100.0);
    let count = |value: Option<u64>| value.map(|value| value as f64);
    let mhz = |value: Option<u32>| value.map(|value| f64::from(value) * 1e6);
    let gauges = [
        ("crayfish_cpu_temperature_celsius", "The processor.", float(v.temperature_c)),
        ("crayfish_cpu_busy_ratio", "Time at work since the last reading.", ratio(v.cpu_percent)),
        ("crayfish_cpu_frequency_hertz", "Clock of the first processor.", mhz(v.cpu_mhz)),
        ("crayfish_load1", "Load average, 1 min.", float(v.load_1m)),
        ("crayfish_load5", "Load average, 5 min.", float(v.load_5m)),
        ("crayfish_load15", "Load average, 15 min.", float(v.load_15m)),
        ("crayfish_memory_used_ratio", "Memory that is not available.", ratio(v.ram_percent)),
        ("crayfish_memory_total_bytes", "All memory.", count(v.ram_total_bytes)),
        ("crayfish_memory_available_bytes", "Available memory.", count(v.ram_available_bytes)),
        ("crayfish_swap_used_bytes", "Swap in use.", count(v.swap_used_bytes)),
        ("crayfish_cma_free_bytes", "Free contiguous memory.", count(v.cma_free_bytes)),
        ("process_resident_memory_bytes", "Memory of the daemon.", count(v.rss_bytes)),
        ("crayfish_fan_speed_rpm", "Turns of the fan a minute.", v.fan_rpm.map(f64::from)),
        ("crayfish_fan_drive_ratio", "How hard the fan is driven.", ratio(v.fan_percent)),
        ("crayfish_under_voltage", "The supply is too weak now.", flag(v.under_voltage)),
        ("crayfish_disk_free_bytes", "Free where the state is.", count(v.disk_free_bytes)),
        ("crayfish_disk_size_bytes", "Size of that disk.", count(v.disk_total_bytes)),
        ("crayfish_disk_read_only", "That disk is read-only.", flag(v.disk_read_only)),
        ("crayfish_clock_synchronised", "The clock follows a server.", flag(v.clock_synchronised)),
        ("crayfish_npu_present", "A Hailo device can be used.", flag(v.npu_present)),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value);
    }
    let written = count(v.card_written_bytes);
    page.counter(
        "crayfish_card_written_bytes_total",
        "Written since the machine started.",
        written,
    );
    let name = "crayfish_pressure_ratio";
    page.family(name, "gauge", "Share of the last 10 s in which work waited (PSI).");
    for (resource, share, value) in [
        ("cpu", "some", v.cpu_pressure_percent),
        ("memory", "some", v.memory_pressure_percent),
        ("memory", "full", v.memory_stall_percent),
        ("io", "some", v.io_pressure_percent),
    ] {
        page.sample(name, &[("resource", resource), ("share", share)], ratio(value));
    }
    let Some(bits) = v.throttling else { return };
    page.family("crayfish_throttled", "gauge", "The firmware's bits, now.");
    for (kind, on) in [
        ("under_voltage", bits.under_voltage),
        ("frequency_capped", bits.frequency_capped),
        ("throttled", bits.throttled),
        ("soft_limit", bits.soft_limit),
    ] {
        page.sample("crayfish_throttled", &[("kind", kind)], flag(Some(on)));
    }
}

fn flag(on: Option<bool>) -> Option<f64> {
    on.map(|on| if on { 1.0 } else { 0.0 })
}

impl Page {
    fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: Option<f64>) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    // Writing to a string cannot fail.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: Option<f64>) {
        let Some(value) = value else { return };
        self.0.push_str(name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::body::{Body, Throttling};

    /// Every line is a comment or `name{labels} number`, every sample has its family before it,
    /// every family has a help and a type, and no series comes twice.
    fn parse(page: &str) -> Vec<(String, f64)> {
        let (mut families, mut series) = (std::collections::BTreeMap::new(), Vec::new());
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(
                    families.insert(name.to_owned(), kind.to_owned()).is_none(),
                    "{name} twice"
                );
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            } else if !line.starts_with("# HELP ") {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let family = name.split('{').next().unwrap();
                assert!(families.contains_key(family), "{line}");
                assert!(series.iter().all(|(known, _)| known != name), "{name} twice");
                series.push((name.to_owned(), value.parse().unwrap()));
            }
        }
        series
    }

    #[test]
    fn what_is_there_is_told_in_base_units_and_what_is_absent_is_not() {
        let vitals = VitalSigns {
            temperature_c: Some(48.5),
            ram_percent: Some(25.0),
            cpu_mhz: Some(1500),
            throttling: Some(Throttling { throttled: true, ..Throttling::default() }),
            ..VitalSigns::default()
        };
        let now = Snapshot {
            designation: "A \"crab\"\\".into(),
            backends: vec![BackendState {
                name: "hailo".into(),
                slot: "primary",
                model: "qwen2:1.5b".into(),
                breaker: "closed",
                tokens_per_s: Some(7.5),
                ..BackendState::default()
            }],
            body: Body { vitals, ..Body::default() },
            ..Snapshot::default()
        };
        let series = parse(&page(&now));
        let value = |name: &str| series.iter().find(|(known, _)| known == name).map(|s| s.1);
        assert_eq!(value("crayfish_cpu_temperature_celsius"), Some(48.5));
        assert_eq!(value("crayfish_memory_used_ratio"), Some(0.25));
        assert_eq!(value("crayfish_cpu_frequency_hertz"), Some(1.5e9));
        assert_eq!(value("crayfish_throttled{kind=\"throttled\"}"), Some(1.0));
        assert_eq!(value("crayfish_governor_level{level=\"full\"}"), Some(1.0));
        assert_eq!(value("crayfish_fan_speed_rpm"), None);
        assert_eq!(value("crayfish_npu_present"), None, "unknown is not 0");
        let labels = "{backend=\"hailo\",slot=\"primary\",model=\"qwen2:1.5b\"}";
        let rate = format!("crayfish_backend_decode_tokens_per_second{labels}");
        assert_eq!(value(&rate), Some(7.5));
        assert!(page(&now).contains("designation=\"A \\\"crab\\\"\\\\\""));
    }

    #[test]
    fn a_machine_that_tells_nothing_still_gives_a_page() {
        assert!(parse(&page(&Snapshot::default())).len() > 10);
    }
}
