//! What the server and the device remember between requests, and the decisions from it. Pure.
//!
//! Two memories can disagree, and that is the point: the server's *record* of the conversation, by
//! which it decides whether a prompt continues, and the device's *cache*, which holds what was
//! really processed.

use std::time::Duration;

use super::prompt::{Prompt, render, tail_tokens};
use crate::{
    model::{CONTEXT_TOKENS, Model, Release},
    sim::{tokens, voice::Said},
};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Npu {
    /// Model the server believes loaded; recorded before the load is tried.
    pub(super) path: Option<&'static str>,
    /// Whether it really is.
    pub(super) loaded: bool,
    /// A load is under way.
    pub(super) loading: bool,
    pub(super) kv_tokens: u32,
    /// The cache has the part of an answer which the record has not.
    pub(super) dirty: bool,
    pub(super) last_continuation: bool,
    pub(super) system_in_window: bool,
    pub(super) prefilled_tokens: u32,
    /// Simulated time at which the model is unloaded.
    pub(super) expires: Option<Duration>,
    /// 5.1.1 and 5.3: last rendered prompt and answer.
    text: String,
    /// 5.4: the messages, answer included.
    list: Vec<Said>,
}

/// What has to happen before a model can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Ready,
    Load,
    /// The server believes it loaded, and it is not.
    Poisoned,
}

/// What prefill has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) continuation: bool,
    pub(super) tokens: u32,
    pub(super) cached: u32,
}

impl Npu {
    pub(super) fn need(&self, model: &Model) -> Need {
        match (self.path == Some(model.name), self.loaded) {
            (true, true) => Need::Ready,
            (true, false) => Need::Poisoned,
            (false, _) => Need::Load,
        }
    }

    /// The load begins: the path is recorded, the device is emptied. 5.4 keeps its record of the
    /// conversation although the new model has never seen it.
    pub(super) fn begin_load(&mut self, model: &Model, release: Release) {
        let list = std::mem::take(&mut self.list);
        *self = Self { path: Some(model.name), loading: true, ..Self::default() };
        if release == Release::V5_4 {
            self.list = list;
        }
    }

    /// The load ended, well or not.
    pub(super) fn end_load(&mut self, loaded: bool) {
        self.loaded |= loaded;
        self.loading = false;
    }

    pub(super) fn unload(&mut self) {
        *self = Self::default();
    }

