//! What happens in a turn, as the frames a client sees (pure).
//!
//! Both doors use this, so that they cannot disagree on what ends a turn.
//!
//! # Invariants
//! - However the events end, the frames end in exactly one terminal frame, and none follows it.
//! - The deltas together are the text of the finished answer (`audience` sees to it).

use jiff::Timestamp;

use super::{Answer, Refused, Turn, TurnEvent};
use crate::session::log::Line;
use crate::session::wire::{Done, HistoryLine, ServerFrame};

/// Turns the events of one turn into frames.
#[derive(Debug)]
pub struct Frames {
    chat_id: String,
    turn: u64,
    ended: bool,
}

impl Frames {
    /// For one turn.
    #[must_use]
    pub fn of(turn: &Turn) -> Self {
        Self { chat_id: turn.session.clone(), turn: turn.turn, ended: false }
    }

    /// Whether the terminal frame was made.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The frames for the next event; `None` means that the events stopped coming.
    pub fn next(&mut self, event: Option<TurnEvent>) -> Vec<ServerFrame> {
        if self.ended {
            return Vec::new();
        }
        let event = event.unwrap_or_else(|| TurnEvent::Failed {
            words: "the turn ended without an answer".to_owned(),
            code: "internal",
        });
        self.ended = event.is_end();
        of_event(&self.chat_id, self.turn, event)
    }
}

/// The frames of one event of a turn.
#[must_use]
pub fn of_event(chat_id: &str, turn: u64, event: TurnEvent) -> Vec<ServerFrame> {
    let chat_id = chat_id.to_owned();
    match event {
        TurnEvent::Waiting { about_s } => vec![ServerFrame::Waiting { chat_id, turn, about_s }],
        TurnEvent::Delta(text) => vec![ServerFrame::Delta { chat_id, text, stream_id: turn }],
        TurnEvent::Done(answer) => {
            let end = ServerFrame::StreamEnd { chat_id: chat_id.clone(), stream_id: turn };
            vec![end, done(chat_id, turn, &answer)]
        }
        TurnEvent::Failed { words, code } => vec![ServerFrame::Error {
            detail: words,
            code: code.to_owned(),
            chat_id: Some(chat_id),
            turn: Some(turn),
        }],
        TurnEvent::Cancelled => vec![ServerFrame::Cancelled { chat_id, turn }],
    }
}

fn done(chat_id: String, turn: u64, answer: &Answer) -> ServerFrame {
    ServerFrame::Done(Done {
        chat_id,
        turn,
        duration_sec: std::time::Duration::from_millis(answer.elapsed_ms).as_secs_f64(),
        elapsed_ms: answer.elapsed_ms,
        first_word_ms: answer.first_word_ms,
        backend: answer.backend.clone(),
        model: answer.model.clone(),
        cut: answer.cut,
        clipped: answer.clipped,
        tokens: answer.tokens,
    })
}

impl Refused {
    /// A stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLong { .. } => "too_long",
            Self::BadSession => "bad_session",
            Self::NoSuchBackend(_) => "no_such_backend",
            Self::Overloaded => "overloaded",
            Self::Stopping => "stopping",
            Self::NotStored(_) => "not_stored",
            Self::NoSuchSession => "no_such_session",
            Self::Running => "running",
            Self::BadTitle { .. } => "bad_title",
        }
    }

    /// The frame that tells a client.
    #[must_use]
    pub fn frame(&self, chat_id: Option<String>) -> ServerFrame {
        ServerFrame::Error {
            detail: self.to_string(),
            code: self.code().to_owned(),
            chat_id,
            turn: None,
        }
    }
}

impl From<Line> for HistoryLine {
    fn from(line: Line) -> Self {
        let at = Timestamp::from_millisecond(line.at_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            role: if line.from_person { "user" } else { "agent" }.to_owned(),
            content: line.text,
            at: at.to_string(),
            turn: line.turn,
            id: line.id,
            outcome: line.outcome.map(str::to_owned),
            backend: line.about.backend,
            model: line.about.model,
            elapsed_ms: line.about.elapsed_ms,
            cut: line.about.cut,
            clipped: line.about.clipped,
            code: line.about.code,
            words: line.about.words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::log::About;

    fn frames() -> Frames {
        Frames { chat_id: "main".into(), turn: 4, ended: false }
    }

    #[test]
    fn every_way_to_end_gives_one_terminal_frame_and_nothing_after_it() {
        let ends = [
            Some(TurnEvent::Done(Answer::default())),
            Some(TurnEvent::Failed { words: "no model".into(), code: "offline" }),
            Some(TurnEvent::Cancelled),
            None,
        ];
        for end in ends {
            let mut turn = frames();
            let mut told = turn.next(Some(TurnEvent::Waiting { about_s: 3 }));
            told.extend(turn.next(Some(TurnEvent::Delta("a".into()))));
            told.extend(turn.next(end.clone()));
            told.extend(turn.next(Some(TurnEvent::Cancelled)));
            told.extend(turn.next(None));
            assert_eq!(told.iter().filter(|frame| frame.is_terminal()).count(), 1, "{end:?}");
            assert!(told.last().is_some_and(ServerFrame::is_terminal), "{end:?}");
            assert!(turn.ended());
        }
    }

    #[test]
    fn a_line_tells_when_it_was_said() {
        let line = Line {
            turn: 2,
            from_person: true,
            text: "hi".into(),
            at_ms: 1_767_225_600_000,
            outcome: None,
            id: None,
            about: About::default(),
        };
        let told = HistoryLine::from(line);
        assert_eq!((told.role.as_str(), told.at.as_str()), ("user", "2026-01-01T00:00:00Z"));
    }
}
