//! Answers that must follow a JSON schema: which tokens may come next.
//!
//! `llguidance` turns the schema into a grammar over the vocabulary. Not here: what a schema
//! should bound; that is up to who asks.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};

use super::vocabulary::Vocabulary;

/// The grammars of one vocabulary.
pub(crate) struct Shapes {
    factory: ParserFactory,
}

/// Where an answer stands in its grammar.
pub(crate) struct Shape {
    matcher: Matcher,
}

impl Shapes {
    /// Prepares the vocabulary: most of a second on a busy
    /// machine and some MB for 49,152 tokens, so only when asked for.
    pub(crate) fn new(vocabulary: &Vocabulary, file: &[u8]) -> Result<Self, String> {
        let count = u32::try_from(vocabulary.len()).map_err(|_| "too many tokens".to_owned())?;
        let words: Vec<Vec<u8>> = (0..count)
            .map(|token| match vocabulary.decode(file, token) {
                // A control token: marked, so that no text can be it.
                bytes if bytes.is_empty() => {
                    let mut marked = vec![TokTrie::SPECIAL_TOKEN_MARKER];
                    marked.extend(format!("<{token}>").bytes());
                    marked
                }
                bytes => bytes,
            })
            .collect();
        let info = TokRxInfo::new(count, vocabulary.close);
        let trie = TokTrie::from(&info, &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env).map_err(|error| error.to_string())?;
        // It would write to stderr, which is the log's.
        factory.quiet();
        Ok(Self { factory })
    }

    /// Begins an answer that follows this schema.
    pub(crate) fn begin(&self, schema: &serde_json::Value) -> Result<Shape, String> {
        let grammar = TopLevelGrammar::from_json_schema(schema.clone());
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(error),
            None => {
                matcher.compute_mask().map_err(|error| error.to_string())?;
                Ok(Shape { matcher })
            }
        }
    }
}

impl Shape {
    /// Rules out what may not come next.
    pub(crate) fn restrict(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|error| error.to_string())?;
        for (token, logit) in (0..).zip(logits) {
            if !mask.is_allowed(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    /// Takes the token that was chosen. True if the answer is complete.
    pub(crate) fn take(&mut self, token: u32) -> Result<bool, String> {
        self.matcher.consume_token(token).map_err(|error| error.to_string())?;
        Ok(self.matcher.is_stopped())
    }
}
