//! Start and stop.

use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};

use hailo::sim::clock::Pace;
use rustix::process::Signal;

use super::{counting, hailo_that, quick_hailo};
use crate::client::{Streamed, connect, get, history, say};
use crate::daemon::{Daemon, Setup, wait_for};

#[test]
fn ready_comes_with_open_doors_and_before_any_model_has_answered() {
    // A server that takes connections and says nothing for ever.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let setup = Setup::on_hailo(mute.local_addr().unwrap());
    let mut daemon = setup.spawn();
    // Looked at in the moment of the datagram, not a moment later.
    let ready = daemon.notified.wait(0, "READY=1");
    assert!(ready.contains("STATUS=inference offline"), "nobody has answered yet: {ready}");
    let socket = setup.state().join("run/crayfish.sock");
    assert!(socket.symlink_metadata().unwrap().file_type().is_socket());
    std::os::unix::net::UnixStream::connect(&socket).unwrap();
    daemon.wait_ready();
    connect(daemon.port).unwrap();
    let health = get(daemon.port, "/healthz");
    assert_eq!((health.status, health.text().as_str()), (200, "ok, inference offline"));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn without_any_model_server_everybody_is_told_that_inference_is_offline() {
    let setup = Setup::new().env("WATCHDOG_USEC", "600000");
    let mut daemon = setup.start();
    daemon.notified.wait(0, "STATUS=inference offline: ");
    let told = daemon.notified.lines();
    assert!(!told.iter().any(|line| line.contains("answers")), "never a lie: {told:?}");
    wait_for("healthz to tell", || {
        let reply = get(daemon.port, "/healthz");
        assert_eq!(reply.status, 200, "the daemon itself is well");
        reply.text().contains("inference offline").then_some(())
    });
    assert_eq!(get(daemon.port, "/state").json()["brain_online"], false);
    let reply = say(daemon.port, "main", "hello?");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.field("reply").contains("no model answers"), "{reply:?}");
    assert_eq!(reply.field("backend"), "offline");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_model_server_that_is_there_is_told_at_once() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr()).env("WATCHDOG_USEC", "600000");
    let mut daemon = setup.start();
    daemon.notified.wait(0, "STATUS=hailo answers");
    let health = get(daemon.port, "/healthz");
    assert_eq!((health.status, health.text().as_str()), (200, "ok"));
    assert_eq!(daemon.stop(), 0);
}

/// A network of its own with loopback alone, where no port is taken.
const LONELY: &str = r#"exec unshare -rn sh -c 'ip link set lo up && exec "$0" "$@"' "$0" "$@""#;

#[test]
fn it_starts_with_no_network_no_servers_and_no_configuration() {
    let tried = Command::new("unshare").args(["-rn", "ip", "link"]).stdout(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("not run: this system gives a test no network of its own");
        return;
    }
    let setup = Setup::new().shell(LONELY);
    let mut daemon = setup.spawn_with(&[]);
    daemon.wait_ready();
    assert_eq!(daemon.port, 8765, "the default");
    assert!(setup.dir().join(".local/state/crayfish/soul.md").exists(), "a soul to edit");
    daemon.kill();
}

#[test]
fn at_sigterm_a_short_answer_is_told_to_its_end_and_the_house_is_left_tidy() {
    let hailo = hailo_that(Pace::Factor(20.0), vec![counting("count", 60)]);
    let setup = Setup::on_hailo(hailo.addr());
    let mut daemon = setup.start();
    let mut answer = Streamed::ask(daemon.port, "main", "count").unwrap();
    let mut words = answer.first_words();
    daemon.signal(Signal::TERM);
    daemon.notified.wait(0, "STOPPING=1");
    let (rest, end) = answer.rest();
    words += &rest;
    assert_eq!(end["event"], "done", "{end}");
    assert!(words.ends_with(" 58 59"), "{words}");
    assert_eq!(daemon.wait_exit().code(), Some(0), "{}", daemon.said());
    assert!(!setup.state().join("run/crayfish.sock").exists());
    assert!(!setup.state().join("crayfish.db-wal").exists(), "the log is folded");
    // The lock is free: the next one starts at once.
    let mut next = setup.start();
    let lines = history(next.port, "main");
    assert_eq!((lines.len(), &lines[1]["outcome"]), (2, &"done".into()), "{lines:?}");
    assert_eq!(lines[1]["content"], words.trim_start(), "{lines:?}");
    assert_eq!(next.stop(), 0);
}

