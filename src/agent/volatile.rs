//! The volatile block: what changes from turn to turn, inside the newest user message (pure but for
//! the clock).
//!
//! It must not stand in the system block: the first bytes of every prompt are the same for ever,
//! or the model server prefills everything again at each turn. It stays in the message it was
//! sent with, because the ledger repeats what was sent.

use jiff::tz::TimeZone;

use super::feelings::Moved;
use crate::clock::WallClock;
use crate::limits::VOLATILE_TOKENS_MAX;
use crate::mood::{Channel, tone};
use crate::provider::budget::estimate_tokens;

/// The message with a line before it: date and time, mood, body and tone. A part that no longer
/// fits into `VOLATILE_TOKENS_MAX` is left out, the least needed first; a line without parts too.
#[must_use]
pub(super) fn with_block(
    text: &str,
    clock: &dyn WallClock,
    zone: &TimeZone,
    moved: &Moved,
) -> String {
    let date = clock.is_set().then(|| {
        let now = clock.now().to_zoned_datetime(zone.clone());
        now.strftime("%A %-d %B %Y, %H:%M").to_string()
    });
    let block = block(&[
        (0, date),
        (3, moved.felt.map(|channel| format!("mood {}", word(channel)))),
        (4, moved.condition.brief.clone()),
        (1, directive(moved).map(str::to_owned)),
        (2, moved.reading.urgent.then(|| tone::URGENT.to_owned())),
    ]);
    block + text
}

/// The line of those parts that fit. Each comes with its rank: 0 is needed most.
fn block<const PARTS: usize>(parts: &[(usize, Option<String>); PARTS]) -> String {
    let mut fits = [false; PARTS];
    let mut line = String::new();
    for rank in 0..PARTS {
        let Some(at) = parts.iter().position(|(of, part)| *of == rank && part.is_some()) else {
            continue;
        };
        fits[at] = true;
        let chosen = parts.iter().zip(fits).filter(|(_, fits)| *fits);
        let texts: Vec<&str> = chosen.filter_map(|((_, part), _)| part.as_deref()).collect();
        let longer = format!("[{}]\n", texts.join("; "));
        if estimate_tokens(&longer) <= VOLATILE_TOKENS_MAX {
            line = longer;
        } else {
            fits[at] = false;
        }
    }
    line
}

/// The tone that is wanted: short if the body is under stress, whatever else.
fn directive(moved: &Moved) -> Option<&'static str> {
    if moved.condition.stressed { Some(tone::EXHAUSTION) } else { tone::directive(moved.reading) }
}

/// The mood in a word that a small model knows.
fn word(channel: Channel) -> &'static str {
    match channel {
        Channel::Joy => "glad",
        Channel::Anger => "irritated",
        Channel::Sorrow => "sad",
        Channel::Excitement => "excited",
        Channel::Calm => "calm",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::feelings::Condition;
    use super::*;
    use crate::clock::SteppedClock;
    use crate::mood::sentiment::{Reading, Sentiment};

    /// 2026-11-30 14:05 UTC.
    const NOW_MS: i64 = 1_796_047_500_000;

    /// 2026-09-30 14:05 UTC: the longest names of a day and a month.
    const WEDNESDAY_IN_SEPTEMBER_MS: i64 = 1_790_777_100_000;

    fn moved(
        sentiment: Sentiment,
        urgent: bool,
        felt: Option<Channel>,
        condition: Condition,
    ) -> Moved {
        let reading = Reading { sentiment, urgent };
        Moved { nudge: Default::default(), reading, felt, condition: Arc::new(condition) }
    }

    fn unmoved() -> Moved {
        moved(Sentiment::Neutral, false, None, Condition::default())
    }

    #[test]
    fn the_block_tells_weekday_date_and_time_of_the_persons_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(8));
        let sent = with_block("hello", &SteppedClock::new(NOW_MS), &zone, &unmoved());
        assert_eq!(sent, "[Monday 30 November 2026, 22:05]\nhello");
    }

    #[test]
    fn before_the_clock_is_set_there_is_no_date_and_without_parts_no_block() {
        let clock = SteppedClock::new(3_600_000);
        assert_eq!(with_block("hello", &clock, &TimeZone::UTC, &unmoved()), "hello");
        let sad = moved(Sentiment::Negative, false, Some(Channel::Sorrow), Condition::default());
        let sent = with_block("hello", &clock, &TimeZone::UTC, &sad);
        assert_eq!(sent, "[mood sad; be supportive]\nhello");
    }

    #[test]
    fn mood_body_and_tone_follow_the_date() {
        let condition = Condition { stressed: false, brief: Some("62 °C".to_owned()) };
        let sad = moved(Sentiment::Negative, false, Some(Channel::Sorrow), condition);
        let sent = with_block("x", &SteppedClock::new(NOW_MS), &TimeZone::UTC, &sad);
        assert_eq!(sent, "[Monday 30 November 2026, 14:05; mood sad; 62 °C; be supportive]\nx");
    }

    #[test]
    fn stress_asks_for_three_sentences_whatever_the_tone() {
        let condition = Condition { stressed: true, brief: Some("81 °C".to_owned()) };
        let glad = moved(Sentiment::Positive, false, Some(Channel::Joy), condition);
        let sent = with_block("x", &SteppedClock::new(NOW_MS), &TimeZone::UTC, &glad);
        assert!(sent.contains(tone::EXHAUSTION), "{sent}");
        assert!(!sent.contains("share the joy"), "{sent}");
    }

    #[test]
    fn every_block_is_within_its_bound_and_keeps_date_and_directive() {
        let clock = SteppedClock::new(WEDNESDAY_IN_SEPTEMBER_MS);
        let feelings =
            [Sentiment::Positive, Sentiment::Negative, Sentiment::Mixed, Sentiment::Neutral];
        let briefs = [None, Some("62 °C".to_owned()), Some("hot ".repeat(100))];
        for sentiment in feelings {
            for felt in [None].into_iter().chain(Channel::ALL.map(Some)) {
                for (urgent, stressed) in
                    [(false, false), (true, false), (false, true), (true, true)]
                {
                    for brief in briefs.clone() {
                        let all = moved(sentiment, urgent, felt, Condition { stressed, brief });
                        let sent = with_block("", &clock, &TimeZone::UTC, &all);
                        assert!(estimate_tokens(&sent) <= VOLATILE_TOKENS_MAX, "{sent}");
                        assert!(sent.contains("Wednesday 30 September"), "{sent}");
                        let wanted = directive(&all).unwrap_or_default();
                        assert!(sent.contains(wanted), "{sent}");
                    }
                }
            }
        }
    }
}
