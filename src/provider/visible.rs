//! What a person may see of an answer: the think filter and the guard against loops, in one.

use super::fault::Fault;
use super::think::Mode;

/// A streaming filter over one answer.
pub struct Visible;

impl Visible {
    /// For one answer.
    pub fn new(_mode: Mode, _num_predict: u32) -> Self {
        Self
    }
    /// Text.
    pub fn push(&mut self, text: &str) -> Result<String, Fault> {
        Ok(text.to_owned())
    }
    /// Thinking separated by the server.
    pub fn thought(&mut self, _text: &str) -> Result<(), Fault> {
        Ok(())
    }
    /// The rest.
    pub fn finish(&mut self) -> String {
        String::new()
    }
}
