//! What a model server has in its cache, as far as we know from what we sent (pure).
//!
//! hailo-ollama prefills only the remainder of a prompt that literally continues its last one;
//! Ollama reuses the longest common prefix. So the newest prompt is compared with the last one:
//! to tell the person how long the first word takes, and never to let hailo-ollama continue on a
//! cache that holds half an answer which its record does not know of (specification 1.4).

use std::hash::{DefaultHasher, Hash, Hasher};

use super::backend::{Message, Role};
use super::budget;

/// How a prompt relates to the server's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// It literally continues the last exchange; only `fresh_tokens` are prefilled.
    Continues {
        /// Tokens to prefill, estimated.
        fresh_tokens: u32,
    },
    /// It shares only its first messages with the last prompt. Ollama prefills the rest; on
    /// hailo-ollama everything is prefilled.
    Shares {
        /// Tokens beyond the common messages, estimated.
        fresh_tokens: u32,
    },
    /// It extends a prompt whose answer was aborted, or one that may have been while an earlier
    /// process asked: hailo-ollama would decode on a cache that holds half an answer.
    ExtendsAborted,
}

/// Aborted prompts remembered at most. Requests that a server refuses in between leave its cache
/// as it was; after this many in a row the breaker is open.
const SUSPECTS_MAX: usize = 4;

/// The last prompt sent to a server.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    /// Fingerprints of its messages, the answer last once it is complete.
    fingerprints: Vec<u64>,
    /// Whether the answer is still being decoded or was aborted.
    aborted: bool,
    /// Prompts aborted before the last one, without a complete answer since: if the last one was
    /// refused, the cache still holds one of these.
    suspects: Vec<Vec<u64>>,
    /// The server may still hold what an earlier process of ours was answered, or half of it.
    inherited: bool,
}

impl Cache {
    /// Of a server that may have run before this process did.
    #[must_use]
    pub fn inherited() -> Self {
        Self { inherited: true, ..Self::default() }
    }

    /// Compares a prompt with the last one. `relayed`: another backend has answered a turn in it,
    /// possibly after this one was asked the same and aborted. Without such a turn a prompt
    /// extends nothing that an earlier process left half done: broken turns stand marked in the
    /// conversation, and a complete answer has replaced whatever was there before.
    #[must_use]
    pub fn compare(&self, messages: &[Message], relayed: bool) -> Reuse {
        let common = common(&self.fingerprints, messages);
        let fresh_tokens = budget::prompt_tokens(&messages[common..]);
        let extended = |known: &[u64], common: usize| {
            common == known.len() && common > 0 && common < messages.len()
        };
        let suspected =
            self.suspects.iter().any(|known| extended(known, self::common(known, messages)));
        if suspected || (self.inherited && relayed) {
            return Reuse::ExtendsAborted;
        }
        match (extended(&self.fingerprints, common), self.aborted) {
            (true, true) => Reuse::ExtendsAborted,
            (true, false) => Reuse::Continues { fresh_tokens },
            (false, _) => Reuse::Shares { fresh_tokens },
        }
    }

    /// A prompt goes out. Until `finished`, its answer counts as aborted.
    pub fn started(&mut self, messages: &[Message]) {
        if self.aborted {
            if self.suspects.len() == SUSPECTS_MAX {
                self.suspects.remove(0);
            }
            self.suspects.push(std::mem::take(&mut self.fingerprints));
        }
        self.fingerprints = messages.iter().map(|m| fingerprint(m.role, &m.content)).collect();
        self.aborted = true;
    }

    /// The answer is complete, as decoded.
    pub fn finished(&mut self, answer: &str) {
        self.fingerprints.push(fingerprint(Role::Assistant, answer));
        self.aborted = false;
        self.suspects.clear();
        self.inherited = false;
    }

    /// Whether it holds a conversation up to its last answer, which is worth keeping.
    #[must_use]
    pub fn holds_exchange(&self) -> bool {
        !self.fingerprints.is_empty() && !self.aborted
    }