#[test]
fn at_sigterm_a_long_answer_is_closed_as_interrupted_with_what_was_shown() {
    let hailo = hailo_that(Pace::Factor(4.0), vec![counting("count", 300)]);
    let setup = Setup::on_hailo(hailo.addr());
    let mut daemon = setup.start();
    let mut answer = Streamed::ask(daemon.port, "main", "count").unwrap();
    let mut words = answer.first_words();
    daemon.signal(Signal::TERM);
    let (rest, end) = answer.rest();
    words += &rest;
    assert_eq!((&end["event"], &end["code"]), (&"error".into(), &"interrupted".into()), "{end}");
    assert_eq!(daemon.wait_exit().code(), Some(0), "{}", daemon.said());
    let mut next = setup.start();
    let lines = history(next.port, "main");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[1]["outcome"], "interrupted");
    let kept = lines[1]["content"].as_str().unwrap();
    assert!(kept.starts_with(words.trim()), "shown: {words:?}, kept: {kept:?}");
    assert_eq!(next.stop(), 0);
}

#[test]
fn a_second_signal_ends_it_at_once_with_130() {
    let hailo = hailo_that(Pace::Factor(4.0), vec![counting("count", 300)]);
    let setup = Setup::on_hailo(hailo.addr());
    let mut daemon = setup.start();
    let mut answer = Streamed::ask(daemon.port, "main", "count").unwrap();
    let words = answer.first_words();
    daemon.signal(Signal::TERM);
    daemon.notified.wait(0, "STOPPING=1");
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait_exit().code(), Some(130), "{}", daemon.said());
    let mut next = setup.start();
    let lines = history(next.port, "main");
    assert_eq!(lines[1]["outcome"], "interrupted", "{lines:?}");
    assert!(lines[1]["content"].as_str().unwrap().starts_with(words.trim()), "{lines:?}");
    assert_eq!(next.stop(), 0);
}

/// The socket's buffers take some; an answer of this many words of this many bytes is more.
const HUGE_WORDS: usize = 200;
const HUGE_WORD_BYTES: usize = 1200;

/// hailo-ollama with an answer that no socket's buffer holds.
fn huge() -> hailo::sim::hailo::Running {
    // No two alike: a model that repeats itself is cut off.
    let mut random = fastrand::Rng::with_seed(7);
    let mut word = || (0..HUGE_WORD_BYTES).map(|_| random.lowercase()).collect::<String>();
    let tokens = (0..HUGE_WORDS).map(|_| format!(" {}", word())).collect();
    let reply = hailo::sim::scenario::Reply {
        when: Some("huge".into()),
        tokens: Some(tokens),
        ..Default::default()
    };
    hailo_that(Pace::Instant, vec![reply])
}

/// Asks for the huge answer and never reads it.
fn ask_and_stare(daemon: &Daemon) -> std::net::TcpStream {
    use std::io::Write;
    let body = br#"{"session": "stare", "message": "huge", "stream": true}"#;
    let bytes = crate::client::request("POST", "/chat", "Content-Type: application/json\r\n", body);
    let mut stream = connect(daemon.port).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
    stream.write_all(&bytes).unwrap();
    stream
}

#[test]
fn a_reader_that_stops_reading_keeps_nobody_waiting_and_the_drain_is_in_time() {
    let hailo = huge();
    let setup = Setup::on_hailo(hailo.addr());
    let mut daemon = setup.start();
    let _staring = ask_and_stare(&daemon);
    wait_for("the unread answer to be in the log", || {
        let lines = history(daemon.port, "stare");
        (lines.len() == 2 && lines[1]["outcome"] == "done").then_some(())
    });
    let reply = say(daemon.port, "other", "hello");
    assert_eq!(reply.field("backend"), "hailo", "{reply:?}");
    assert_eq!(daemon.stop(), 0, "{}", daemon.said());
}

#[test]
fn a_second_daemon_on_the_same_state_names_the_first() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr());
    let mut first = setup.start();
    let same = Setup::new().state_at(setup.state());
    let mut second = same.spawn();
    assert_eq!(second.wait_exit().code(), Some(73));
    let said = second.said();
    assert!(said.contains(&first.pid().to_string()), "{said}");
    assert!(said.contains("--state"), "{said}");
    assert!(second.notified.find(0, "READY", std::time::Duration::ZERO).is_none());
    let reply = say(first.port, "main", "hello");
    assert_eq!(reply.field("backend"), "hailo", "the first goes on: {reply:?}");
    assert_eq!(first.stop(), 0);
}
