//! The ledger the model sees: which past turns stand in a prompt (pure).
//!
//! hailo-ollama decodes on only if a prompt literally continues the last one, so the window keeps
//! its start as long as it can. When the next request would not fit, whole old turns leave until
//! `KEEP_PERCENT` of the budget is used, and the turns after that are continuations again.
//!
//! # Invariants
//! - The system block comes first and is not touched; the newest message is last and the roles
//!   alternate.
//! - The estimate of the messages never exceeds the budget.
//! - The start is a function of the log and the budget alone (of the turns of this epoch and the
//!   one before, see `limits::WINDOW_EPOCH_TURNS`), so a restart finds the same window.
//! - Turns without answer text leave no trace.

use std::sync::Arc;

use super::log::Outcome;
use crate::limits;
use crate::provider::backend::{Message, Role};
use crate::provider::budget;

/// Stands before the user message of a turn whose answer broke off. At the head, so that the
/// prompt is no literal continuation of the aborted one, whose cache is dirty on the NPU.
pub const BROKEN_MARK: &str = "(My answer to this was cut short.) ";

/// Part of the budget that stays in use when old turns leave. Lower moves the start more rarely
/// but forgets more at once; at 60 a typical conversation on the NPU moves every ten turns.
const KEEP_PERCENT: u32 = 60;

/// One past turn as the ledger holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastTurn {
    turn: u64,
    sent: Arc<str>,
    answer: Arc<str>,
    outcome: Outcome,
    /// Which backend answered; empty where that is not known.
    voice: Arc<str>,
    /// Whether the texts are still here; the counts always are.
    gone: bool,
    /// Tokens of the user message alone, as it was when it was the newest.
    newest_tokens: u32,
    /// Tokens of both messages as they stand in the ledger.
    tokens: u32,
}

impl PastTurn {
    /// A turn that ended. `answer` is the raw answer, or what was shown of one that broke off.
    #[must_use]
    pub fn new(turn: u64, sent: &str, answer: &str, outcome: Outcome) -> Self {
        let newest_tokens = budget::message_tokens(sent);
        let mut past = Self {
            turn,
            sent: sent.into(),
            answer: answer.into(),
            outcome,
            voice: Arc::default(),
            gone: false,
            newest_tokens,
            tokens: 0,
        };
        past.tokens = budget::message_tokens(&past.user_content())
            .saturating_add(budget::message_tokens(answer));
        past
    }

    /// The same turn, answered by this backend.
    #[must_use]
    pub fn said_by(self, backend: &str) -> Self {
        Self { voice: backend.into(), ..self }
    }

    /// Its number.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Bytes of text it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sent.len() + self.answer.len()
    }

    /// Gives up the text and keeps the counts. No window holds this turn any more.
    pub fn let_go(&mut self) {
        self.gone = true;
        self.sent = "".into();
        self.answer = "".into();
    }

    /// Whether it has an answer and so a place in the ledger.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.gone || !self.answer.is_empty()
    }

    fn user_content(&self) -> String {
        match self.outcome {
            Outcome::Done => self.sent.to_string(),
            Outcome::Error | Outcome::Cancelled | Outcome::Interrupted => {
                format!("{BROKEN_MARK}{}", self.sent)
            }
        }
    }
}

/// What a prompt may take. The answer's tokens and the margin are already subtracted, and are the
/// same for every turn of a backend: a budget that changes moves the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Tokens of all messages together.
    pub prompt_tokens_max: u32,
    /// Past turns, at most `limits::WINDOW_TURNS_MAX` of which are used.
    pub turns_max: u32,
}

/// The message that is to be answered.
#[derive(Debug, Clone, Copy)]
pub struct Newest<'a> {
    /// Its turn.
    pub turn: u64,
    /// What the model is to read.
    pub content: &'a str,
}

/// A prompt that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// System, past turns, newest.
    pub messages: Vec<Message>,
    /// Pessimistic count of the messages' tokens.
    pub prompt_tokens: u32,
    /// The newest content as it is in the messages, if its middle had to be left out. The log
    /// must be told (`Assistant::sent`).
    pub clipped: Option<String>,
    /// The oldest past turn in it.
    pub first_turn: Option<u64>,
    /// The backends whose complete answers are in it, each once.
    pub voices: Vec<Arc<str>>,
}

/// The budget has no room for any message beside the system block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the identity block takes {system_tokens} of {prompt_tokens_max} prompt tokens")]
pub struct NoRoom {
    /// Tokens of the system block.
    pub system_tokens: u32,
    /// Tokens the prompt may have.
    pub prompt_tokens_max: u32,
}

