//! Prompts as token sequences (pure): rendering, truncation as Ollama does it, and the prefix
//! cache of a slot.
//!
//! A token is the hash of a piece of text. A message is its role's marker, the pieces of its
//! content, and an end marker, so a prompt that continues another shares its tokens as a prefix.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::pieces::pieces;
use super::version::Version;

/// Tokens that a template spends on the start of a message (marker, role, newline).
const START_TOKENS: usize = 3;

/// Default of `num_keep`: tokens at the front that survive a cut.
pub(super) const NUM_KEEP: usize = 4;

/// One token, by identity.
pub(super) type Token = u64;

/// A message as far as the template sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub(super) role: String,
    /// Text.
    pub(super) content: String,
}

/// What became of a prompt that had to fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fitted {
    /// The sequence given to the runner.
    pub(super) tokens: Vec<Token>,
    /// Messages left out, oldest first and never system messages.
    pub(super) dropped: usize,
    /// The sequence itself was cut in its middle, which loses the system prompt.
    pub(super) cut: bool,
}

/// The prompt is longer than the context and the client forbade truncation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong {
    /// Its length.
    pub(super) tokens: usize,
}

fn token(text: &str) -> Token {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn push_start(tokens: &mut Vec<Token>, role: &str) {
    tokens.extend((0..START_TOKENS).map(|part| token(&format!("<|{role}:{part}|>"))));
}

/// Tokens of text without any marker.
pub(super) fn content_tokens(text: &str) -> Vec<Token> {
    pieces(text).iter().map(|piece| token(piece)).collect()
}

/// The end marker that a finished answer and every rendered message carry.
pub(super) fn end_token() -> Token {
    token("<|end|>")
}

/// Renders a conversation and opens the assistant's turn; `tools` is the text of the offered
/// tools, which the templates put at the very front.
pub(super) fn render(tools: &str, messages: &[Message]) -> Vec<Token> {
    let mut tokens = content_tokens(tools);
    for message in messages {
        push_start(&mut tokens, &message.role);
        tokens.extend(content_tokens(&message.content));
        tokens.push(end_token());
    }
    push_start(&mut tokens, "assistant");
    tokens
}

/// Fits a conversation into the context.
///
/// First whole messages leave, oldest first, system messages and the last one excepted. If that
/// is not enough the sequence is cut, keeping `num_keep` tokens and the end.
pub(super) fn fit(
    version: &Version,
    tools: &str,
    messages: &[Message],
    num_ctx: usize,
    truncate: bool,
) -> Result<Fitted, TooLong> {
    let whole = render(tools, messages);
    let limit = version.prompt_limit(num_ctx);
    if whole.len() <= limit {
        return Ok(Fitted { tokens: whole, dropped: 0, cut: false });
    }
    if !truncate && version.knows_truncate() {
        return Err(TooLong { tokens: whole.len() });
    }
    let mut first = 0;
    let mut tokens = whole;
    let mut dropped = 0;
    while tokens.len() > num_ctx && first + 1 < messages.len() {
        dropped += usize::from(messages[first].role != "system");
        first += 1;
        let kept: Vec<Message> = messages
            .iter()
            .enumerate()
            .filter(|(index, message)| *index >= first || message.role == "system")
            .map(|(_, message)| message.clone())
            .collect();
        tokens = render(tools, &kept);
    }
    Ok(cut(version, tokens, num_ctx, NUM_KEEP, dropped))
}

fn cut(
    version: &Version,
    mut tokens: Vec<Token>,
    num_ctx: usize,
    num_keep: usize,
    dropped: usize,
) -> Fitted {
    if tokens.len() <= version.prompt_limit(num_ctx) {
        return Fitted { tokens, dropped, cut: false };
    }
    let keep = num_keep.min(num_ctx / 2);
    let tail = version.cut_length(num_ctx, keep).saturating_sub(keep);
    tokens.drain(keep..tokens.len() - tail);
    Fitted { tokens, dropped, cut: true }
}

/// One slot of a runner: the tokens whose keys and values it still holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot {
    resident: Vec<Token>,
    /// A request is being worked on.
    pub(super) busy: bool,
    /// When it was last given a prompt, in an order of its own.
    pub(super) used: u64,
}

/// Which of the free slots gets a prompt: the one that holds most of it, if that is a tenth of the
/// prompt at least (llama-server's default), and otherwise the one unused for longest.
pub(super) fn choose(slots: &[Slot], prompt: &[Token]) -> Option<usize> {
    let free = || slots.iter().enumerate().filter(|(_, slot)| !slot.busy);
    let best = free().max_by_key(|(_, slot)| slot.common_prefix(prompt))?;
    if best.1.common_prefix(prompt) * 10 >= prompt.len() {
        return Some(best.0);
    }
    free().min_by_key(|(_, slot)| slot.used).map(|(index, _)| index)
}

