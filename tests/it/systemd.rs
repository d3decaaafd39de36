//! The units in `systemd/`: what systemd itself says of them, and what they promise the daemon.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crayfish::daemon::exit;
use crayfish::limits::DRAIN_MAX;

/// Highest exposure that `systemd-analyze security` may find, times 10.
const EXPOSURE_MAX: &str = "15";

/// Keys that are newer than the systemd 252 of Debian 12, which ignores them.
const NEWER_THAN_252: [&str; 2] = ["'RestartSteps'", "'RestartMaxDelaySec'"];

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(unit(name)).unwrap()
}

/// All values of a key, with continued lines joined.
fn values(text: &str, key: &str) -> Vec<String> {
    let joined = text.replace("\\\n", "");
    let lines = joined.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

#[track_caller]
fn analyze(words: &[&str], unit: &Path) -> Output {
    let run = Command::new("systemd-analyze").args(words).arg(unit).output();
    run.expect("systemd-analyze is missing; `bash tests/run tools` installs it")
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["crayfish.service", "hailo-ollama.service"] {
        // The programs are not installed where tests run.
        let text = text(name);
        let text = text.replace("ExecStart=/usr/bin/crayfish run", "ExecStart=/bin/true");
        let text = text.replace("ExecStart=/usr/bin/hailo-ollama", "ExecStart=/bin/true");
        let copy = dir.path().join(name);
        std::fs::write(&copy, text).unwrap();
        let output = analyze(&["verify", "--man=no"], &copy);
        let said = String::from_utf8_lossy(&output.stderr);
        let odd: Vec<_> = said
            .lines()
            .filter(|line| !NEWER_THAN_252.iter().any(|key| line.contains(key)))
            .filter(|line| line.contains(name))
            .collect();
        assert_eq!(odd, Vec::<&str>::new());
    }
}

#[test]
fn the_daemon_may_do_little_and_its_plug_ins_may_make_namespaces() {
    let words = ["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX];
    let output = analyze(&words, &unit("crayfish.service"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let namespaces = values(&text("crayfish.service"), "RestrictNamespaces");
    assert_eq!(namespaces, ["user mnt pid net"], "a sandbox needs these");
    // A filter on the calls that make them would take them away again.
    let filter = values(&text("crayfish.service"), "SystemCallFilter");
    assert_eq!(filter, ["@system-service", "~@privileged @resources"]);
}

#[test]
fn the_unit_and_the_program_agree() {
    let text = text("crayfish.service");
    let one = |key: &str| {
        let mut values = values(&text, key);
        assert_eq!(values.len(), 1, "{key}");
        values.remove(0)
    };
    assert_eq!(one("Type"), "notify");
    let codes = format!("{} {}", exit::USAGE, exit::CONFIG);
    assert_eq!(one("RestartPreventExitStatus"), codes);
    let stop: u64 = one("TimeoutStopSec").parse().unwrap();
    assert!(stop > DRAIN_MAX.as_secs(), "systemd kills a drain that is still in its time");
    // A hang is found and mended within 25 s: two thirds of this for the last look, the whole of it
    // for systemd, and the start.
    let watchdog: u64 = one("WatchdogSec").parse().unwrap();
    let (abort, rest): (u64, u64) =
        (one("TimeoutAbortSec").parse().unwrap(), one("RestartSec").parse().unwrap());
    assert!(watchdog + abort + rest < 25, "{watchdog} + {abort} + {rest} s");
    for unneeded in ["Requires", "Wants", "BindsTo", "Requisite"] {
        assert_eq!(values(&text, unneeded), Vec::<String>::new(), "it starts without the others");
    }
    let after = one("After");
    for other in ["hailo-ollama.service", "ollama.service", "network-online.target", "time-sync"] {
        assert!(after.contains(other), "{after}");
    }
}

#[test]
fn hailo_ollama_is_for_this_machine_alone_in_every_release_and_keeps_no_prompt() {
    let unit = text("hailo-ollama.service");
    let environment = values(&unit, "Environment");
    assert!(environment.contains(&"OLLAMA_HOST=127.0.0.1:8000".to_owned()), "{environment:?}");
    assert!(environment.contains(&"XDG_CONFIG_HOME=/usr/share/crayfish".to_owned()));
    let file: serde_json::Value = serde_json::from_str(&text("hailo-ollama.json")).unwrap();
    assert_eq!(
        (&file["server"]["host"], &file["server"]["port"]),
        (&"127.0.0.1".into(), &8000.into())
    );
    assert_eq!(values(&unit, "StandardOutput"), ["null"], "5.1.1 prints what was said");
}

#[test]
fn hailo_ollama_starts_with_the_vendors_list_of_models_and_the_owners_files() {
    let dir = tempfile::tempdir().unwrap();
    let (share, state) = (dir.path().join("share"), dir.path().join("state"));
    let shipped = share.join("hailo-ollama/models/manifests/qwen2");
    std::fs::create_dir_all(&shipped).unwrap();
    std::fs::write(shipped.join("1.5b"), "new").unwrap();
    std::fs::create_dir_all(state.join("models/manifests/old")).unwrap();
    std::fs::create_dir_all(state.join("models/blob")).unwrap();
    std::fs::write(state.join("models/blob/sha256_1"), "weights").unwrap();
    let script = values(&text("hailo-ollama.service"), "ExecStartPre").remove(0);
    let script = script.strip_prefix("/bin/sh -ec '").unwrap().strip_suffix('\'').unwrap();
    // As systemd hands it on: two dollars are one.
    let script = script.replace("$$", "$").replace("/usr/share", share.to_str().unwrap());
    for _ in 0..2 {
        let ran = Command::new("sh").args(["-ec", &script]).current_dir(&state).status().unwrap();
        assert!(ran.success());
        let manifest = std::fs::read(state.join("models/manifests/qwen2/1.5b")).unwrap();
        assert_eq!(manifest, b"new");
        assert!(!state.join("models/manifests/old").exists(), "a list of another release");
        assert_eq!(std::fs::read(state.join("models/blob/sha256_1")).unwrap(), b"weights");
    }
}

#[test]
fn the_search_engine_answers_programs_on_loopback_only() {
    let unit = text("crayfish-searxng.container");
    assert_eq!(values(&unit, "PublishPort"), ["127.0.0.1:8888:8080"]);
    let settings = text("crayfish-searxng.yml");
    assert!(settings.contains("  formats:\n    - html\n    - json\n"), "{settings}");
    let volume = values(&unit, "Volume").remove(0);
    assert!(volume.contains("crayfish-searxng.yml:/etc/searxng/settings.yml:ro"), "{volume}");
}
