//! What each fuzz target does with some bytes. The targets under `fuzz_targets` and the replay of
//! the corpora in `tests/it/fuzz_corpus.rs` share it.

use crayfish::config::check::check;
use crayfish::config::env::FixedEnv;
use crayfish::net::split::{Events, Lines};
use crayfish::provider::guard::Guard;
use crayfish::provider::parse::{self, Dialect};
use crayfish::provider::think::{ThinkFilter, ThinkMode};
use crayfish::provider::{foreign, sanitise};
use crayfish::session::wire::{ClientFrame, ServerFrame};
use crayfish::soul::regions::{Soul, identity_block};
use serde_json::Value;

/// What a target does with some bytes.
type Target = fn(&[u8]);

/// A target's name, which is its corpus' directory, and what it does.
pub(crate) const TARGETS: [(&str, Target); 14] = [
    ("splitter", splitter),
    ("answer", answer),
    ("refusal", refusal),
    ("think", think),
    ("sanitise", clean),
    ("guard", guard),
    ("config", config),
    ("frames", frames),
    ("request", request),
    ("soul", soul),
    ("markdown", markdown),
    ("chat", chat),
    ("ledger", ledger),
    ("terminal", terminal),
];

/// Runs a target on some bytes; it panics if something does not hold.
pub(crate) fn run(name: &str, data: &[u8]) {
    for (_, target) in TARGETS.iter().filter(|(known, _)| *known == name) {
        target(data);
    }
}

/// Bytes come in pieces of any size; the result must not depend on it.
fn splitter(data: &[u8]) {
    let lines = |step: usize| {
        let (mut lines, mut out) = (Lines::bounded(4096), Vec::new());
        let ended = data.chunks(step).try_for_each(|piece| lines.push(piece, &mut out));
        lines.finish(&mut out);
        (ended.is_ok(), out)
    };
    let events = |step: usize| {
        let (mut events, mut out) = (Events::bounded(4096), Vec::new());
        let ended = data.chunks(step).try_for_each(|piece| events.push(piece, &mut out));
        events.finish(&mut out);
        (ended.is_ok(), out)
    };
    for step in [1, 3] {
        assert_eq!(lines(step), lines(data.len().max(1)));
        assert_eq!(events(step), events(data.len().max(1)));
    }
}

/// A streamed answer of each dialect, whole and in single bytes.
fn answer(data: &[u8]) {
    for dialect in [Dialect::Hailo, Dialect::Ollama, Dialect::OpenAi] {
        let whole = foreign::decode(dialect, data, data.len()).ok();
        for step in [1, 7] {
            assert_eq!(foreign::decode(dialect, data, step).ok(), whole, "in pieces of {step}");
        }
    }
}

/// An error in any form, oatpp's page of causes included.
fn refusal(data: &[u8]) {
    let body = String::from_utf8_lossy(data);
    let _ = parse::parse_json(&body);
    let _ = parse::text_causes(&body);
    for dialect in [Dialect::Hailo, Dialect::Ollama, Dialect::OpenAi] {
        for status in [200, 400, 401, 404, 500, 503] {
            let fault = parse::refusal(dialect, status, None, &body);
            assert!(fault.detail.chars().count() < 300);
            assert!(!fault.detail.chars().any(char::is_control));
        }
    }
}

/// What is visible does not depend on how the text was divided.
fn think(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for mode in [ThinkMode::MayOpen, ThinkMode::StartsInside] {
        let mut whole = ThinkFilter::new(mode, u32::MAX);
        let mut one = whole.push(&text).unwrap_or_default();
        one.push_str(&whole.finish());
        for step in 1..6 {
            let mut parts = ThinkFilter::new(mode, u32::MAX);
            let mut other = String::new();
            let letters: Vec<char> = text.chars().collect();
            for piece in letters.chunks(step) {
                let piece: String = piece.iter().collect();
                other.push_str(&parts.push(&piece).unwrap_or_default());
            }
            other.push_str(&parts.finish());
            assert_eq!(one, other, "in pieces of {step}");
        }
    }
}

