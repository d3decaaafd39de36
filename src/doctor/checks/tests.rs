//! The checks, on recorded machines and made-up facts.

use std::path::Path;

use crate::config::sections::hardware::Backend;
use crate::doctor::facts::{Daemon, State, Swap};
use crate::doctor::servers::Server;
use crate::doctor::{Checked, Facts, Finding, Mend, Severity, examine, worst};
use crate::event::feed::Told;
use crate::session::wire::Status;

fn machine(name: &str) -> Facts {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/vitals").join(name);
    // A daemon that runs and is well, so that the machine alone is judged.
    let status = Status { store_ok: true, ..Status::default() };
    Facts {
        daemon: Daemon::Answers(Box::new(status), Vec::new()),
        ..Facts::of_machine(&root, Path::new("/nowhere-at-all"))
    }
}

fn server(backend: Backend, models: Result<&[&str], &str>) -> Server {
    let (url, model) = match backend {
        Backend::Hailo => ("http://127.0.0.1:8000", "qwen2.5-instruct:1.5b"),
        _ => ("http://127.0.0.1:11434", "qwen2.5:1.5b"),
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let models = models.map(names).map_err(str::to_owned);
    Server { backend, url: url.to_owned(), model: model.to_owned(), models }
}

/// What a check found, as severity and words.
#[track_caller]
fn found(facts: &Facts, check: &str) -> Vec<(Severity, String)> {
    of(facts, check).into_iter().map(|finding| (finding.severity, finding.what)).collect()
}

#[track_caller]
fn of(facts: &Facts, check: &str) -> Vec<Finding> {
    let checked = examine(facts).into_iter().find(|checked| checked.check == check);
    checked.unwrap_or_else(|| panic!("there is no check {check}")).findings
}

/// The names of the checks that found something.
fn names(facts: &Facts) -> Vec<&'static str> {
    let checked = examine(facts).into_iter();
    checked.filter(|checked| !checked.findings.is_empty()).map(|checked| checked.check).collect()
}

#[track_caller]
fn one(facts: &Facts, check: &str, severity: Severity, words: &str) {
    let found = of(facts, check);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].severity, severity, "{found:?}");
    assert!(found[0].what.contains(words), "{found:?}");
    assert!(!found[0].fix.is_empty() && !found[0].why.is_empty(), "{found:?}");
}

#[test]
fn recorded_machines_are_told_what_ails_them_and_no_more() {
    let table: [(&str, &[&str]); 5] = [
        ("pi5-healthy", &["pressure"]),
        ("pi5-16k-pages", &["pressure"]),
        ("laptop", &["pressure"]),
        ("empty", &[]),
        ("pi5-npu-5.3", &["pressure"]),
    ];
    for (name, expected) in table {
        let facts = machine(name);
        let expected: Vec<_> = expected
            .iter()
            .filter(|check| **check != "pressure" || facts.tells_pressure == Some(false))
            .copied()
            .collect();
        assert_eq!(names(&facts), expected, "{name}");
    }
    let power = found(&machine("pi5-under-voltage"), "power");
    let now = (Severity::Fault, "the voltage is too low now".to_owned());
    assert_eq!((&power[0], power.len()), (&now, 2), "and its supply is too weak: {power:?}");
    one(&machine("pi5-read-only"), "disk", Severity::Fault, "read-only");
    one(&machine("pi5-hot"), "heat", Severity::Warning, "°C");
}

#[test]
fn the_worst_finding_counts() {
    let checked = |severity| Checked { check: "x", findings: vec![Finding::new(severity, "", "")] };
    assert_eq!(worst(&[]), None);
    let all = [checked(Severity::Note), checked(Severity::Fault), checked(Severity::Warning)];
    assert_eq!(worst(&all), Some(Severity::Fault));
}

