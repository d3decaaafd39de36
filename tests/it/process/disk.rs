//! A card without space.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{copied_database, quick_hailo};
use crate::client::{get, history, say};
use crate::daemon::{Daemon, Setup, wait_for};

/// Turns while the disk is full: more than fit into what is left of any file.
const TURNS_ON_FULL: usize = 6;

/// The state directory as a small disk of its own, seen by the daemon alone.
fn small_disk(setup: Setup) -> Option<Setup> {
    let tried = Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(setup.dir())
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("not run: this system gives a test no mount of its own");
        return None;
    }
    std::fs::create_dir(setup.state()).unwrap();
    let shell = format!(
        r#"exec unshare -rm sh -c 'mount -t tmpfs -o size=1m none {} && exec "$0" "$@"' "$0" "$@""#,
        setup.state().display()
    );
    Some(setup.shell(&shell))
}

/// A file on the daemon's disk, seen from outside.
fn inside(daemon: &Daemon, setup: &Setup, name: &str) -> PathBuf {
    let state = setup.state().strip_prefix("/").unwrap();
    PathBuf::from(format!("/proc/{}/root", daemon.pid())).join(state).join(name)
}

/// Takes all the space there is.
fn fill(path: &std::path::Path) {
    let mut filler = File::create(path).unwrap();
    for bytes in [64 * 1024, 4096, 512, 1] {
        while filler.write_all(&vec![b'x'; bytes]).is_ok() {}
    }
}

#[test]
fn on_a_full_disk_answers_go_on_and_nothing_is_missing_when_space_returns() {
    let hailo = quick_hailo();
    let Some(setup) = small_disk(Setup::on_hailo(hailo.addr())) else { return };
    let mut daemon = setup.start();
    let mut answers = Vec::new();
    let mut talk = |daemon: &Daemon, turns: usize| {
        for turn in 0..turns {
            let message = format!("{turn} {}", "words ".repeat(400));
            let reply = say(daemon.port, "main", &message);
            assert_eq!(reply.status, 200, "{reply:?}");
            assert_eq!(reply.field("backend"), "hailo", "{reply:?}");
            answers.push(reply.field("reply"));
        }
    };
    talk(&daemon, 3);
    let filler = inside(&daemon, &setup, "filler");
    fill(&filler);
    talk(&daemon, TURNS_ON_FULL);
    daemon.log.wait(0, "store.degraded");
    let health = wait_for("healthz to say so", || {
        let health = get(daemon.port, "/healthz");
        (health.status == 503).then_some(health)
    });
    assert!(health.text().contains("cannot be written"), "{health:?}");
    let kept = history(daemon.port, "main").len();
    assert_eq!(kept, 2 * (3 + TURNS_ON_FULL), "what is in memory only is told as well");
    std::fs::remove_file(&filler).unwrap();
    daemon.log.wait(0, "store.recovered");
    wait_for("healthz to be well again", || {
        (get(daemon.port, "/healthz").status == 200).then_some(())
    });
    talk(&daemon, 1);
    let lines = history(daemon.port, "main");
    let told: Vec<_> = lines.iter().filter(|line| line["role"] == "agent").collect();
    assert!(told.iter().all(|line| line["outcome"] == "done"), "{told:?}");
    let told: Vec<_> = told.iter().map(|line| line["content"].as_str().unwrap()).collect();
    assert_eq!(told, answers, "each answer that was shown, once, in its order");
    // The same from the file itself: what history tells is not only in memory.
    let state = inside(&daemon, &setup, "");
    let file = copied_database(&state, &setup.dir().join("copy"));
    let ends: i64 =
        file.query_row("SELECT count(*) FROM event WHERE kind = 'end'", (), |r| r.get(0)).unwrap();
    assert_eq!(usize::try_from(ends).unwrap(), answers.len());
    assert_eq!(daemon.stop(), 0);
}

/// `/dev/full` takes no byte: a log that is redirected to a file on a full card.
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let hailo = quick_hailo();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let setup = Setup::on_hailo(hailo.addr())
        .key("web_chat.port", &port.to_string())
        .env("CRAYFISH_LOG", "trace")
        .shell("exec 2>/dev/full");
    let mut daemon = setup.spawn();
    daemon.notified.wait(0, "READY=1");
    for _ in 0..3 {
        assert_eq!(say(port, "main", "hello").field("backend"), "hailo");
    }
    assert_eq!(get(port, "/state").json()["notices"], serde_json::json!([]));
    assert_eq!(daemon.stop(), 0);
}
