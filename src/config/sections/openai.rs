//! Section `openai`: a server with an OpenAI-compatible interface (pure).

use crate::config::key::{AnyKey, Key};
use crate::config::secrets::Secret;
use crate::config::value::Url;
use crate::config::values::Values;
use crate::limits::CONTEXT_TOKENS_MIN;

/// The server.
pub const URL: Key<Option<Url>> = Key::maybe_url(
    "openai.url",
    "The server's URL up to, not including, /chat/completions; e.g. \
     http://192.168.1.20:8080/v1. null: no such server.",
);

/// Its model.
pub const MODEL: Key<Option<String>> =
    Key::maybe_text("openai.model", 200, "Model on that server.");

/// Its key.
pub const API_KEY: Key<Option<Secret>> =
    Key::secret("openai.api_key", "The server's key, if it wants one. Local servers do not.");

/// The model's context.
pub const CONTEXT: Key<u32> = Key::count(
    "openai.context_tokens",
    4096,
    (CONTEXT_TOKENS_MIN, 1_048_576),
    "tokens",
    "Context of that model. The interface does not tell it, so it must be set here.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[&URL, &MODEL, &API_KEY, &CONTEXT];

/// Settings of the section, where a server is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Openai {
    /// URL up to, not including, `/chat/completions`.
    pub url: Url,
    /// The model's name.
    pub model: String,
    /// Sent as a bearer token.
    pub api_key: Option<Secret>,
    /// The model's context, in tokens.
    pub context_tokens: u32,
}

impl Openai {
    /// Builds the settings; nothing if there is no such server.
    #[must_use]
    pub fn new(values: &Values) -> Option<Self> {
        Some(Self {
            url: values.get(&URL)?,
            model: values.get(&MODEL)?,
            api_key: values.get(&API_KEY),
            context_tokens: values.get(&CONTEXT),
        })
    }
}