impl Slot {
    /// Tokens held.
    pub(super) fn resident(&self) -> usize {
        self.resident.len()
    }

    /// Length of the prefix that `prompt` shares with what the slot holds.
    pub(super) fn common_prefix(&self, prompt: &[Token]) -> usize {
        self.resident.iter().zip(prompt).take_while(|(held, asked)| held == asked).count()
    }

    /// Takes a prompt: answers how many of its tokens must be computed. The last one always is,
    /// because its logits are needed.
    pub(super) fn prefill(&mut self, prompt: &[Token]) -> usize {
        let cached = self.common_prefix(prompt).min(prompt.len().saturating_sub(1));
        self.resident.clear();
        self.resident.extend_from_slice(prompt);
        prompt.len() - cached
    }

    /// Takes note of tokens that were decoded after the prompt.
    pub(super) fn decoded(&mut self, tokens: &[Token]) {
        self.resident.extend_from_slice(tokens);
    }

    /// Keeps only the first `tokens`: a prefill that was abandoned half way.
    pub(super) fn keep(&mut self, tokens: usize) {
        self.resident.truncate(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, words: usize) -> Message {
        let content = (0..words).map(|n| format!("{role}{n}")).collect::<Vec<_>>().join(" ");
        Message { role: role.to_owned(), content }
    }

    #[test]
    fn a_continued_conversation_shares_everything_before_the_new_message() {
        let mut messages = vec![message("system", 20), message("user", 10)];
        let first = render("", &messages);
        let mut slot = Slot::default();
        assert_eq!(slot.prefill(&first), first.len());
        slot.decoded(&content_tokens("It is noon."));
        messages.push(Message { role: "assistant".to_owned(), content: "It is noon.".to_owned() });
        messages.push(message("user", 5));
        let second = render("", &messages);
        let fresh = slot.prefill(&second);
        assert_eq!(fresh, second.len() - first.len() - content_tokens("It is noon.").len());
    }

    #[test]
    fn an_identical_prompt_still_computes_its_last_token() {
        let tokens = render("", &[message("user", 10)]);
        let mut slot = Slot::default();
        slot.prefill(&tokens);
        assert_eq!(slot.prefill(&tokens), 1);
        slot.keep(3);
        assert_eq!(slot.prefill(&tokens), tokens.len() - 3);
    }

    #[test]
    fn a_foreign_prompt_takes_the_slot_unused_for_longest() {
        let prompt = |role: &str| render("", &[message(role, 50)]);
        let mut slots = vec![Slot::default(), Slot { used: 1, ..Slot::default() }];
        assert_eq!(choose(&slots, &prompt("system")), Some(0));
        slots[0].prefill(&prompt("system"));
        slots[0].used = 2;
        assert_eq!(choose(&slots, &prompt("system")), Some(0));
        assert_eq!(choose(&slots, &prompt("user")), Some(1));
        slots[1].busy = true;
        assert_eq!(choose(&slots, &prompt("user")), Some(0));
        slots[0].busy = true;
        assert_eq!(choose(&slots, &prompt("user")), None);
    }

    #[test]
    fn old_messages_leave_before_the_sequence_is_cut() {
        let version = Version::parse("0.33.0");
        let messages = [
            message("system", 10),
            message("user", 40),
            message("assistant", 40),
            message("user", 9),
        ];
        let fitted = fit(&version, "", &messages, 100, true).unwrap();
        assert_eq!((fitted.dropped, fitted.cut), (1, false));
        let fitted = fit(&version, "", &messages, 60, true).unwrap();
        assert_eq!((fitted.dropped, fitted.cut), (2, false));
        let alone = fit(&version, "", &messages, 30, true).unwrap();
        assert_eq!((alone.dropped, alone.cut, alone.tokens.len()), (2, true, 17));
        assert_eq!(fit(&Version::parse("0.29"), "", &messages, 30, true).unwrap().tokens.len(), 30);
    }

    #[test]
    fn forbidding_truncation_turns_the_cut_into_an_error_where_the_field_exists() {
        let messages = [message("user", 200)];
        let new = fit(&Version::parse("0.33"), "", &messages, 100, false);
        assert_eq!(new, Err(TooLong { tokens: render("", &messages).len() }));
        assert!(fit(&Version::parse("0.12.0"), "", &messages, 100, false).unwrap().cut);
    }
}