    /// Unloads if the keep-alive is over. Returns whether it did.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let over = self.path.is_some() && self.expires.is_some_and(|at| at <= now);
        if over {
            self.unload();
        }
        over
    }

    /// The keep-alive of a request that began at `start`: negative is for ever.
    pub(super) fn keep(&mut self, start: Duration, keep_alive_s: i64) {
        self.expires =
            u64::try_from(keep_alive_s).ok().map(|seconds| start + Duration::from_secs(seconds));
    }

    /// Compares a prompt with the record and takes it up; `None` when the template fails.
    pub(super) fn submit(
        &mut self,
        model: &Model,
        prompt: &Prompt,
        release: Release,
    ) -> Option<Plan> {
        let text = render(model, &prompt.messages)?;
        let rest = match release {
            Release::V5_4 => prompt
                .messages
                .strip_prefix(self.list.as_slice())
                .filter(|rest| !self.list.is_empty() && !rest.is_empty() && !prompt.tools)
                .map(|rest| tail_tokens(model, rest)),
            Release::V5_1_1 | Release::V5_3 => text
                .strip_prefix(self.text.as_str())
                .filter(|rest| !self.text.is_empty() && !rest.is_empty() && !prompt.tools)
                .map(tokens::count),
        };
        let plan = match rest {
            Some(tokens) => Plan { continuation: true, tokens, cached: self.kv_tokens },
            None => Plan { continuation: false, tokens: tokens::count(&text), cached: 0 },
        };
        if !plan.continuation {
            self.kv_tokens = 0;
            self.dirty = false;
            self.system_in_window = true;
        } else if self.kv_tokens == 0 {
            // The stale record of another model: what came before was never processed.
            self.system_in_window = false;
        }
        self.last_continuation = plan.continuation;
        self.prefilled_tokens = plan.tokens;
        self.text = text;
        self.list.clone_from(&prompt.messages);
        self.grow(plan.tokens);
        Some(plan)
    }

    /// Tokens enter the window; what does not fit slides out at the front, the system first.
    pub(super) fn grow(&mut self, tokens: u32) {
        let total = self.kv_tokens.saturating_add(tokens);
        if total > CONTEXT_TOKENS {
            self.system_in_window = false;
        }
        self.kv_tokens = total.min(CONTEXT_TOKENS);
    }

    /// A complete answer is recorded.
    pub(super) fn record(&mut self, answer: &str) {
        self.text.push_str(answer);
        self.list.push(Said { role: "assistant".into(), content: answer.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Release::*, published};

    fn said(role: &str, content: &str) -> Said {
        Said { role: role.into(), content: content.into() }
    }

    fn prompt(messages: &[Said]) -> Prompt {
        Prompt { messages: messages.to_vec(), tools: false }
    }

    fn qwen() -> &'static Model {
        published("qwen2.5:1.5b").unwrap()
    }

    fn conversation() -> Vec<Said> {
        vec![said("system", "Be brief."), said("user", "Hi.")]
    }

    #[test]
    fn only_a_literal_extension_continues() {
        for release in [V5_1_1, V5_3, V5_4] {
            let mut npu = Npu::default();
            let mut talk = conversation();
            assert!(!npu.submit(qwen(), &prompt(&talk), release).unwrap().continuation);
            npu.record("Hello!");
            talk.extend([said("assistant", "Hello!"), said("user", "And now?")]);
            let plan = npu.submit(qwen(), &prompt(&talk), release).unwrap();
            assert!(plan.continuation, "{release:?}");
            assert!(plan.cached > 0 && plan.tokens < 10, "{plan:?}");
            // The same again, an edited answer, or tools are no continuation.
            npu.record("Now.");
            assert!(!npu.submit(qwen(), &prompt(&talk), release).unwrap().continuation);
            npu.record("Now.");
            talk.extend([said("assistant", "Now!"), said("user", "?")]);
            assert!(!npu.submit(qwen(), &prompt(&talk), release).unwrap().continuation);
        }
    }

    #[test]
    fn tools_always_clear() {
        let mut npu = Npu::default();
        let mut talk = conversation();
        npu.submit(qwen(), &prompt(&talk), V5_4).unwrap();
        npu.record("Hello!");
        talk.extend([said("assistant", "Hello!"), said("user", "?")]);
        let with_tools = Prompt { messages: talk, tools: true };
        assert!(!npu.submit(qwen(), &with_tools, V5_4).unwrap().continuation);
    }

    #[test]
    fn the_newest_release_keeps_its_record_over_a_switch_of_models() {
        for (release, stale) in [(V5_1_1, false), (V5_3, false), (V5_4, true)] {
            let mut npu = Npu::default();
            let mut talk = conversation();
            npu.begin_load(qwen(), release);
            npu.submit(qwen(), &prompt(&talk), release).unwrap();
            npu.record("Hello!");
            talk.extend([said("assistant", "Hello!"), said("user", "And you?")]);
            let other = published("qwen2:1.5b").unwrap();
            npu.begin_load(other, release);
            let plan = npu.submit(other, &prompt(&talk), release).unwrap();
            assert_eq!(plan.continuation, stale, "{release:?}");
            assert_eq!(npu.system_in_window, !stale, "{release:?}");
        }
    }

    #[test]
    fn overflow_loses_the_system_message_and_never_exceeds_the_context() {
        let mut npu = Npu::default();
        npu.submit(qwen(), &prompt(&conversation()), V5_1_1).unwrap();
        npu.grow(CONTEXT_TOKENS - npu.kv_tokens);
        assert!(npu.system_in_window);
        npu.grow(1);
        assert!(!npu.system_in_window);
        assert_eq!(npu.kv_tokens, CONTEXT_TOKENS);
    }

    #[test]
    fn the_keep_alive_runs_from_the_start_of_the_request() {
        let mut npu = Npu { path: Some("m"), loaded: true, ..Npu::default() };
        let second = Duration::from_secs(1);
        npu.keep(second, 300);
        assert!(!npu.expire(second * 300));
        assert!(npu.expire(second * 301));
        assert_eq!(npu.path, None);
        npu.path = Some("m");
        npu.keep(second, -1);
        assert!(!npu.expire(Duration::MAX));
    }
}
