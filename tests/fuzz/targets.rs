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

/// What a target does with some bytes.
type Target = fn(&[u8]);

/// A target's name, which is its corpus' directory, and what it does.
pub(crate) const TARGETS: [(&str, Target); 11] = [
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
        let whole = foreign::decode(dialect, data, data.len());
        let bytes = foreign::decode(dialect, data, 1);
        assert_eq!(whole.is_ok(), bytes.is_ok());
        if let (Ok(whole), Ok(bytes)) = (whole, bytes) {
            assert_eq!(whole, bytes);
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
        let mut single = ThinkFilter::new(mode, u32::MAX);
        let mut other = String::new();
        for letter in text.chars() {
            other.push_str(&single.push(letter.encode_utf8(&mut [0; 4])).unwrap_or_default());
        }
        other.push_str(&single.finish());
        assert_eq!(one, other);
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
