//! What a database may hold that a newer or a damaged program wrote, for the fuzz targets.

use super::log::{self, Line};
use super::recent::Recent;
use super::window::{self, Budget, Newest};
use crate::store::{EventRow, KIND_END};

/// Reads event bodies as those of a session, three to a turn: message, answer and end, or of a
/// kind that no program knows yet where `strange` says so. Gives the lines for people.
#[must_use]
pub fn lines(bodies: &[&[u8]], strange: bool) -> Vec<Line> {
    let rows: Vec<EventRow> = bodies
        .iter()
        .zip(1..)
        .map(|(body, seq)| EventRow {
            seq,
            turn: (seq - 1) / 3 + 1,
            at_ms: 0,
            kind: match seq % 3 {
                _ if strange && seq % 5 == 0 => "dream".to_owned(),
                1 => "user".to_owned(),
                2 => "assistant".to_owned(),
                _ => KIND_END.to_owned(),
            },
            body: body.to_vec(),
        })
        .collect();
    let logged = log::gather(&rows);
    let last = logged.last().map_or(0, |turn| turn.turn);
    let past = Recent::rebuild(last, &logged).past();
    let newest = Newest { turn: last + 1, content: "and now?" };
    // A prompt beyond its budget panics there.
    let budget = Budget { prompt_tokens_max: 400, turns_max: 40 };
    let _ = window::build("be brief", &past, newest, budget);
    logged.iter().flat_map(log::Logged::lines).collect()
}