    /// The server has lost or released its cache.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// How many of the known messages the prompt begins with.
fn common(known: &[u64], messages: &[Message]) -> usize {
    let same = |(known, message): &(&u64, &Message)| {
        **known == fingerprint(message.role, &message.content)
    };
    known.iter().zip(messages).take_while(same).count()
}

fn fingerprint(role: Role, content: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    role.as_str().hash(&mut hasher);
    content.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(texts: &[&str]) -> Vec<Message> {
        let role = |i| match i {
            0 => Role::System,
            i if i % 2 == 1 => Role::User,
            _ => Role::Assistant,
        };
        texts
            .iter()
            .enumerate()
            .map(|(i, text)| Message { role: role(i), content: (*text).to_owned() })
            .collect()
    }

    #[test]
    fn only_a_complete_exchange_is_worth_keeping() {
        let mut cache = Cache::default();
        assert!(!cache.holds_exchange(), "nothing was sent");
        cache.started(&prompt(&["s", "q"]));
        assert!(!cache.holds_exchange(), "the answer is not complete");
        cache.finished("a");
        assert!(cache.holds_exchange());
        cache.forget();
        assert!(!cache.holds_exchange());
    }

    #[test]
    fn only_the_literal_continuation_of_a_complete_answer_continues() {
        let mut cache = Cache::default();
        let all = |texts: &[&str]| budget::prompt_tokens(&prompt(texts));
        let first = ["be brief", "hello"];
        assert_eq!(
            cache.compare(&prompt(&first), false),
            Reuse::Shares { fresh_tokens: all(&first) }
        );
        cache.started(&prompt(&first));
        cache.finished("hi");

        let next = prompt(&["be brief", "hello", "hi", "how are you"]);
        let fresh_tokens = budget::prompt_tokens(&next[3..]);
        assert_eq!(cache.compare(&next, false), Reuse::Continues { fresh_tokens });

        let other = prompt(&["be brief", "hello", "hi!", "how are you"]);
        let fresh_tokens = budget::prompt_tokens(&other[2..]);
        assert_eq!(cache.compare(&other, false), Reuse::Shares { fresh_tokens });
    }

    #[test]
    fn extending_an_aborted_prompt_is_seen_and_repeating_it_is_not_that() {
        let mut cache = Cache::default();
        let sent = prompt(&["be brief", "hello"]);
        cache.started(&sent);
        let extends = prompt(&["be brief", "hello", "half an ans", "go on"]);
        assert_eq!(cache.compare(&extends, false), Reuse::ExtendsAborted);
        assert_eq!(cache.compare(&sent, false), Reuse::Shares { fresh_tokens: 0 });
        let marked = prompt(&["be brief", "[stopped] hello", "half an ans", "go on"]);
        assert!(matches!(cache.compare(&marked, false), Reuse::Shares { .. }));
        cache.forget();
        assert!(matches!(cache.compare(&extends, false), Reuse::Shares { .. }));
    }

    #[test]
    fn what_an_earlier_process_may_have_left_half_done_is_not_extended() {
        let mut cache = Cache::inherited();
        let next = prompt(&["be brief", "hello", "hi", "how are you"]);
        assert_eq!(cache.compare(&next, true), Reuse::ExtendsAborted, "the other one said hi");
        assert!(matches!(cache.compare(&next, false), Reuse::Shares { .. }), "this one did");
        cache.started(&prompt(&["be brief", "who is there"]));
        assert_eq!(cache.compare(&next, true), Reuse::ExtendsAborted, "that may be refused");
        cache.finished("me");
        assert!(matches!(cache.compare(&next, true), Reuse::Shares { .. }), "it was answered");
    }

    #[test]
    fn a_refused_request_in_between_does_not_make_the_aborted_one_forgotten() {
        let mut cache = Cache::default();
        cache.started(&prompt(&["be brief", "hello"]));
        cache.started(&prompt(&["be brief", "another conversation"]));
        let extends = prompt(&["be brief", "hello", "from elsewhere", "go on"]);
        assert_eq!(cache.compare(&extends, false), Reuse::ExtendsAborted);
        cache.finished("fine");
        assert!(
            matches!(cache.compare(&extends, false), Reuse::Shares { .. }),
            "its cache was replaced"
        );
    }
}