#[test]
fn a_server_for_the_whole_network_is_a_finding_with_the_command_that_closes_it() {
    let mut facts = Facts {
        servers: vec![
            server(Backend::Hailo, Ok(&["qwen2.5:1.5b"])),
            server(Backend::Ollama, Ok(&["qwen2.5:1.5b"])),
        ],
        listening: vec!["127.0.0.1:8000".parse().unwrap(), "[::1]:11434".parse().unwrap()],
        ..machine("pi5-healthy")
    };
    assert_eq!(found(&facts, "binds"), []);
    facts.listening = vec!["0.0.0.0:8000".parse().unwrap()];
    one(&facts, "binds", Severity::Warning, "hailo-ollama listens on 0.0.0.0:8000");
    let fix = &of(&facts, "binds")[0].fix;
    assert!(fix.contains("OLLAMA_HOST=127.0.0.1:8000"), "5.3: {fix}");
    assert!(fix.contains("/etc/xdg/hailo-ollama/hailo-ollama.json"), "5.1.1: {fix}");
    facts.listening = vec!["[::]:11434".parse().unwrap()];
    one(&facts, "binds", Severity::Warning, "ollama listens on [::]:11434");
    // A server on another machine is not ours to judge.
    facts.servers[1].url = "http://192.168.1.2:11434".into();
    assert_eq!(found(&facts, "binds"), []);
}

#[test]
fn a_model_is_found_by_its_other_names_and_a_missing_one_has_its_pull() {
    let mut facts = machine("pi5-healthy");
    // The same model under the name of another release.
    facts.servers = vec![server(Backend::Hailo, Ok(&["qwen2.5:1.5b"]))];
    assert_eq!(found(&facts, "models"), []);
    facts.servers = vec![server(Backend::Hailo, Ok(&["qwen2:1.5b"]))];
    one(&facts, "models", Severity::Warning, "hailo has no qwen2.5-instruct:1.5b");
    assert!(of(&facts, "models")[0].fix.contains("\"stream\":false"), "a stream may kill it");
    facts.servers = vec![server(Backend::Ollama, Ok(&[]))];
    one(&facts, "models", Severity::Warning, "it has no model at all");
    assert_eq!(of(&facts, "models")[0].fix, "ollama pull qwen2.5:1.5b");
}

#[test]
fn silent_servers_are_a_fault_only_if_nobody_else_can_answer() {
    let silent = |backend| server(backend, Err("cannot connect: refused"));
    let mut facts = machine("pi5-healthy");
    facts.servers = vec![silent(Backend::Hailo), server(Backend::Ollama, Ok(&["qwen2.5:1.5b"]))];
    one(&facts, "servers", Severity::Warning, "hailo-ollama does not answer");
    facts.servers = vec![silent(Backend::Hailo), silent(Backend::Ollama)];
    let severities = |facts: &Facts| found(facts, "servers").into_iter().map(|one| one.0).max();
    assert_eq!(severities(&facts), Some(Severity::Fault));
    facts.has_reserve_model = true;
    assert_eq!(severities(&facts), Some(Severity::Warning));
    // Without the device its server is not missed.
    facts.vitals.npu_present = Some(false);
    facts.servers.truncate(1);
    assert_eq!(severities(&facts), Some(Severity::Note));
}

#[test]
fn the_npu_without_a_driver_and_a_slow_link_are_told() {
    let mut facts = machine("pi5-healthy");
    facts.servers = vec![server(Backend::Hailo, Ok(&[]))];
    assert_eq!(found(&facts, "npu"), []);
    facts.vitals.npu_link = Some("2.5 GT/s PCIe".into());
    one(&facts, "npu", Severity::Warning, "2.5 GT/s PCIe instead of 8.0");
    facts.vitals.npu_present = Some(false);
    one(&facts, "npu", Severity::Warning, "its driver is not loaded");
    facts.vitals.npu_link = None;
    one(&facts, "npu", Severity::Note, "no Hailo-10H");
}

#[test]
fn swap_counts_if_it_is_on_the_card() {
    let mut facts = machine("pi5-healthy");
    let swap = |place: &str, is_file| Swap { place: place.to_owned(), is_file };
    facts.swaps = Some(vec![swap("/dev/zram0", false)]);
    assert_eq!(found(&facts, "swap"), []);
    facts.swaps = Some(vec![swap("/dev/zram0", false), swap("/var/swap", true)]);
    one(&facts, "swap", Severity::Warning, "/var/swap");
    facts.root_device = Some("/dev/nvme0n1p2".into());
    assert_eq!(found(&facts, "swap"), []);
    facts.swaps = Some(vec![swap("/dev/mmcblk0p3", false)]);
    one(&facts, "swap", Severity::Warning, "/dev/mmcblk0p3");
}

