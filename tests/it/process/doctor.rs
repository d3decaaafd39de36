//! `crayfish doctor`, beside a daemon that runs and alone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hailo::sim::clock::Pace;
use hailo::sim::log::Event;
use serde_json::Value;

use super::{counting, hailo_that, quick_hailo};
use crate::daemon::Setup;

/// Runs the verb and gives its exit code and its report.
fn doctor(setup: &Setup, flags: &[&str]) -> (i32, Value) {
    let (config, state) = (setup.config().to_str().unwrap(), setup.state().to_str().unwrap());
    let mut words = vec!["doctor", "--json", "--config", config, "--state", state];
    words.extend(flags);
    let output = setup.run(&words);
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().unwrap(), report)
}

/// What was found by a check.
fn found<'a>(report: &'a Value, check: &str) -> &'a Vec<Value> {
    let checks = report["checks"].as_array().unwrap();
    let checked = checks.iter().find(|checked| checked["check"] == check);
    checked.unwrap_or_else(|| panic!("no check {check}"))["findings"].as_array().unwrap()
}

#[test]
fn the_npu_is_measured_through_the_daemon_and_its_continuation_is_seen() {
    let replies = vec![counting("Count", 12), counting("twenty", 12)];
    let hailo = hailo_that(Pace::Factor(10.0), replies);
    let setup = Setup::on_hailo(hailo.addr());
    let mut daemon = setup.start();
    let (_, report) = doctor(&setup, &["--npu"]);
    let npu = &report["npu"];
    assert_eq!(npu["findings"], serde_json::json!([]), "{report:#}");
    assert_eq!((&npu["node"], &npu["driver"]), (&"hailo0".into(), &"5.1.1".into()));
    for figure in ["first_ms", "fresh_ms", "continued_ms", "tokens_per_s"] {
        assert!(npu[figure].is_number(), "{figure}: {npu:#}");
    }
    assert!(npu["model"].as_str().unwrap().contains("qwen2.5"), "{npu:#}");
    assert_eq!(found(&report, "models"), &Vec::<Value>::new(), "{report:#}");
    // Three questions, the last of which the server went on from.
    let asked = hailo.log().into_iter().filter(
        |entry| matches!(&entry.event, Event::Seen { num_predict: Some(limit), .. } if *limit > 2),
    );
    assert_eq!(asked.count(), 3);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn without_a_daemon_it_says_so_and_what_would_start_it() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr());
    let (code, report) = doctor(&setup, &[]);
    assert_eq!((code, &report["worst"]), (1, &"warning".into()), "{report:#}");
    let daemon = &found(&report, "daemon")[0];
    assert_eq!(daemon["what"], "crayfish is not running");
    assert!(daemon["fix"].as_str().unwrap().contains("systemctl start crayfish"));
    let (code, report) = doctor(&setup, &["--npu"]);
    assert_eq!(code, 4, "nothing can be measured: {report:#}");
    // A file that the daemon would refuse is a fault, with its line.
    setup.write("web_chat:\n  port: many\n");
    let (code, report) = doctor(&setup, &[]);
    assert_eq!(code, 4, "{report:#}");
    let problem = found(&report, "configuration")[0]["what"].as_str().unwrap();
    assert!(problem.contains("config.yaml:2: web_chat.port"), "{problem}");
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn permissions_are_mended_after_a_yes_only() {
    let hailo = quick_hailo();
    // What a person types, which is nothing at first.
    let setup = Setup::on_hailo(hailo.addr()).shell("exec < typed");
    std::fs::write(setup.dir().join("typed"), "").unwrap();
    std::fs::create_dir(setup.state()).unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(setup.state(), open).unwrap();
    let (config, state) = (setup.config().to_str().unwrap(), setup.state().to_str().unwrap());
    let fix = ["doctor", "--fix", "--config", config, "--state", state];
    let output = setup.run(&fix);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("[y/N]") && said.contains("left as it is"), "{said}");
    assert_eq!(mode_of(setup.state()), 0o755, "nobody said yes");
    std::fs::write(setup.dir().join("typed"), "y\n").unwrap();
    let output = setup.run(&fix);
    assert!(String::from_utf8_lossy(&output.stdout).contains("done"), "{output:?}");
    assert_eq!(mode_of(setup.state()), 0o700);
}
