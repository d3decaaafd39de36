//! `GET /state`: what is true now. The seed's names come first, then ours.

use serde::Serialize;

use crate::session::wire::Status;
use crate::session::wire::body::BodyStatus;
use crate::snapshot::Snapshot;

/// The state. What the daemon does not have is `null`, never invented.
#[derive(Debug, Serialize)]
pub(super) struct State {
    sleeping: bool,
    stressed: bool,
    vitals_describe: String,
    mood_dominant: Option<String>,
    mood_active_channel: Option<String>,
    mood_active_intensity: Option<f32>,
    brain_online: bool,
    brain_backend: String,
    brain_last_error: Option<String>,
    #[serde(flatten)]
    status: Status,
}

/// The present, without the last beats.
fn now(snapshot: &Snapshot) -> State {
    let mood = snapshot.mood.as_ref();
    State {
        sleeping: snapshot.body.sleeping,
        stressed: snapshot.body.stress.active,
        vitals_describe: snapshot.body.describe.clone(),
        mood_dominant: mood.map(|mood| mood.dominant.clone()),
        mood_active_channel: mood.map(|mood| mood.active_channel.clone()),
        mood_active_intensity: mood.map(|mood| mood.active_intensity),
        brain_online: snapshot.online,
        brain_backend: snapshot.active_backend.clone(),
        brain_last_error: snapshot.last_error.clone(),
        status: Status::from(snapshot),
    }
}

/// The present and the last beats.
pub(super) fn with_history(snapshot: &Snapshot) -> State {
    with_beats_after(snapshot, 0)
}

/// The present and the beats after the first `pulses` since the start.
pub(super) fn with_beats_after(snapshot: &Snapshot, pulses: u64) -> State {
    let mut state = now(snapshot);
    state.status.body = BodyStatus::with_beats_after(snapshot, pulses);
    state
}
