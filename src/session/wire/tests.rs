use serde_json::Value;

use super::*;
use crate::event::feed::Told;
use crate::snapshot::body::{Body, Throttling, VitalSigns};

fn detail(frame: &str) -> String {
    ClientFrame::parse(frame.as_bytes()).expect_err(frame).detail
}

#[test]
fn frames_that_are_wrong_are_named() {
    let table = [
        ("[]", "typed JSON envelope required"),
        ("{}", "typed JSON envelope required"),
        (r#"{"type":7}"#, "typed JSON envelope required"),
        (r#"{"type":"dance"}"#, "unknown type: 'dance'"),
        (r#"{"type":"attach"}"#, "invalid chat_id"),
        (r#"{"type":"attach","chat_id":"a b"}"#, "invalid chat_id"),
        (r#"{"type":"attach","chat_id":"ab\n"}"#, "invalid chat_id"),
        (r#"{"type":"attach","chat_id":""}"#, "invalid chat_id"),
        (r#"{"type":"message","content":"  "}"#, "missing content"),
        (r#"{"type":"message","content":12}"#, "missing content"),
        (r#"{"type":"message","content":"x","metadata":1}"#, "metadata must be an object"),
        (
            r#"{"type":"message","content":"x","metadata":{"backend":1}}"#,
            "metadata.backend must be a string",
        ),
        (r#"{"type":"attach","chat_id":"a","after_turn":-1}"#, "after_turn must be a whole number"),
        (r#"{"type":"attach","chat_id":"a","history":"x"}"#, "history must be a whole number"),
        (r#"{"type":"history","limit":"20"}"#, "limit must be a whole number"),
        (r#"{"type":"history","limit":-1}"#, "limit must be a whole number"),
        (r#"{"type":"history","before":"now"}"#, "before must be a whole number"),
        (r#"{"type":"message","content":"x","id":""}"#, "invalid id"),
        (r#"{"type":"message","content":"x","id":7}"#, "invalid id"),
        (r#"{"type":"message","content":"x","id":"a\n"}"#, "invalid id"),
    ];
    for (frame, expected) in table {
        assert_eq!(detail(frame), expected, "{frame}");
    }
    for frame in ["", "{", "\u{0}", r#"{"type":"message","content":"\ud800"}"#] {
        assert_eq!(detail(frame), "typed JSON envelope required", "{frame}");
    }
    assert!(ClientFrame::parse(b"{\"type\":\"ping\xff\"}").is_err());
    let deep = "[".repeat(20_000);
    assert_eq!(detail(&deep), "typed JSON envelope required");
}

#[test]
fn a_client_frame_survives_being_written_and_read() {
    let id = || Some("tty:1".to_owned());
    let frames = [
        ClientFrame::Ping,
        ClientFrame::NewChat,
        ClientFrame::Status,
        ClientFrame::Sessions,
        ClientFrame::Attach { chat_id: "a".into(), after_turn: None, history: None },
        ClientFrame::Attach { chat_id: "a".into(), after_turn: Some(0), history: Some(9) },
        ClientFrame::Cancel { chat_id: None },
        ClientFrame::Cancel { chat_id: id() },
        ClientFrame::History { chat_id: id(), limit: 7, before: None },
        ClientFrame::History { chat_id: None, limit: 7, before: Some(3) },
        ClientFrame::Message {
            chat_id: None,
            content: "two\nlines".into(),
            metadata: Metadata::default(),
            id: None,
        },
        ClientFrame::Message {
            chat_id: id(),
            content: "\u{0}\u{1b}".into(),
            metadata: Metadata {
                backend: Some("ollama".into()),
                llm: Some(Llm { provider: "ollama".into(), model: "m".into() }),
                selections: Vec::new(),
            },
            id: id(),
        },
    ];
    for frame in frames {
        let line = frame.to_json();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(ClientFrame::parse(line.as_bytes()), Ok(frame));
    }
}

#[test]
fn stop_means_cancel_and_unknown_fields_are_left_alone() {
    let frame = ClientFrame::parse(br#"{"type":"stop","chat_id":"x","colour":"red"}"#);
    assert_eq!(frame, Ok(ClientFrame::Cancel { chat_id: Some("x".into()) }));
    let frame =
        ClientFrame::parse(br#"{"type":"message","content":"hi","metadata":{"colour":"red"}}"#);
    let metadata = Metadata::default();
    let plain = ClientFrame::Message { chat_id: None, content: "hi".into(), metadata, id: None };
    assert_eq!(frame, Ok(plain));
}

#[test]
fn a_history_limit_is_clamped() {
    for (given, kept) in [("0", 1), ("1", 1), ("200", 200), ("18446744073709551615", 200)] {
        let frame = format!(r#"{{"type":"history","limit":{given}}}"#);
        let parsed = ClientFrame::parse(frame.as_bytes());
        assert_eq!(
            parsed,
            Ok(ClientFrame::History { chat_id: None, limit: kept, before: None }),
            "{given}"
        );
    }
}

/// One frame of each kind, with every optional field there.
fn every_frame() -> Vec<ServerFrame> {
    let chat_id = || "main".to_owned();
    let snapshot = Snapshot {
        backends: vec![crate::snapshot::BackendState {
            head_ms: Some(1.0),
            first_token_ms: Some(1.0),
            gap_p50_ms: Some(1.0),
            gap_p99_ms: Some(1.0),
            ..Default::default()
        }],
        body: Body {
            vitals: VitalSigns { throttling: Some(Throttling::default()), ..VitalSigns::default() },
            ..Body::default()
        },
        mood: Some(crate::snapshot::Mood::default()),
        room: Some(crate::snapshot::Room::default()),
        ..Snapshot::default()
    };
    let info = || SessionInfo {
        chat_id: "main".into(),
        title: "hi".into(),
        updated_at: "2026-01-01T00:00:00Z".into(),
    };
    let line = HistoryLine {
        role: "agent".into(),
        content: "hi".into(),
        at: "2026-01-01T00:00:00Z".into(),
        turn: 1,
        id: Some("m".into()),
        outcome: Some("done".into()),
        backend: Some("hailo".into()),
        model: Some("m".into()),
        elapsed_ms: Some(1),
        cut: true,
        clipped: true,
        code: Some("offline".into()),
        words: Some("hi".into()),
    };
    vec![
        ServerFrame::Ready {
            v: VERSION,
            client_id: "c".into(),
            designation: "Crayfish".into(),
            chat_id: Some(chat_id()),
            assets: Some("0123456789abcdef".into()),
        },
        ServerFrame::Taken { chat_id: chat_id(), turn: 1, id: "m".into(), again: true },
        ServerFrame::Snapshot {
            chat_id: chat_id(),
            turn: 1,
            content: "hi".into(),
            id: Some("m".into()),
            text: "He".into(),
            about_s: Some(2),
        },
        ServerFrame::User {
            chat_id: chat_id(),
            turn: 1,
            content: "hi".into(),
            id: Some("m".into()),
        },
        ServerFrame::SessionUpdated(info()),
        ServerFrame::SessionDeleted { chat_id: chat_id() },
        ServerFrame::Sessions { sessions: vec![info()] },
        ServerFrame::Attached { chat_id: chat_id() },
        ServerFrame::Waiting { chat_id: chat_id(), turn: 1, about_s: 9 },
        ServerFrame::Delta { chat_id: chat_id(), text: "a\nb".into(), stream_id: 1 },
        ServerFrame::StreamEnd { chat_id: chat_id(), stream_id: 1 },
        ServerFrame::Done(Done {
            chat_id: chat_id(),
            turn: 1,
            duration_sec: 1.5,
            elapsed_ms: 1500,
            first_word_ms: 300,
            backend: "hailo".into(),
            model: "qwen2:1.5b".into(),
            cut: false,
            clipped: true,
            tokens: Some(3),
        }),
        ServerFrame::Error {
            detail: "no".into(),
            code: "offline".into(),
            chat_id: Some(chat_id()),
            turn: Some(1),
        },
        ServerFrame::Cancelled { chat_id: chat_id(), turn: 1 },
        ServerFrame::StopAck { chat_id: Some(chat_id()), stopped: true },
        ServerFrame::Pong,
        ServerFrame::History { chat_id: Some(chat_id()), turns: vec![line] },
        ServerFrame::Events {
            events: vec![Told {
                id: 1,
                at_ms: 1,
                group: "fault".into(),
                severity: "info".into(),
                kind: "store.recovered".into(),
                body: Value::Null,
            }],
        },
        ServerFrame::Status { status: Box::new(Status::from(&snapshot)) },
    ]
}

#[test]
fn a_server_frame_is_one_line_and_survives_being_read() {
    for frame in every_frame() {
        let line = frame.to_line();
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let read: ServerFrame = serde_json::from_str(&line).expect(&line);
        assert_eq!(read, frame);
    }
}

#[test]
fn an_error_ends_a_turn_only_if_it_names_one() {
    let ends = every_frame().iter().filter(|frame| frame.is_terminal()).count();
    assert_eq!(ends, 3);
    let bare = ServerFrame::Error {
        detail: "invalid chat_id".into(),
        code: "bad_frame".into(),
        chat_id: None,
        turn: None,
    };
    assert!(!bare.is_terminal());
}

fn names(prefix: &str, value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                out.push(format!("{prefix}.{name}"));
                names(&format!("{prefix}.{name}"), value, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                names(&format!("{prefix}[]"), item, out);
            }
        }
        _ => {}
    }
}

#[test]
fn the_names_of_the_fields_are_frozen() {
    let mut found = Vec::new();
    for frame in every_frame() {
        let value: Value = serde_json::from_str(&frame.to_line()).expect("JSON");
        let event = value["event"].as_str().expect("event").to_owned();
        names(&event, &value, &mut found);
    }
    found.sort();
    found.dedup();
    let golden = include_str!("../../../tests/golden/frames.txt");
    let golden: Vec<&str> = golden.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(found, golden, "frames changed; names may be added, never taken away");
}
