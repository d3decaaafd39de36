//! Names under which releases of hailo-ollama know the same model, and what learning starts from
//! (pure). The tables are the `hailo` crate's.

use std::time::Duration;

use hailo::model::{self, Model, Release, Thinking};

/// What is published about one model: of its releases, the slower figure of each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Published {
    /// One chunk of prefill; the published time to first token is one chunk.
    pub(crate) chunk: Duration,
    /// Loading the model into the device.
    pub(crate) load: Duration,
    /// Decoding, tokens a second.
    pub(crate) tokens_per_s: f64,
    /// The template opens the thinking itself, so the answer begins inside it.
    pub(crate) starts_thinking: bool,
}

/// What is known about the model of this name; of the slowest one if it is unknown.
pub(crate) fn published(name: &str) -> Published {
    let names = aliases(name);
    let known = |row: &&Model| names.iter().any(|one| same(one, row.name));
    slowest(rows().filter(known)).or_else(|| slowest(rows())).unwrap_or(Published {
        chunk: Duration::ZERO,
        load: Duration::ZERO,
        tokens_per_s: 1.0,
        starts_thinking: false,
    })
}

fn rows() -> impl Iterator<Item = &'static Model> {
    model::table(Release::V5_1_1).iter().chain(model::table(Release::V5_4))
}

fn slowest(rows: impl Iterator<Item = &'static Model>) -> Option<Published> {
    rows.map(|row| Published {
        chunk: Duration::from_millis(row.chunk_ms.into()),
        load: Duration::from_millis(row.load_ms.into()),
        tokens_per_s: row.tokens_per_s(),
        starts_thinking: row.thinking == Thinking::StartsInside,
    })
    .reduce(|one, other| Published {
        chunk: one.chunk.max(other.chunk),
        load: one.load.max(other.load),
        tokens_per_s: one.tokens_per_s.min(other.tokens_per_s),
        // Only what all rows say: of an unknown model it is not known.
        starts_thinking: one.starts_thinking && other.starts_thinking,
    })
}

/// Names to look for on a server, in order: the configured one, then its equivalents.
pub(crate) fn aliases(name: &str) -> Vec<&str> {
    let others = model::aliases(&name.to_ascii_lowercase()).iter().copied();
    std::iter::once(name).chain(others.filter(|one| !same(one, name))).collect()
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
    fn an_unknown_model_counts_as_the_slowest_and_a_known_one_as_its_slower_release() {
        let unknown = published("nobody:1b");
        for row in rows() {
            let known = published(row.name);
            assert!(known.chunk >= Duration::from_millis(row.chunk_ms.into()), "{}", row.name);
            assert!(known.tokens_per_s <= row.tokens_per_s(), "{}", row.name);
            assert!(unknown.chunk >= known.chunk && unknown.load >= known.load);
            assert!(unknown.tokens_per_s <= known.tokens_per_s);
        }
        assert!(!unknown.starts_thinking);
        assert!(published("deepseek_r1:1.5b").starts_thinking);
        assert!((published("Qwen2.5:1.5b").tokens_per_s - 6.95).abs() < 0.001);
    }
}
