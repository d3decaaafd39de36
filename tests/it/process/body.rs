//! The body from outside: a recorded machine heats up and cools down, and everything a person can
//! read says so.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hailo::sim::clock::Pace;
use serde_json::Value;

use super::{counting, hailo_that};
use crate::client::{get, say};
use crate::daemon::{Daemon, PATIENCE, Setup};

/// A copy of a recorded machine that the test can change.
struct Machine(PathBuf);

impl Machine {
    fn copy(name: &str, to: &Path) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/vitals").join(name);
        let root = to.join("machine");
        copy_tree(&from, &root);
        Self(root)
    }

    /// Puts the processor at a temperature.
    fn heat(&self, celsius: u32) {
        let text = format!("{}\n", celsius * 1000);
        for sensor in ["sys/class/hwmon/hwmon1/temp1_input", "sys/class/thermal/thermal_zone0/temp"]
        {
            std::fs::write(self.0.join(sensor), &text).unwrap();
        }
    }

    /// Sets the firmware's bits.
    fn throttle(&self, bits: &str) {
        let firmware = "sys/devices/platform/soc@107c000000/soc@107c000000:firmware";
        std::fs::write(self.0.join(firmware).join("get_throttled"), bits).unwrap();
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Beats every second and looks ten seconds ahead.
fn quick_body(setup: Setup, machine: &Machine) -> Setup {
    setup
        .key("vitals.root", machine.0.to_str().unwrap())
        .key("system.pulse_interval_seconds", "1")
        .key("hardware.vitals_cache_ttl_seconds", "1")
        .key("governor.window_seconds", "10")
        .key("governor.hold_seconds", "1")
}

fn state(daemon: &Daemon) -> Value {
    get(daemon.port, "/state").json()
}

/// Waits until the state is as wanted, and gives it.
#[track_caller]
fn until(daemon: &Daemon, wanted: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let state = state(daemon);
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < end, "it does not come to that: {state:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A reader of `GET /events`.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(port: u16, last: Option<u64>) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let last = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n{last}\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    /// Reads on until a happening of this kind, and gives it with all that came before it.
    fn wait(&mut self, kind: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "ended before {kind}: {seen:?}");
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let told: Value = serde_json::from_str(data).unwrap();
            if told.get("kind").is_some() {
                let found = told["kind"] == kind;
                seen.push(told);
                if found {
                    return seen;
                }
            }
        }
    }
}

fn ids(told: &[Value]) -> Vec<u64> {
    told.iter().map(|told| told["id"].as_u64().unwrap()).collect()
}