/// Cleaning twice changes nothing more.
fn clean(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let once = sanitise::untrusted(&text).into_owned();
    assert_eq!(sanitise::untrusted(&once), once);
    assert!(!once.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')));
}

/// The guard lets no control character through.
fn guard(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut guard = Guard::default();
    for piece in text.split_inclusive(' ') {
        let Ok(clean) = guard.push(piece) else { return };
        assert!(!clean.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')));
    }
}

/// Any file has a verdict.
fn config(data: &[u8]) {
    let checked = check(data, Some(0o600), &FixedEnv::default());
    for problem in checked.problems {
        assert!(!problem.in_file("config.yaml").to_string().is_empty());
    }
}

/// A frame that is understood is written as it was understood.
fn frames(data: &[u8]) {
    if let Ok(frame) = ClientFrame::parse(data) {
        assert_eq!(ClientFrame::parse(frame.to_json().as_bytes()), Ok(frame));
    }
    if let Ok(frame) = serde_json::from_slice::<ServerFrame>(data) {
        assert!(frame.to_line().ends_with('\n'));
    }
}

/// No head makes a foreign name ours.
fn request(data: &[u8]) {
    let head = String::from_utf8_lossy(data);
    let ours = ["localhost", "127.", "[::1]"].iter().any(|name| head.contains(name));
    let lower = head.to_ascii_lowercase();
    if crayfish::http::foreign::lets_in(&head) {
        assert!(ours || lower.contains("localhost"), "{head:?}");
    }
}

/// A soul is sound or damaged; a sound one gives a block within its bound.
fn soul(data: &[u8]) {
    if let Ok(soul) = Soul::parse(&String::from_utf8_lossy(data)) {
        assert!(!identity_block(&soul, "Pinch", "Boss").text.is_empty());
    }
}

/// Nothing but our own styling reaches the terminal.
fn markdown(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let plain = crayfish::cli::rendered(&text, false);
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let _ = crayfish::cli::rendered(&text, true);
}

/// A message is taken as any other reader of JSON takes it, or refused in a sentence.
fn chat(data: &[u8]) {
    match crayfish::http::foreign::chat(data) {
        Ok((message, session)) => {
            let value: Value = serde_json::from_slice(data).unwrap();
            assert_eq!(value.get("message").and_then(Value::as_str), Some(message.as_str()));
            assert_eq!(value.get("session").and_then(Value::as_str), session.as_deref());
        }
        Err(told) => assert!(told.len() < 1000, "{told}"),
    }
    let _ = crayfish::http::foreign::others(data);
    if let Some((limit, _)) = crayfish::http::foreign::history(&String::from_utf8_lossy(data)) {
        assert!(limit > 0);
    }
}

/// Whatever stands in the database, a conversation can be shown and goes on. Bodies are divided
/// by their length in one byte.
fn ledger(data: &[u8]) {
    let (strange, mut left) = match data.split_first() {
        Some((first, rest)) => (first % 2 == 1, rest),
        None => return,
    };
    let mut bodies = Vec::new();
    while let Some((length, rest)) = left.split_first() {
        let (body, after) = rest.split_at(usize::from(*length).min(rest.len()));
        bodies.push(body);
        left = after;
    }
    let lines = crayfish::session::foreign::lines(&bodies, strange);
    assert!(lines.len() <= 2 * bodies.len().div_ceil(3));
}

/// A terminal's lines do not depend on how they arrive, and no more than one is lost.
fn terminal(data: &[u8]) {
    let whole = crayfish::connector::foreign::lines(data, data.len(), 64);
    for step in [1, 5, 80] {
        assert_eq!(crayfish::connector::foreign::lines(data, step, 64), whole, "steps of {step}");
    }
    for line in whole.into_iter().flatten() {
        assert!(line.len() <= 64 && !line.contains(&b'\n'));
        let _ = ClientFrame::parse(&line);
    }
}