#[test]
fn the_kernel_and_the_c_library_are_judged_by_what_they_lack() {
    let mut facts = machine("pi5-healthy");
    facts.bounds_memory = Some(false);
    one(&facts, "memory control", Severity::Warning, "no memory cgroup");
    assert!(of(&facts, "memory control")[0].fix.contains("cgroup_enable=memory/'"));
    facts.bounds_memory = Some(true);
    assert_eq!(found(&facts, "memory control"), []);
    facts.vitals.page_bytes = Some(65_536);
    one(&facts, "pages", Severity::Warning, "65536");
    facts.glibc = Some((2, 36));
    assert_eq!(found(&facts, "C library"), []);
    facts.glibc = Some((2, 31));
    one(&facts, "C library", Severity::Fault, "2.31");
    facts.vitals.clock_synchronised = Some(false);
    one(&facts, "clock", Severity::Warning, "time server");
    facts.clock_plausible = Some(false);
    one(&facts, "clock", Severity::Fault, "not been set");
}

#[test]
fn the_card_and_the_supply_are_judged_by_their_figures() {
    let mut facts = machine("pi5-healthy");
    facts.vitals.disk_free_bytes = Some(500_000_000);
    one(&facts, "disk", Severity::Warning, "500 MB");
    facts.vitals.disk_free_bytes = Some(50_000_000);
    one(&facts, "disk", Severity::Fault, "50 MB");
    facts.vitals.card_written_per_day_bytes = Some(30_000_000_000);
    one(&facts, "card", Severity::Warning, "30 GB a day");
    facts.vitals.card_written_per_day_bytes = None;
    facts.emmc_tenths_used = Some(9);
    one(&facts, "card", Severity::Warning, "9 tenths");
    facts.vitals.supply_ma = Some(3000);
    one(&facts, "power", Severity::Warning, "3000 mA");
}

#[test]
fn an_open_state_directory_can_be_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut facts = machine("pi5-healthy");
    let path = dir.path().to_owned();
    facts.state = State { path: path.clone(), mode: Some(0o755), ..State::default() };
    one(&facts, "permissions", Severity::Warning, "mode 755");
    let mend = of(&facts, "permissions")[0].mend.clone().unwrap();
    assert_eq!(mend, Mend::Close { path, mode: 0o700 });
    mend.apply().unwrap();
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
    facts.state.is_foreign = true;
    one(&facts, "permissions", Severity::Note, "another user");
}

#[test]
fn the_daemon_the_port_and_the_database_are_told() {
    let mut facts = machine("pi5-healthy");
    let told = |kind: &str| Told {
        id: 1,
        at_ms: 0,
        group: "fault".into(),
        severity: "error".into(),
        kind: kind.into(),
        body: serde_json::Value::Null,
    };
    let status = Status { notices: vec!["The disk was slow.".into()], ..Status::default() };
    let events = vec![told("task.failed"), told("turn.ended"), told("task.failed")];
    facts.daemon = Daemon::Answers(Box::new(status), events);
    one(&facts, "daemon", Severity::Warning, "The disk was slow");
    one(&facts, "faults", Severity::Warning, "(2 times");
    one(&facts, "database", Severity::Fault, "cannot be written");
    let address = "127.0.0.1:8765".parse().unwrap();
    facts.web_address = Some(address);
    facts.listening = vec![address];
    assert_eq!(found(&facts, "port"), [], "it is the daemon that listens there");
    facts.daemon = Daemon::NotRunning;
    one(&facts, "daemon", Severity::Warning, "not running");
    one(&facts, "port", Severity::Fault, "8765");
    facts.state.database_sound = Some(false);
    one(&facts, "database", Severity::Warning, "is no database");
}
