//! The events of a conversation and their bytes (pure).
//!
//! Bodies are CBOR maps with named fields. A newer program may add fields and kinds: unknown ones
//! are skipped when an older program reads them, and absent ones have defaults.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::window::PastTurn;
use crate::store::{EventRow, KIND_END, NewEvent};

/// The person's message.
const KIND_USER: &str = "user";

/// The model's answer, whole or as far as it came.
const KIND_ASSISTANT: &str = "assistant";

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The answer is complete.
    Done,
    /// It failed.
    Error,
    /// The person stopped it.
    Cancelled,
    /// The process ended in its middle.
    Interrupted,
}

impl Outcome {
    /// The word in the log, on the wire and in `session::log::Line`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// One line of a conversation, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Number of its turn.
    pub turn: u64,
    /// True if the person said it.
    pub from_person: bool,
    /// What was said or shown.
    pub text: String,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// How the turn ended, on the answer's line: `done`, `error`, `cancelled`, `interrupted`, or
    /// `running`.
    pub outcome: Option<&'static str>,
    /// The client's id of the message, on the person's line.
    pub id: Option<String>,
    /// What else is known of the answer.
    pub about: About,
}

/// What is known of an answer beyond its words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Which backend spoke.
    pub backend: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// From acceptance to the end, in milliseconds; known of answers that were finished.
    pub elapsed_ms: Option<u64>,
    /// From acceptance to the first word, in milliseconds; known of the same answers.
    pub first_word_ms: Option<u64>,
    /// Tokens decoded, where the server told.
    pub tokens: Option<u32>,
    /// Whether the answer was cut at its token bound.
    pub cut: bool,
    /// Whether the middle of the message was left out.
    pub clipped: bool,
    /// Why it failed, as a stable word for programs.
    pub code: Option<String>,
    /// Why it failed, as the sentence that ends the line's text.
    pub words: Option<String>,
}

impl About {
    fn of(assistant: Option<&Assistant>, end: &End) -> Self {
        // An answer that a crash cut off was written down without its speaker and its time.
        let told = |text: &String| (!text.is_empty()).then(|| text.clone());
        Self {
            backend: assistant.and_then(|assistant| told(&assistant.backend)),
            model: assistant.and_then(|assistant| told(&assistant.model)),
            elapsed_ms: assistant.map(|a| a.elapsed_ms).filter(|&elapsed_ms| elapsed_ms > 0),
            first_word_ms: assistant.filter(|a| a.elapsed_ms > 0).map(|a| a.first_word_ms),
            tokens: assistant.and_then(|assistant| assistant.tokens),
            cut: assistant.is_some_and(|assistant| assistant.cut),
            clipped: assistant.is_some_and(|assistant| assistant.sent.is_some()),
            code: end.code.clone(),
            words: end.words.clone(),
        }
    }
}

/// Body of the event that opens a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// What the person typed.
    pub typed: String,
    /// What the model was to read, where that differs (sanitised, with the volatile block).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// The client's id of the message, if it gave one: sent again it opens no second turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Body of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Assistant {
    /// What was decoded, byte for byte; the window repeats it.
    pub raw: String,
    /// What the person was shown, where that differs from `raw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// Which backend spoke.
    pub backend: String,
    /// Its model.
    pub model: String,
    /// The user content as the backend really got it, if it was clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// Tokens decoded, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u32>,
    /// Tokens of the prompt as the server counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    /// True if the answer was cut at its token bound.
    pub cut: bool,
    /// From acceptance to the first word, in milliseconds.
    pub first_word_ms: u64,
    /// From acceptance to the end, in milliseconds.
    pub elapsed_ms: u64,
}

impl Assistant {
    /// What the person was shown.
    #[must_use]
    pub fn shown_text(&self) -> &str {
        self.shown.as_deref().unwrap_or(&self.raw)
    }
}

/// Body of the event that ends a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How.
    pub outcome: Outcome,
    /// A stable word for programs, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The sentence the person read, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl End {
    /// An end without a failure to explain.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self { outcome, code: None, words: None }
    }
}

