//! The models on the simulated disk, and what loading one takes in time and memory (pure).

use std::time::Duration;

/// One model as Ollama's library has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Full name with its tag, as `/api/tags` gives it.
    pub name: String,
    /// Size of its blobs on disk, in bytes.
    pub size_bytes: u64,
    /// Family, e.g. `qwen2`.
    pub family: String,
    /// Parameters, e.g. `1.5B`.
    pub parameter_size: String,
    /// It has the capability `thinking`, and thinks unless told not to.
    pub thinking: bool,
    /// It has the capability `tools`.
    pub tools: bool,
}

impl Model {
    /// A model that neither thinks nor calls tools.
    #[must_use]
    pub fn new(name: &str, size_bytes: u64) -> Self {
        let (family, rest) = name.split_once(':').unwrap_or((name, "1.5b"));
        Self {
            name: if name.contains(':') { name.to_owned() } else { format!("{name}:latest") },
            size_bytes,
            family: family.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit()).to_owned(),
            parameter_size: rest.to_uppercase(),
            thinking: false,
            tools: false,
        }
    }

    /// The same model with other capabilities.
    #[must_use]
    pub fn capable(mut self, thinking: bool, tools: bool) -> Self {
        self.thinking = thinking;
        self.tools = tools;
        self
    }

    /// The row of [`defaults`] with this name, or a made-up one of a gigabyte.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let known = defaults().into_iter().find(|model| model.is(name));
        known.unwrap_or_else(|| Self::new(name, 1_000_000_000))
    }

    /// Whether a client's name means this model: a missing tag is `latest`, case does not count.
    pub(super) fn is(&self, name: &str) -> bool {
        let name = name.trim_start_matches("registry.ollama.ai/").trim_start_matches("library/");
        self.name.eq_ignore_ascii_case(name)
            || (!name.contains(':') && self.name.eq_ignore_ascii_case(&format!("{name}:latest")))
    }

    /// A stable stand-in for the manifest's SHA-256.
    pub(super) fn digest(&self) -> String {
        let mut rng = fastrand::Rng::with_seed(self.size_bytes);
        (0..32).map(|_| format!("{:02x}", rng.u8(..))).collect()
    }

    /// Memory a runner takes, in bytes: the weights, the cache of keys and values (28 KiB a token
    /// for a 1.5B model with two key heads), and 0.7 GB for buffers and the process. With 4,096
    /// tokens qwen2.5:1.5b comes to the 1.85 GB that people measured.
    pub(super) fn memory_bytes(&self, context_tokens: usize) -> u64 {
        const KV_BYTES: u64 = 28 * 1024;
        const BUFFER_BYTES: u64 = 700_000_000;
        self.size_bytes + context_tokens as u64 * KV_BYTES + BUFFER_BYTES
    }

    /// Time to read it from the card at `mb_per_s`.
    pub(super) fn cold_load(&self, mb_per_s: f64) -> Duration {
        Duration::try_from_secs_f64(self.size_bytes as f64 / (mb_per_s * 1e6)).unwrap_or_default()
    }
}

/// The models the product knows how to use, with the sizes of Ollama's library.
#[must_use]
pub fn defaults() -> Vec<Model> {
    vec![
        Model::new("qwen2.5:1.5b", 986_061_892).capable(false, true),
        Model::new("qwen2:1.5b", 934_964_102),
        Model::new("qwen3:1.7b", 1_359_293_444).capable(true, true),
        Model::new("deepseek-r1:1.5b", 1_117_322_768).capable(true, false),
        Model::new("llama3.2:1b", 1_321_098_329).capable(false, true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_without_case_and_with_the_tag_latest() {
        let model = Model::named("mine");
        assert_eq!(model.name, "mine:latest");
        assert!(model.is("mine") && model.is("MINE:latest") && !model.is("mine:1b"));
        let qwen = Model::named("qwen2.5:1.5b");
        assert!(qwen.tools && qwen.is("library/qwen2.5:1.5b") && !qwen.is("qwen2.5"));
        assert_eq!((qwen.family.as_str(), qwen.parameter_size.as_str()), ("qwen", "1.5B"));
    }

    #[test]
    fn a_card_takes_seconds_and_memory_grows_with_the_context() {
        let qwen = Model::named("qwen2.5:1.5b");
        assert_eq!(qwen.cold_load(85.0).as_secs(), 11);
        let bytes = qwen.memory_bytes(4096);
        assert!((1_780_000_000..1_880_000_000).contains(&bytes), "{bytes}");
        assert!(qwen.memory_bytes(8192) > bytes);
        assert_eq!(qwen.digest().len(), 64);
    }
}