/// Builds the prompt for `newest` after the turns in `past`, oldest first.
///
/// # Errors
/// [`NoRoom`] if not even a clipped message fits.
pub fn build(
    system: &str,
    past: &[PastTurn],
    newest: Newest<'_>,
    budget: Budget,
) -> Result<Window, NoRoom> {
    let system_tokens = budget::message_tokens(system);
    let room = budget.prompt_tokens_max.saturating_sub(system_tokens);
    let clipped =
        (budget::message_tokens(newest.content) > room).then(|| clip(newest.content, room));
    if clipped.as_deref() == Some("") {
        let prompt_tokens_max = budget.prompt_tokens_max;
        return Err(NoRoom { system_tokens, prompt_tokens_max });
    }
    let content = clipped.as_deref().unwrap_or(newest.content);
    let turns = reachable(past, newest.turn);
    let bounds = Bounds {
        tokens: room,
        tokens_kept: (budget.prompt_tokens_max / 100 * KEEP_PERCENT).saturating_sub(system_tokens),
        turns: to_usize(budget.turns_max.min(limits::WINDOW_TURNS_MAX)),
    };
    let start = start(&turns, newest.turn, budget::message_tokens(content), bounds);
    let mut messages = vec![Message { role: Role::System, content: system.to_owned() }];
    let mut voices = Vec::new();
    for past in &turns[start..] {
        if past.outcome == Outcome::Done && !voices.contains(&past.voice) {
            voices.push(Arc::clone(&past.voice));
        }
        messages.push(Message { role: Role::User, content: past.user_content() });
        messages.push(Message { role: Role::Assistant, content: past.answer.to_string() });
    }
    messages.push(Message { role: Role::User, content: content.to_owned() });
    let prompt_tokens = budget::prompt_tokens(&messages);
    debug_assert!(prompt_tokens <= budget.prompt_tokens_max);
    let first_turn = turns.get(start).map(|past| past.turn);
    Ok(Window { messages, prompt_tokens, clipped, first_turn, voices })
}

/// Oldest turn that a window for `turn` may depend on; what is older need not be kept.
#[must_use]
pub fn oldest_needed(turn: u64) -> u64 {
    let epoch = turn / limits::WINDOW_EPOCH_TURNS;
    epoch.saturating_sub(1) * limits::WINDOW_EPOCH_TURNS
}

/// The most of a text, with its middle left out, that counts as a message of at most `tokens`.
fn clip(text: &str, tokens: u32) -> String {
    let (mut fits, mut too_long) = (0, text.len());
    while too_long - fits > 1 {
        let middle = fits.midpoint(too_long);
        if budget::message_tokens(&clip_middle(text, middle)) <= tokens {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    clip_middle(text, fits)
}

/// Shortens a text to at most `bytes_max` bytes by leaving out its middle and saying how much.
/// The ends stay: questions stand at the beginning or at the end of long messages.
#[must_use]
pub fn clip_middle(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let note = |left_out: usize| format!("\n[… {left_out} characters left out …]\n");
    // No note is longer than the one for everything.
    let Some(keep) = bytes_max.checked_sub(note(text.len()).len()) else {
        return text[..text.floor_char_boundary(bytes_max)].to_owned();
    };
    let head = &text[..text.floor_char_boundary(keep / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - keep / 2)..];
    let left_out = text[head.len()..text.len() - tail.len()].chars().count();
    format!("{head}{}{tail}", note(left_out))
}

/// What past turns and the newest message may take together.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    tokens: u32,
    tokens_kept: u32,
    turns: usize,
}

/// Turns before `newest` that count, oldest first.
fn reachable(past: &[PastTurn], newest: u64) -> Vec<&PastTurn> {
    let oldest = oldest_needed(newest);
    past.iter().filter(|p| p.turn >= oldest && p.turn < newest && p.is_answered()).collect()
}

/// Index of the first turn in the window: the start is carried from turn to turn through the
/// epoch, as it was when each of them was the newest.
fn start(turns: &[&PastTurn], newest: u64, newest_tokens: u32, bounds: Bounds) -> usize {
    // sums[i] are the tokens of the turns before i; sums of u64 cannot overflow.
    let mut sums = vec![0_u64];
    for past in turns {
        sums.push(sums.last().copied().unwrap_or(0) + u64::from(past.tokens));
    }
    let needs = |from: usize, to: usize, tokens: u32| sums[to] - sums[from] + u64::from(tokens);
    let fresh = |to: usize, tokens: u32| {
        let turns_kept = (bounds.turns * to_usize(KEEP_PERCENT) / 100).max(bounds.turns.min(1));
        (to.saturating_sub(turns_kept)..to)
            .find(|&from| needs(from, to, tokens) <= u64::from(bounds.tokens_kept))
            .unwrap_or(to)
    };
    let epoch_start = newest / limits::WINDOW_EPOCH_TURNS * limits::WINDOW_EPOCH_TURNS;
    let in_epoch = turns.partition_point(|p| p.turn < epoch_start);
    let mut start = None;
    let newest_of = (in_epoch..turns.len()).map(|i| turns[i].newest_tokens);
    for (to, tokens) in (in_epoch..).zip(newest_of.chain([newest_tokens])) {
        start = Some(match start {
            Some(from)
                if needs(from, to, tokens) <= u64::from(bounds.tokens)
                    && to - from <= bounds.turns =>
            {
                from
            }
            _ => fresh(to, tokens),
        });
    }
    let first_here = turns.iter().rposition(|p| p.gone).map_or(0, |last_gone| last_gone + 1);
    start.unwrap_or(turns.len()).max(first_here)
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
