//! Section `hardware`: the model servers on this machine and the order of the backends (pure).

use crate::config::key::{AnyKey, Key};
use crate::config::value::Url;
use crate::config::values::Values;
use crate::limits::CONTEXT_TOKENS_MIN;

/// Longest model name, in bytes; names with registry and tag stay below.
const MODEL_BYTES: (usize, usize) = (1, 200);

/// Words for the backends, as slots and requests name them.
const BACKENDS: &[&str] = &["hailo", "ollama", "openai", "reserve"];

/// Use the NPU.
pub const NPU: Key<bool> = Key::flag(
    "hardware.npu_acceleration",
    true,
    "Ask the NPU (hailo-ollama) first and the CPU (Ollama) if it cannot answer. With false only \
     the CPU is asked. The three *_backend keys below override this order.",
);

/// The NPU's server.
pub const HAILO_URL: Key<Url> = Key::url(
    "hardware.hailo_ollama_url",
    "http://127.0.0.1:8000",
    "Where hailo-ollama listens. \"localhost\" is taken as 127.0.0.1: it listens on IPv4 only.",
);

/// The NPU's model.
pub const HAILO_MODEL: Key<String> = Key::text(
    "hardware.hailo_model",
    "qwen2.5-instruct:1.5b",
    MODEL_BYTES,
    "Model on the NPU. Other spellings of the same model are found too.",
);

/// The CPU's server.
pub const CPU_URL: Key<Url> =
    Key::url("hardware.cpu_fallback_url", "http://127.0.0.1:11434", "Where Ollama listens.");

/// The CPU's model.
pub const CPU_MODEL: Key<String> =
    Key::text("hardware.cpu_fallback_model", "qwen2.5:1.5b", MODEL_BYTES, "Model on the CPU.");

/// The CPU model's context.
pub const CPU_CONTEXT: Key<u32> = Key::count(
    "hardware.cpu_context_tokens",
    4096,
    (CONTEXT_TOKENS_MIN, 131_072),
    "tokens",
    "Context of the model on the CPU (num_ctx). Memory grows with it: about 30 MB for each 1024 \
     tokens of a 1.5B model.",
);

/// The CPU model's threads.
pub const CPU_THREADS: Key<u32> = Key::count(
    "hardware.cpu_threads",
    0,
    (0, 64),
    "threads",
    "Threads of the model on the CPU; 0 leaves the choice to the server.",
);

/// The first slot.
pub const PRIMARY: Key<Option<&'static str>> = Key::maybe_choice(
    "hardware.primary_backend",
    BACKENDS,
    "Backend asked first. null: hailo, or ollama if npu_acceleration is false.",
);

/// The second slot.
pub const FALLBACK: Key<Option<&'static str>> = Key::maybe_choice(
    "hardware.fallback_backend",
    BACKENDS,
    "Backend asked if the first cannot answer. null: ollama, unless it or the reserve is the \
     first.",
);

/// The third slot.
pub const RESERVE: Key<Option<&'static str>> = Key::maybe_choice(
    "hardware.reserve_backend",
    BACKENDS,
    "Backend asked if neither can answer. null: reserve, the small model inside the program, \
     unless reserve.enabled is false.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[
    &NPU,
    &HAILO_URL,
    &HAILO_MODEL,
    &CPU_URL,
    &CPU_MODEL,
    &CPU_CONTEXT,
    &CPU_THREADS,
    &PRIMARY,
    &FALLBACK,
    &RESERVE,
];

/// A backend that can stand in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// hailo-ollama, on the NPU.
    Hailo,
    /// Ollama, on the CPU.
    Ollama,
    /// An OpenAI-compatible server.
    Openai,
    /// The small model inside the process.
    Reserve,
}

impl Backend {
    /// Its word in the file and in requests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hailo => "hailo",
            Self::Ollama => "ollama",
            Self::Openai => "openai",
            Self::Reserve => "reserve",
        }
    }

    /// The backend a word means.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Hailo, Self::Ollama, Self::Openai, Self::Reserve];
        all.into_iter().find(|backend| backend.as_str() == word)
    }
}

/// The order in which backends are asked; each stands in one slot at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Asked first.
    pub primary: Backend,
    /// Asked if the first cannot answer.
    pub fallback: Option<Backend>,
    /// Asked if neither can.
    pub reserve: Option<Backend>,
}

impl Slots {
    /// The backends in order.
    pub fn iter(self) -> impl Iterator<Item = Backend> {
        [Some(self.primary), self.fallback, self.reserve].into_iter().flatten()
    }
}

/// Settings of the section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// Whether the NPU is to be used.
    pub npu_acceleration: bool,
    /// hailo-ollama's URL.
    pub hailo_url: Url,
    /// The NPU's model.
    pub hailo_model: String,
    /// Ollama's URL.
    pub cpu_url: Url,
    /// The CPU's model.
    pub cpu_model: String,
    /// The CPU model's context (`num_ctx`), in tokens.
    pub cpu_context_tokens: u32,
    /// The CPU model's threads; absent is the server's choice.
    pub cpu_threads: Option<u32>,
    /// The order of the backends.
    pub slots: Slots,
}

impl Hardware {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            npu_acceleration: values.get(&NPU),
            hailo_url: values.get(&HAILO_URL),
            hailo_model: values.get(&HAILO_MODEL),
            cpu_url: values.get(&CPU_URL),
            cpu_model: values.get(&CPU_MODEL),
            cpu_context_tokens: values.get(&CPU_CONTEXT),
            cpu_threads: Some(values.get(&CPU_THREADS)).filter(|threads| *threads > 0),
            slots: slots(values),
        }
    }
}

/// Fills the slots: what is named stands, what is not named follows from the hardware. An
/// unnamed slot never takes a backend that is named elsewhere.
fn slots(values: &Values) -> Slots {
    let named = |key: &Key<Option<&'static str>>| values.get(key).and_then(Backend::from_word);
    let (fallback, reserve) = (named(&FALLBACK), named(&RESERVE));
    let first = if values.get(&NPU) { Backend::Hailo } else { Backend::Ollama };
    let primary = named(&PRIMARY).unwrap_or(first);
    let fallback = fallback
        .or_else(|| Some(Backend::Ollama).filter(|cpu| Some(*cpu) != reserve))
        // Who puts the small model first wants no server.
        .filter(|_| primary != Backend::Reserve || named(&FALLBACK).is_some())
        .filter(|backend| *backend != primary);
    let reserve = reserve.filter(|backend| *backend != primary && Some(*backend) != fallback);
    Slots { primary, fallback, reserve }
}
