//! What differs between Ollama releases (pure).
//!
//! Up to 0.29 Ollama ran its own runners; from 0.30 it runs llama-server as a child process. That
//! changes what the metrics count, how an overlong prompt is cut, and the words of some errors.

/// A release, ordered; `0.33.0-rc2` counts as `0.33.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// Reads the leading numbers; what is missing or no number counts as 0.
    pub(super) fn parse(text: &str) -> Self {
        let mut parts = text.trim_start_matches('v').split('.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse().unwrap_or(0)
        });
        let mut next = || parts.next().unwrap_or(0);
        Self { major: next(), minor: next(), patch: next() }
    }

    fn at_least(&self, major: u32, minor: u32, patch: u32) -> bool {
        *self >= Self { major, minor, patch }
    }

    /// llama-server does the work.
    fn llama_server(&self) -> bool {
        self.at_least(0, 30, 0)
    }

    /// `prompt_eval_count` includes the tokens that came from the prefix cache.
    pub(super) fn counts_cached(&self) -> bool {
        self.llama_server()
    }

    /// The request fields `truncate` and `shift` exist.
    pub(super) fn knows_truncate(&self) -> bool {
        self.at_least(0, 12, 6)
    }

    /// Longest token sequence the runner accepts without cutting.
    pub(super) fn prompt_limit(&self, num_ctx: usize) -> usize {
        if self.llama_server() { num_ctx.saturating_sub(1) } else { num_ctx }
    }

    /// Tokens that are left of an overlong prompt. llama-server is left half of the context for
    /// the answer; the old runners filled the whole of it.
    pub(super) fn cut_length(&self, num_ctx: usize, num_keep: usize) -> usize {
        if self.llama_server() { num_ctx - num_ctx.saturating_sub(num_keep) / 2 } else { num_ctx }
    }

    /// Body of the 400 for an overlong prompt with `truncate:false`. The newer text is
    /// llama-server's own JSON inside Ollama's, as measured on 0.33.3.
    pub(super) fn overflow_error(&self, tokens: usize, num_ctx: usize) -> String {
        if self.llama_server() {
            format!(
                "{{\"error\":{{\"code\":400,\"message\":\"request ({tokens} tokens) exceeds the \
                 available context size ({num_ctx} tokens), try increasing it\",\
                 \"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":{tokens},\
                 \"n_ctx\":{num_ctx}}}}}"
            )
        } else {
            "the input length exceeds the context length".to_owned()
        }
    }

    /// The 500 for a runner that died while it worked or loaded. The newer name of the process is
    /// our guess.
    pub(super) fn runner_died(&self, how: &str) -> String {
        let process = if self.llama_server() { "llama-server" } else { "llama runner" };
        format!("{process} process has terminated: {how}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_names_are_ordered_by_their_numbers() {
        assert!(Version::parse("0.9.9") < Version::parse("0.12.0"));
        assert!(Version::parse("v0.33.0-rc2") == Version::parse("0.33"));
        assert!(Version::parse("nonsense") == Version::parse("0.0.0"));
    }

    #[test]
    fn the_runner_changed_with_0_30() {
        let old = Version::parse("0.29.1");
        let new = Version::parse("0.30.0");
        assert!(!old.counts_cached() && new.counts_cached());
        assert_eq!(old.cut_length(4096, 5), 4096);
        assert_eq!(new.cut_length(4096, 5), 2051, "as measured on 0.33.3");
        assert!(new.overflow_error(8889, 4096).contains("\"n_prompt_tokens\":8889"));
        assert!(!Version::parse("0.12.5").knows_truncate());
        assert!(Version::parse("0.12.6").knows_truncate());
    }
}