#[test]
fn a_machine_that_heats_up_goes_down_the_ladder_step_by_step_and_back() {
    let hailo = hailo_that(Pace::Instant, vec![counting("count", 300)]);
    let setup = Setup::on_hailo(hailo.addr());
    let machine = Machine::copy("pi5-healthy", setup.dir());
    machine.heat(50);
    let setup = quick_body(setup, &machine);
    let mut daemon = setup.start();
    let mut events = Events::open(daemon.port, None);
    let healthy = until(&daemon, |state| state["body"]["history"][1]["temperature_c"] == 50.0);
    assert_eq!(healthy["body"]["level"], "full");
    assert_eq!(healthy["stressed"], false);
    assert_eq!(healthy["body"]["vitals"]["board"], "Raspberry Pi 5 Model B Rev 1.0");
    assert_eq!(healthy["body"]["vitals"]["cpu_pressure_percent"], Value::Null);
    assert!(healthy["vitals_describe"].as_str().unwrap().contains("50 °C"));
    let long = say(daemon.port, "main", "please count").json();
    assert_eq!(long["tokens"], 300, "{long}");

    // 59 °C, and 59 + 9 are expected: 7 below the limit of 75.
    machine.heat(59);
    until(&daemon, |state| state["body"]["level"] == "short");
    let short = say(daemon.port, "main", "please count again").json();
    assert_eq!((&short["tokens"], &short["cut"]), (&96.into(), &true.into()), "{short}");

    machine.throttle("4");
    until(&daemon, |state| state["body"]["level"] == "cheap");

    machine.heat(76);
    let hot = until(&daemon, |state| state["body"]["level"] == "no_model");
    assert_eq!(hot["stressed"], true);
    let prompts = hailo.log().len();
    let resting = say(daemon.port, "main", "are you there?").json();
    assert_eq!(resting["error"], "resting", "{resting}");
    let words = resting["reply"].as_str().unwrap();
    assert!(words.contains("rest") && words.contains("75 °C is the limit"), "{words}");
    assert_eq!(hailo.log().len(), prompts, "no model was asked");
    let status = setup.run(&["status", "--state", setup.state().to_str().unwrap()]);
    let table = String::from_utf8(status.stdout).unwrap();
    assert!(table.contains("governor  no_model: ") && table.contains("76 °C"), "{table}");

    machine.throttle("40000");
    machine.heat(45);
    until(&daemon, |state| state["body"]["level"] == "full" && state["stressed"] == false);
    let told = events.wait("stress.left");
    let steps: Vec<&str> = told
        .iter()
        .filter(|told| told["kind"] == "governor.stepped")
        .map(|told| told["body"]["to"].as_str().unwrap())
        .collect();
    assert_eq!(steps[..3], ["short", "cheap", "no_model"], "{told:#?}");
    let left = &told.last().unwrap()["body"];
    assert_eq!(left["peak_temperature_c"], 76.0);
    let numbers = ids(&told);
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");

    let metrics = get(daemon.port, "/metrics");
    assert!(metrics.text().contains("crayfish_cpu_temperature_celsius 45\n"), "{metrics:?}");
    assert!(metrics.text().contains("crayfish_stress_episodes_total 1\n"));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_reader_that_was_away_misses_nothing_not_even_a_restart() {
    let setup = Setup::new();
    let machine = Machine::copy("pi5-healthy", setup.dir());
    machine.heat(45);
    let setup = quick_body(setup, &machine);
    let mut daemon = setup.start();
    machine.heat(76);
    let seen = Events::open(daemon.port, None).wait("stress.entered");
    let last = *ids(&seen).last().unwrap();
    // Away.
    machine.heat(40);
    // Another reader hears of it once it is stored; the state says it a moment before.
    Events::open(daemon.port, Some(last)).wait("stress.left");
    daemon.kill();
    let mut daemon = setup.start();
    machine.heat(77);
    until(&daemon, |state| state["stressed"] == true);
    let missed = Events::open(daemon.port, Some(last)).wait("stress.entered");
    let kinds: Vec<&str> = missed.iter().map(|told| told["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"stress.left"), "told while nobody read: {kinds:?}");
    assert!(ids(&missed)[0] > last, "nothing comes twice");
    // A number that this database never gave.
    let mut stranger = Events::open(daemon.port, Some(1_000_000));
    assert_eq!(stranger.wait("stress.left").len(), {
        let all = Events::open(daemon.port, None).wait("stress.left");
        all.len()
    });
    let state = setup.state().to_str().unwrap();
    let trace = setup.run(&["trace", "events", "--since", "24h", "--jsonl", "--state", state]);
    assert!(trace.status.success());
    let lines: Vec<Value> = String::from_utf8(trace.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let entered = lines.iter().filter(|told| told["kind"] == "stress.entered").count();
    assert_eq!(entered, 2, "{lines:#?}");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn forced_stress_is_there_from_the_first_beat() {
    let setup = Setup::new().env("CRAYFISH_FORCE_STRESS", "1");
    let mut daemon = setup.start();
    let state = until(&daemon, |state| state["stressed"] == true);
    assert_eq!(state["body"]["level"], "full", "forced stress is no heat");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn vitals_json_is_there_whole_with_the_seeds_names() {
    let setup = Setup::new();
    let mut daemon = setup.start();
    let path = setup.state().join("run/state/vitals.json");
    let end = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < end, "no {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(file["vitals"]["temp"], 48.3);
    assert_eq!(file["brain"]["online"], false);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_night_that_began_does_not_begin_again_after_a_restart() {
    // Whatever the hour is, it is one of sleep.
    let first_half = jiff::Timestamp::now().as_second().rem_euclid(86_400) < 43_200;
    let (wakes, sleeps) = if first_half { ("14:00", "22:00") } else { ("02:00", "10:00") };
    let setup = Setup::new()
        .key("system.timezone", "UTC")
        .key("system.duty_start", &format!("\"{wakes}\""))
        .key("system.sleep_start", &format!("\"{sleeps}\""));
    for nights in [1, 0, 0] {
        let mut daemon = setup.start();
        let state = until(&daemon, |state| state["sleeping"] == true);
        assert_eq!(state["body"]["counters"]["sleeps"], nights);
        assert_eq!(daemon.stop(), 0);
    }
}
