//! What a person may see of an answer: the guard against loops and garbage, then the think
//! filter, as one streaming step (pure).

use super::fault::Fault;
use super::guard::Guard;
use super::think::{ThinkFilter, ThinkMode};

/// The filters over one answer.
pub(super) struct Visible {
    guard: Guard,
    think: ThinkFilter,
}

impl Visible {
    /// For an answer of at most `num_predict` tokens.
    pub(super) fn new(mode: ThinkMode, num_predict: u32) -> Self {
        Self { guard: Guard::default(), think: ThinkFilter::new(mode, num_predict) }
    }

    /// Takes a token and gives out what is visible of it, often nothing.
    ///
    /// # Errors
    /// `BadOutput` and `ThinkOverrun`.
    pub(super) fn push(&mut self, text: &str) -> Result<String, Fault> {
        let clean = self.guard.push(text)?;
        self.think.push(&clean)
    }

    /// A token of thinking that the server kept apart.
    ///
    /// # Errors
    /// `ThinkOverrun`.
    pub(super) fn thought(&mut self) -> Result<(), Fault> {
        self.think.thought()
    }

    /// Ends the answer and gives out what was held back.
    pub(super) fn finish(&mut self) -> String {
        self.think.finish()
    }
}
