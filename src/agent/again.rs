//! A message that came before, sent again by a client that did not hear that it was taken on: it
//! opens no second turn, and its client hears the first one.

use super::audience::TurnEvents;
use super::door::not_stored;
use super::service::Shared;
use super::words::{self, TurnError};
use super::{Answer, Refused, Turn, TurnEvent};
use crate::session::log::Line;

/// The turn that a message of this id opened in the session; `None` if it did not come before.
pub(super) async fn turn_of(
    shared: &Shared,
    session: &str,
    id: Option<&str>,
) -> Result<Option<Turn>, Refused> {
    let Some(id) = id else { return Ok(None) };
    let Some(turn) = shared.sessions.known(session, id).await.map_err(not_stored)? else {
        return Ok(None);
    };
    let events = match shared.audience.join(session, turn) {
        Some(running) => running,
        None => retold(shared, session, turn).await?,
    };
    Ok(Some(Turn { session: session.to_owned(), turn, events, again: true }))
}

/// An ended turn, from the log.
async fn retold(shared: &Shared, session: &str, turn: u64) -> Result<TurnEvents, Refused> {
    let lines = shared.sessions.earlier(session, turn.saturating_add(1), 2).await;
    let mut lines = lines.map_err(not_stored)?.into_iter();
    let (text, end) = match lines.find(|line| line.turn == turn && !line.from_person) {
        Some(line) => told(line),
        None => (String::new(), failed(None, None)),
    };
    Ok(shared.audience.retell(session, turn, text, end))
}

/// What was shown, and the end.
fn told(line: Line) -> (String, TurnEvent) {
    let Line { text, about, .. } = line;
    match line.outcome {
        Some("done") => {
            let answer = Answer {
                text: text.clone(),
                backend: about.backend.unwrap_or_default(),
                model: about.model.unwrap_or_default(),
                cut: about.cut,
                clipped: about.clipped,
                tokens: about.tokens,
                first_word_ms: about.first_word_ms.unwrap_or_default(),
                elapsed_ms: about.elapsed_ms.unwrap_or_default(),
            };
            (text, TurnEvent::Done(answer))
        }
        Some("cancelled") => (text, TurnEvent::Cancelled),
        _ => {
            let shown = about.words.as_deref().and_then(|words| text.strip_suffix(words));
            let shown = shown.unwrap_or(&text);
            let shown = shown.strip_suffix("\n\n").unwrap_or(shown).to_owned();
            (shown, failed(about.words, about.code.as_deref()))
        }
    }
}

/// A failure; one that left no words was a crash.
fn failed(told: Option<String>, code: Option<&str>) -> TurnEvent {
    let (words, interrupted) = words::for_person(&TurnError::Interrupted);
    TurnEvent::Failed {
        words: told.unwrap_or(words),
        code: code.map_or(interrupted, words::known_code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::log::About;

    fn line(text: &str, outcome: &'static str, about: About) -> Line {
        Line {
            turn: 1,
            from_person: false,
            text: text.to_owned(),
            at_ms: 0,
            outcome: Some(outcome),
            id: None,
            about,
        }
    }

    #[test]
    fn an_end_in_the_log_is_told_as_it_was_the_first_time() {
        let about =
            About { backend: Some("hailo".into()), cut: true, tokens: Some(7), ..About::default() };
        let (text, end) = told(line("Fine.", "done", about));
        let TurnEvent::Done(answer) = end else { panic!("{end:?}") };
        assert_eq!((text.as_str(), answer.text.as_str()), ("Fine.", "Fine."));
        assert_eq!((answer.backend.as_str(), answer.cut, answer.tokens), ("hailo", true, Some(7)));
        let about = About {
            words: Some("No model.".into()),
            code: Some("broke_off".into()),
            ..About::default()
        };
        let failure = TurnEvent::Failed { words: "No model.".into(), code: "broke_off" };
        assert_eq!(told(line("Half\n\nNo model.", "error", about)), ("Half".into(), failure));
        let (text, end) = told(line("Half", "interrupted", About::default()));
        assert!(matches!(end, TurnEvent::Failed { code: "interrupted", .. }), "{end:?}");
        assert_eq!(text, "Half");
        assert_eq!(
            told(line("Ha", "cancelled", About::default())),
            ("Ha".into(), TurnEvent::Cancelled)
        );
    }
}
