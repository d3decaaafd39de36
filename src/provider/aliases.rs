//! Names under which releases of hailo-ollama know the same model, and what is published about
//! its speed (pure data).
//!
//! Names changed between 5.1 and 5.3; the configuration may use either. The figures are Hailo's
//! own (MODELS.rst), the slower release of each; they are where learning starts, not promises.

use std::time::Duration;

/// What is published about one model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Published {
    /// Equivalent names, the older releases' first.
    names: &'static [&'static str],
    /// One chunk of prefill; the published time to first token is one chunk.
    pub(crate) chunk: Duration,
    /// Loading the model into the device.
    pub(crate) load: Duration,
    /// Decoding, tokens a second.
    pub(crate) tokens_per_s: f64,
    /// The template opens the thinking itself, so the answer begins inside it.
    pub(crate) starts_thinking: bool,
}

const fn row(
    names: &'static [&'static str],
    chunk_ms: u64,
    load_ms: u64,
    tokens_per_s: f64,
) -> Published {
    Published {
        names,
        chunk: Duration::from_millis(chunk_ms),
        load: Duration::from_millis(load_ms),
        tokens_per_s,
        starts_thinking: false,
    }
}

const TABLE: [Published; 7] = [
    row(&["qwen2.5-instruct:1.5b", "qwen2.5:1.5b", "qwen2.5:1.5b-instruct"], 370, 8_450, 6.95),
    row(&["qwen2:1.5b"], 320, 7_370, 8.06),
    row(&["qwen2.5-coder:1.5b"], 320, 7_600, 8.13),
    Published {
        starts_thinking: true,
        ..row(
            &["deepseek_r1_distill_qwen:1.5b", "deepseek_r1:1.5b", "deepseek-r1:1.5b"],
            1_470,
            12_610,
            7.03,
        )
    },
    row(&["llama3.2:3b"], 1_470, 12_610, 2.67),
    row(&["llama3.2:1b"], 350, 3_470, 9.89),
    row(&["qwen3:1.7b"], 620, 6_750, 4.78),
];

/// For a model nobody published: the slowest known of everything.
const UNKNOWN: Published = row(&[], 1_470, 12_610, 2.67);

/// What is known about the model of this name; of the slowest one if it is unknown.
pub(crate) fn published(name: &str) -> Published {
    let known = TABLE.into_iter().find(|row| row.names.iter().any(|one| same(one, name)));
    known.unwrap_or(UNKNOWN)
}

/// Names to look for on a server, in order: the configured one, then its equivalents.
pub(crate) fn aliases(name: &str) -> Vec<&str> {
    let others = published(name).names.iter().copied().filter(|one| !same(one, name));
    std::iter::once(name).chain(others).collect()
}

/// The server's own spelling of the first accepted name that it offers.
pub(crate) fn pick<'a>(accepted: &[&str], offered: &'a [String]) -> Option<&'a String> {
    let exact = |name: &str| offered.iter().find(|one| *one == name);
    let alike = |name: &str| offered.iter().find(|one| same(one, name));
    accepted.iter().find_map(|name| exact(name).or_else(|| alike(name)))
}

fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_name_comes_first_and_the_servers_spelling_wins() {
        assert_eq!(
            aliases("qwen2.5:1.5b"),
            ["qwen2.5:1.5b", "qwen2.5-instruct:1.5b", "qwen2.5:1.5b-instruct"]
        );
        assert_eq!(aliases("mine:7b"), ["mine:7b"]);
        let offered = ["qwen2:1.5b", "qwen2.5-instruct:1.5b", "Qwen3:1.7b"].map(String::from);
        let picked = |name: &str| pick(&aliases(name), &offered).cloned();
        assert_eq!(picked("qwen2.5:1.5b").as_deref(), Some("qwen2.5-instruct:1.5b"));
        assert_eq!(picked("qwen2:1.5b").as_deref(), Some("qwen2:1.5b"));
        assert_eq!(picked("qwen3:1.7b").as_deref(), Some("Qwen3:1.7b"));
        assert_eq!(picked("qwen2.5-coder:1.5b"), None, "another model of the family is not it");
    }

    #[test]
    fn no_name_is_in_two_groups() {
        let mut names: Vec<&str> = TABLE.iter().flat_map(|row| row.names).copied().collect();
        let total = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), total);
    }

    #[test]
    fn an_unknown_model_counts_as_the_slowest() {
        assert!(TABLE.iter().all(|row| row.chunk <= UNKNOWN.chunk && row.load <= UNKNOWN.load));
        assert!(TABLE.iter().all(|row| row.tokens_per_s >= UNKNOWN.tokens_per_s));
        assert_eq!(published("nobody:1b"), UNKNOWN);
        assert!(published("deepseek-r1:1.5b").starts_thinking);
    }
}
