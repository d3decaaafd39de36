//! After the daemon was lost in the middle of an answer.

use std::time::Duration;

use super::super::exchange::Interrupts;
use super::super::link::{Link, LinkError};
use super::super::place::Places;
use crate::session::wire::{ClientFrame, HistoryLine, ServerFrame};

/// First wait before trying again; it doubles. A restart takes about this.
const WAIT_FIRST: Duration = Duration::from_millis(250);
/// Longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// Tries before giving up: a good half minute, the time of a boot.
const TRIES_MAX: usize = 12;
/// Between two looks at a turn that still runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks at a turn that still runs: as long as the longest answer takes on the NPU.
const LOOKS_MAX: usize = 3600;
/// Lines in which the lost turn must be.
const LINES: usize = 8;

/// What was lost.
pub(super) struct Lost<'a> {
    pub(super) session: Option<&'a str>,
    pub(super) text: &'a str,
    /// The turn's number, if a frame of it was seen.
    pub(super) turn: Option<u64>,
    /// The newest turn before it.
    pub(super) after: u64,
}

/// What the log has of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Not even the message.
    Nothing,
    /// The message alone.
    Message {
        /// Its turn.
        turn: u64,
    },
    /// An answer, whole or in part.
    Answer {
        /// Its turn.
        turn: u64,
        /// What was shown of it.
        text: String,
        /// How it ended; `running` if it did not yet.
        outcome: String,
    },
}

/// Connects again and looks into the log; `None` if the daemon does not come back in time or the
/// person does not want to wait.
pub(super) async fn recover(
    places: &Places,
    lost: &Lost<'_>,
    interrupts: &mut Interrupts,
) -> Option<(Link, Kept)> {
    let searching = async {
        let mut wait = WAIT_FIRST;
        for _ in 0..TRIES_MAX {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
            let Ok(mut link) = Link::open(places).await else { continue };
            if let Ok(kept) = look(&mut link, lost).await {
                return Some((link, kept));
            }
        }
        None
    };
    tokio::select! {
        biased;
        () = interrupts.next() => None,
        found = searching => found,
    }
}

/// Looks until the lost turn does not run any more.
async fn look(link: &mut Link, lost: &Lost<'_>) -> Result<Kept, LinkError> {
    let session = lost.session.map(str::to_owned);
    for _ in 0..LOOKS_MAX {
        let kept = kept(&history(link, session.clone(), LINES).await?, lost);
        match &kept {
            Kept::Answer { outcome, .. } if outcome == "running" => {}
            _ => return Ok(kept),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(LinkError::Refused("the answer does not end".into()))
}

/// The last lines of a conversation.
pub(super) async fn history(
    link: &mut Link,
    session: Option<String>,
    limit: usize,
) -> Result<Vec<HistoryLine>, LinkError> {
    link.request(&ClientFrame::History { chat_id: session, limit, before: None }, |frame| {
        match frame {
            ServerFrame::History { turns, .. } => Some(turns),
            _ => None,
        }
    })
    .await
}

/// What the lines have of the lost turn. Without its number it is the newest of the person's
/// lines, if that is newer than what was seen and says the same.
fn kept(lines: &[HistoryLine], lost: &Lost<'_>) -> Kept {
    let is_ours = |line: &&HistoryLine| {
        line.role == "user"
            && match lost.turn {
                Some(turn) => line.turn == turn,
                None => line.turn > lost.after && same(&line.content, lost.text),
            }
    };
    let Some(message) = lines.iter().rev().find(is_ours) else { return Kept::Nothing };
    let turn = message.turn;
    match lines.iter().rev().find(|line| line.role != "user" && line.turn == turn) {
        None => Kept::Message { turn },
        Some(answer) => Kept::Answer {
            turn,
            text: answer.content.clone(),
            outcome: answer.outcome.clone().unwrap_or_else(|| "done".into()),
        },
    }
}

/// Whether two texts are the same but for white space and controls, which the agent may clean.
fn same(one: &str, other: &str) -> bool {
    let bare = |c: &char| !c.is_whitespace() && !c.is_control();
    one.chars().filter(bare).eq(other.chars().filter(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(role: &str, turn: u64, content: &str, outcome: Option<&str>) -> HistoryLine {
        HistoryLine {
            role: role.into(),
            content: content.into(),
            at: "2026-01-01T00:00:00Z".into(),
            turn,
            outcome: outcome.map(Into::into),
            ..HistoryLine::default()
        }
    }

    #[test]
    fn the_lost_turn_is_found_by_its_number_or_its_words() {
        let lines = [
            line("user", 4, "yes", None),
            line("agent", 4, "old", Some("done")),
            line("user", 5, "yes", None),
            line("agent", 5, "ne", Some("interrupted")),
            line("user", 6, "alone", None),
        ];
        let lost = |text, turn, after| Lost { session: None, text, turn, after };
        let answer = |turn, text: &str, outcome: &str| Kept::Answer {
            turn,
            text: text.into(),
            outcome: outcome.into(),
        };
        let table = [
            (lost("yes", Some(5), 4), answer(5, "ne", "interrupted")),
            (lost("other", Some(4), 3), answer(4, "old", "done")),
            (lost(" y\u{0}es\n", None, 4), answer(5, "ne", "interrupted")),
            (lost("alone", None, 5), Kept::Message { turn: 6 }),
            (lost("yes", None, 5), Kept::Nothing),
            (lost("never sent", None, 4), Kept::Nothing),
            (lost("yes", Some(9), 4), Kept::Nothing),
        ];
        for (lost, expected) in table {
            assert_eq!(kept(&lines, &lost), expected, "{:?} {:?}", lost.text, lost.turn);
        }
    }
}
