//! Files that are broken when the daemon finds them.

use std::fs;
use std::path::Path;

use super::quick_hailo;
use crate::client::{get, history, say};
use crate::daemon::{Daemon, Setup, wait_for};

/// The notices that a person is shown, once there is one with `text`.
#[track_caller]
fn notice(daemon: &Daemon, text: &str) {
    wait_for(text, || {
        let state = get(daemon.port, "/state").json();
        let notices = state["notices"].as_array().expect("notices").clone();
        notices.iter().any(|notice| notice.as_str().unwrap().contains(text)).then_some(())
    });
    daemon.log.wait(0, text);
}

/// A state directory with a conversation of some pages in it.
fn lived_in(setup: &Setup) {
    let mut daemon = setup.start();
    for turn in 0..30 {
        let long = format!("turn {turn} {}", "of many words ".repeat(60));
        assert_eq!(say(daemon.port, "main", &long).status, 200);
    }
    assert_eq!(daemon.stop(), 0);
}

fn set_aside(state: &Path) -> Vec<String> {
    let names = fs::read_dir(state).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".damaged-")).collect()
}

#[test]
fn a_damaged_database_is_set_aside_and_the_conversation_goes_on_in_a_new_one() {
    let hailo = quick_hailo();
    let lived = Setup::on_hailo(hailo.addr());
    lived_in(&lived);
    let sound = fs::read(lived.database()).unwrap();
    assert!(sound.len() > 40_000, "{} bytes are too few to damage", sound.len());
    let mut page = sound.clone();
    page[8192..12_288].iter_mut().for_each(|byte| *byte = !*byte);
    let cut = sound[..sound.len() / 2 + 100].to_vec();
    let garbage = b"this is not a database, and longer than its header would be. ".repeat(20);
    for (name, bytes) in [("page", page), ("cut", cut), ("garbage", garbage)] {
        let setup = Setup::on_hailo(hailo.addr());
        fs::create_dir(setup.state()).unwrap();
        fs::copy(lived.state().join("soul.md"), setup.state().join("soul.md")).unwrap();
        fs::write(setup.database(), &bytes).unwrap();
        let mut daemon = setup.start();
        notice(&daemon, "was set aside as");
        let aside = set_aside(setup.state());
        assert_eq!(aside.len(), 1, "{name}: {aside:?}");
        assert_eq!(fs::read(setup.state().join(&aside[0])).unwrap(), bytes, "{name}");
        assert_eq!(say(daemon.port, "main", "hello").field("backend"), "hailo", "{name}");
        assert_eq!(history(daemon.port, "main").len(), 2, "{name}");
        assert_eq!(get(daemon.port, "/healthz").status, 200, "{name}");
        assert_eq!(daemon.stop(), 0, "{name}");
    }
}

#[test]
fn a_newer_programs_database_is_refused_in_clear_words_and_left_untouched() {
    let setup = Setup::new();
    let mut daemon = setup.start();
    assert_eq!(daemon.stop(), 0);
    let newer = rusqlite::Connection::open(setup.database()).unwrap();
    newer.execute_batch("PRAGMA user_version = 4711").unwrap();
    newer.close().unwrap();
    let before = fs::read(setup.database()).unwrap();
    let mut refused = setup.spawn();
    assert_eq!(refused.wait_exit().code(), Some(73), "{}", refused.said());
    let said = refused.said();
    assert!(said.contains("4711") && said.contains("newer program"), "{said}");
    assert!(said.contains(setup.database().to_str().unwrap()), "{said}");
    assert_eq!(fs::read(setup.database()).unwrap(), before);
    assert_eq!(set_aside(setup.state()), Vec::<String>::new());
}

#[test]
fn a_missing_or_damaged_soul_is_stood_in_for_and_the_person_is_told() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr());
    let mut first = setup.start();
    let soul = setup.state().join("soul.md");
    assert!(soul.exists(), "a first start writes the shipped soul");
    let state = get(first.port, "/state").json();
    assert_eq!(state["notices"], serde_json::json!([]), "and that is no damage");
    assert_eq!(first.stop(), 0);
    let cases: [(&str, Option<&[u8]>); 4] = [
        ("soul.md is missing", None),
        ("soul.md is damaged", Some(b"I am no soul.\n")),
        ("not UTF-8 at byte 4", Some(b"soul\xff\xfe")),
        ("soul.md is damaged", Some(b"")),
    ];
    for (words, bytes) in cases {
        let _ = fs::remove_file(&soul);
        if let Some(bytes) = bytes {
            fs::write(&soul, bytes).unwrap();
        }
        let mut daemon = setup.start();
        notice(&daemon, words);
        assert_eq!(say(daemon.port, "main", "hello").field("backend"), "hailo", "{words}");
        assert_eq!(daemon.stop(), 0);
        assert_eq!(fs::read(&soul).ok().as_deref(), bytes, "the file is the person's");
    }
}