/// What the log says about one turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Logged {
    pub(super) turn: u64,
    pub(super) user: User,
    pub(super) user_at_ms: i64,
    pub(super) assistant: Option<Assistant>,
    /// Absent while the turn runs or waits.
    pub(super) end: Option<(i64, End)>,
}

impl Logged {
    /// The user content that stands in the ledger.
    pub(super) fn sent(&self) -> &str {
        let clipped = self.assistant.as_ref().and_then(|a| a.sent.as_deref());
        clipped.or(self.user.sent.as_deref()).unwrap_or(&self.user.typed)
    }

    /// The answer that stands in the ledger: the raw one, or what was shown of a broken one.
    pub(super) fn answer(&self) -> &str {
        match (&self.assistant, &self.end) {
            (Some(assistant), Some((_, End { outcome: Outcome::Done, .. }))) => &assistant.raw,
            (Some(assistant), _) => assistant.shown_text(),
            (None, _) => "",
        }
    }

    /// The turn as the ledger holds it.
    pub(super) fn past(&self, outcome: Outcome) -> PastTurn {
        let voice = self.assistant.as_ref().map_or("", |assistant| assistant.backend.as_str());
        PastTurn::new(self.turn, self.sent(), self.answer(), outcome).said_by(voice)
    }

    /// The lines of this turn for people.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> {
        let person = Line {
            turn: self.turn,
            from_person: true,
            text: self.user.typed.clone(),
            at_ms: self.user_at_ms,
            outcome: None,
            id: self.user.id.clone(),
            about: About::default(),
        };
        let answer = self.end.as_ref().map(|(at_ms, end)| {
            let shown = self.assistant.as_ref().map_or("", Assistant::shown_text);
            let words = end.words.as_deref().unwrap_or("");
            let gap = if shown.is_empty() || words.is_empty() { "" } else { "\n\n" };
            Line {
                turn: self.turn,
                from_person: false,
                text: format!("{shown}{gap}{words}"),
                at_ms: *at_ms,
                outcome: Some(end.outcome.as_str()),
                id: None,
                about: About::of(self.assistant.as_ref(), end),
            }
        });
        std::iter::once(person).chain(answer)
    }
}

/// The event that opens a turn.
pub(super) fn user_event(at_ms: i64, user: &User) -> NewEvent {
    NewEvent { at_ms, kind: KIND_USER, body: encode(user) }
}

/// The events that end a turn.
pub(super) fn end_events(at_ms: i64, assistant: Option<&Assistant>, end: &End) -> Vec<NewEvent> {
    let answer = assistant.map(|a| NewEvent { at_ms, kind: KIND_ASSISTANT, body: encode(a) });
    let end = NewEvent { at_ms, kind: KIND_END, body: encode(end) };
    answer.into_iter().chain([end]).collect()
}

/// Puts the events of a session together by turn. Bodies that cannot be read are skipped: one bad
/// row must not make a conversation unreadable.
pub(super) fn gather(rows: &[EventRow]) -> Vec<Logged> {
    let mut turns: BTreeMap<u64, Logged> = BTreeMap::new();
    for row in rows {
        let logged = turns.entry(row.turn).or_default();
        logged.turn = row.turn;
        match row.kind.as_str() {
            KIND_USER => {
                logged.user = decode(row).unwrap_or_default();
                logged.user_at_ms = row.at_ms;
            }
            KIND_ASSISTANT => logged.assistant = decode(row),
            KIND_END => {
                // An end of an unknown outcome is still an end.
                let end = decode(row).unwrap_or_else(|| End::new(Outcome::Error));
                logged.end = Some((row.at_ms, end));
            }
            _ => {}
        }
    }
    turns.into_values().collect()
}

fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail, and these types have only strings and numbers.
    let _ = ciborium::into_writer(body, &mut bytes);
    bytes
}

fn decode<T: DeserializeOwned>(row: &EventRow) -> Option<T> {
    let decoded = ciborium::from_reader(row.body.as_slice());
    if let Err(error) = &decoded {
        tracing::warn!(seq = row.seq, kind = row.kind, %error, "an event cannot be read");
    }
    decoded.ok()
}
