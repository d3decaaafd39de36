//! A new configuration for a running daemon.

use hailo::sim::hailo::Running;
use hailo::sim::log::Event;
use rustix::process::Signal;

use super::quick_hailo;
use crate::client::{get, say};
use crate::daemon::Setup;

/// The token limits of the generations so far, the probes' two tokens left out.
fn limits_seen(hailo: &Running) -> Vec<i64> {
    let seen = hailo.log().into_iter().filter_map(|entry| match entry.event {
        Event::Seen { num_predict, .. } => num_predict,
        _ => None,
    });
    seen.filter(|limit| *limit > 2).collect()
}

#[test]
fn a_bad_file_keeps_the_old_one_in_force_and_every_problem_is_in_the_log() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr()).key("agent.answer_tokens_max", "100");
    let mut daemon = setup.start();
    let (seen, logged) = (daemon.notified.len(), daemon.log.len());
    setup
        .write("agent:\n  answer_tokens_max: many\nweb_chat:\n  port: 99999\n  enabled: perhaps\n");
    daemon.signal(Signal::HUP);
    daemon.notified.wait(seen, "RELOADING=1");
    daemon.log.wait(logged, "config.refused");
    daemon.notified.wait(seen, "READY=1");
    let told = daemon.notified.lines();
    let at = |what: &str| told.iter().skip(seen).position(|line| line.contains(what));
    assert!(at("RELOADING=1") < at("READY=1"), "{told:?}");
    let said = daemon.log.lines()[logged..].join("\n");
    for key in ["answer_tokens_max", "port", "enabled"] {
        assert!(said.contains(key), "{key} is not named:\n{said}");
    }
    say(daemon.port, "main", "hello");
    assert_eq!(limits_seen(&hailo), [100]);
    assert_eq!(get(daemon.port, "/healthz").status, 200);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_changed_file_is_read_without_a_signal_and_holds_from_the_next_turn_on() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr()).key("agent.answer_tokens_max", "100");
    let mut daemon = setup.start();
    say(daemon.port, "main", "hello");
    let logged = daemon.log.len();
    let setup = setup.key("agent.answer_tokens_max", "64");
    let line = daemon.log.wait(logged, "config.reloaded");
    assert!(line.contains("agent.answer_tokens_max"), "{line}");
    say(daemon.port, "main", "again");
    assert_eq!(limits_seen(&hailo), [100, 64]);
    // What needs a restart is named, and is not in force.
    let logged = daemon.log.len();
    let _setup = setup.key("system.individual_designation", "Otto");
    let line = daemon.log.wait(logged, "config.reloaded");
    let restart = line.split_once("restart").expect("what needs a restart").1;
    assert!(restart.contains("system.individual_designation"), "{line}");
    assert_eq!(get(daemon.port, "/state").json()["designation"], "Pinch");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn sighup_without_a_change_is_answered_all_the_same() {
    let setup = Setup::new();
    let mut daemon = setup.start();
    let seen = daemon.notified.len();
    daemon.signal(Signal::HUP);
    let reloading = daemon.notified.wait(seen, "RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    daemon.notified.wait(seen, "READY=1");
    assert_eq!(daemon.stop(), 0);
}
