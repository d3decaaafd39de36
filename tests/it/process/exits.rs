//! Starts that are refused, with their exit codes and words.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use super::quick_hailo;
use crate::client::say;
use crate::daemon::Setup;

/// Starts, and gives the code and the words with which it refuses.
#[track_caller]
fn refused(setup: &Setup) -> (Option<i32>, String) {
    let mut daemon = setup.spawn();
    let code = daemon.wait_exit().code();
    assert!(!daemon.notified.lines().iter().any(|line| line.contains("READY")));
    (code, daemon.said())
}

#[test]
fn a_bad_configuration_is_78_with_every_problem_its_line_and_its_fix() {
    let setup = Setup::new();
    setup.write("agent:\n  answer_tokens_max: 5\nweb_chat:\n  port: ninety\nlog:\n  level: loud\n");
    let (code, said) = refused(&setup);
    assert_eq!(code, Some(78), "{said}");
    for (line, key) in [(2, "answer_tokens_max"), (4, "port"), (6, "level")] {
        let place = format!("config.yaml:{line}");
        assert!(said.contains(&place) && said.contains(key), "{place} {key}:\n{said}");
    }
    assert!(said.contains("16 to 1024") && said.contains("debug"), "what would be right:\n{said}");
    assert!(!setup.state().exists(), "nothing was made for a start that is refused");
}

#[test]
fn an_unknown_key_warns_and_does_not_refuse() {
    let setup = Setup::new().key("web_chat.prot", "1");
    let mut daemon = setup.start();
    let line = daemon.log.wait(0, "config.warning");
    assert!(line.contains("prot") && line.contains("port"), "the nearest is named: {line}");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_configuration_that_is_not_there_is_78() {
    let setup = Setup::new();
    std::fs::remove_file(setup.config()).unwrap();
    let (code, said) = refused(&setup);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("no such file"), "{said}");
}

#[test]
fn a_file_in_the_place_of_the_state_directory_is_73_and_named() {
    let setup = Setup::new();
    std::fs::write(setup.state(), "in the way").unwrap();
    let (code, said) = refused(&setup);
    assert_eq!(code, Some(73), "{said}");
    assert!(said.contains(setup.state().to_str().unwrap()) && said.contains("--state"), "{said}");
}

#[test]
fn a_state_directory_of_somebody_else_is_77() {
    if rustix::process::geteuid().is_root() {
        eprintln!("not run: everything is permitted to this user");
        return;
    }
    let setup = Setup::new();
    std::fs::create_dir(setup.state()).unwrap();
    std::fs::set_permissions(setup.state(), PermissionsExt::from_mode(0o500)).unwrap();
    let (code, said) = refused(&setup);
    assert_eq!(code, Some(77), "{said}");
}

#[test]
fn a_port_in_use_is_said_clearly_with_the_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let setup = Setup::new().key("web_chat.port", &port);
    let (code, said) = refused(&setup);
    assert_eq!(code, Some(73), "{said}");
    assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
    assert!(said.contains("web_chat.port"), "{said}");
    assert!(!setup.state().join("run/crayfish.sock").exists(), "nothing is left behind");
    drop(taken);
    let mut daemon = setup.start();
    assert_eq!(daemon.stop(), 0, "and it starts once the port is free");
}

#[test]
fn a_socket_left_by_a_crash_does_not_keep_the_next_one_out() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr());
    let mut daemon = setup.start();
    daemon.kill();
    assert!(setup.state().join("run/crayfish.sock").exists(), "a crash takes nothing away");
    let mut next = setup.start();
    assert_eq!(say(next.port, "main", "hello").field("backend"), "hailo");
    assert_eq!(next.stop(), 0);
}

#[test]
fn wrong_words_are_named_and_keep_a_service_manager_from_trying_again() {
    let setup = Setup::new();
    let table = [(&["dance"][..], 64), (&["run", "--loud"], 64), (&["status", "--jsn"], 2)];
    for (args, code) in table {
        let output = setup.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(args[args.len() - 1]), "{said}");
    }
}
