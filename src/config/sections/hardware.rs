//! Section `hardware`: the model servers on this machine, the order of the backends, and what the
//! body bears (pure).

use std::time::Duration;

use crate::config::key::{AnyKey, Key};
use crate::config::value::Url;
use crate::config::values::Values;
use crate::limits::CONTEXT_TOKENS_MIN;

/// Longest model name, in bytes; names with registry and tag stay below.
const MODEL_BYTES: (usize, usize) = (1, 200);

/// Longest command, in bytes: a program, its options and a unit's name.
const COMMAND_BYTES_MAX: usize = 200;
/// What a limit of temperature may be, in degrees Celsius.
const CELSIUS: (f64, f64) = (0.0, 110.0);

/// What a limit of memory use may be.
const PERCENT: (f64, f64) = (0.0, 100.0);

/// An unset release is so far below its limit, from the seed.
const RELEASE_BELOW: f64 = 5.0;

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

/// What restarts the NPU's server.
pub const HAILO_RESTART: Key<Option<String>> = Key::maybe_text(
    "hardware.hailo_restart_command",
    COMMAND_BYTES_MAX,
    "Command that is run once when hailo-ollama has hung for 3 minutes, for example \"sudo -n \
     systemctl restart hailo-ollama\"; words between spaces, no shell. null: nothing is run, you \
     are told what to do.",
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

/// Temperature that counts as stress.
pub const THERMAL_LIMIT: Key<f64> = Key::number(
    "hardware.thermal_limit_celsius",
    75.0,
    CELSIUS,
    "degrees Celsius",
    "Temperature of the processor at which the body is under stress. The firmware of a Pi 5 slows \
     it down from 80 on.",
);

/// Temperature at which stress may end.
pub const THERMAL_RELEASE: Key<f64> = Key::number(
    "hardware.thermal_release_celsius",
    0.0,
    CELSIUS,
    "degrees Celsius",
    "Temperature at which that stress may end. 0: 5 below the limit.",
);

/// Memory use that counts as stress.
pub const RAM_LIMIT: Key<f64> = Key::number(
    "hardware.ram_limit_pct",
    85.0,
    PERCENT,
    "percent",
    "Memory in use at which the body is under stress.",
);

/// Memory use at which stress may end.
pub const RAM_RELEASE: Key<f64> = Key::number(
    "hardware.ram_release_pct",
    0.0,
    PERCENT,
    "percent",
    "Memory in use at which that stress may end. 0: 5 below the limit.",
);

/// Time between two readings while there is work.
pub const VITALS_TTL: Key<Duration> = Key::seconds(
    "hardware.vitals_cache_ttl_seconds",
    5.0,
    (1.0, 60.0),
    "While a turn runs, or the governor allows less than everything, the vital signs are read this \
     often; otherwise with each beat.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[
    &NPU,
    &HAILO_URL,
    &HAILO_MODEL,
    &HAILO_RESTART,
    &CPU_URL,
    &CPU_MODEL,
    &CPU_CONTEXT,
    &CPU_THREADS,
    &PRIMARY,
    &FALLBACK,
    &RESERVE,
    &THERMAL_LIMIT,
    &THERMAL_RELEASE,
    &RAM_LIMIT,
    &RAM_RELEASE,
    &VITALS_TTL,
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
#[derive(Debug, Clone, PartialEq)]
pub struct Hardware {
    /// Whether the NPU is to be used.
    pub npu_acceleration: bool,
    /// hailo-ollama's URL.
    pub hailo_url: Url,
    /// The NPU's model.
    pub hailo_model: String,
    /// Restarts hailo-ollama, where that is allowed.
    pub hailo_restart_command: Option<String>,
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
    /// Temperature at which stress begins, in degrees Celsius.
    pub thermal_limit_c: f32,
    /// Temperature at which it may end.
    pub thermal_release_c: f32,
    /// Memory in use at which stress begins, in percent.
    pub ram_limit_percent: f32,
    /// Memory in use at which it may end.
    pub ram_release_percent: f32,
    /// Time between two readings of the vital signs while there is work.
    pub vitals_ttl: Duration,
}

impl Hardware {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            npu_acceleration: values.get(&NPU),
            hailo_url: values.get(&HAILO_URL),
            hailo_model: values.get(&HAILO_MODEL),
            hailo_restart_command: values.get(&HAILO_RESTART),
            cpu_url: values.get(&CPU_URL),
            cpu_model: values.get(&CPU_MODEL),
            cpu_context_tokens: values.get(&CPU_CONTEXT),
            cpu_threads: Some(values.get(&CPU_THREADS)).filter(|threads| *threads > 0),
            slots: slots(values),
            thermal_limit_c: values.get(&THERMAL_LIMIT) as f32,
            thermal_release_c: release(values, &THERMAL_LIMIT, &THERMAL_RELEASE),
            ram_limit_percent: values.get(&RAM_LIMIT) as f32,
            ram_release_percent: release(values, &RAM_LIMIT, &RAM_RELEASE),
            vitals_ttl: values.get(&VITALS_TTL),
        }
    }
}

/// A release; 0 follows from the limit.
fn release(values: &Values, limit: &Key<f64>, release: &Key<f64>) -> f32 {
    let release = Some(values.get(release)).filter(|release| *release > 0.0);
    release.unwrap_or_else(|| (values.get(limit) - RELEASE_BELOW).max(0.0)) as f32
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
