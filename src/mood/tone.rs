//! How an answer should sound, in as few tokens as it can be said to a small model (pure).

use super::sentiment::{Reading, Sentiment};

/// Said when the body is under stress: the seed's directive in a third of its tokens. It takes the
/// place of every other wish.
pub const EXHAUSTION: &str = "exhausted: at most 3 short sentences";

/// Said when the message is in a hurry.
pub const URGENT: &str = "answer first";

/// What a message asks of the tone; nothing for one without feeling.
#[must_use]
pub fn directive(reading: Reading) -> Option<&'static str> {
    match reading.sentiment {
        Sentiment::Positive => Some("share the joy"),
        Sentiment::Negative => Some("be supportive"),
        Sentiment::Mixed => Some("be balanced"),
        Sentiment::Neutral => None,
    }
}
