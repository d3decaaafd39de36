//! The volatile block: what changes from turn to turn, inside the newest user message (pure).
//!
//! It must not stand in the system block: the first bytes of every prompt are the same for ever,
//! or the model server prefills everything again at each turn. It stays in the message it was
//! sent with, because the ledger repeats what was sent.

use jiff::tz::TimeZone;

use crate::clock::WallClock;

/// The message with the date and time before it, or as it is while the clock is not set: no time
/// is better than 1970.
#[must_use]
pub(super) fn with_block(text: &str, clock: &dyn WallClock, zone: &TimeZone) -> String {
    if !clock.is_set() {
        return text.to_owned();
    }
    let now = clock.now().to_zoned_datetime(zone.clone());
    format!("[{}]\n{text}", now.strftime("%A %-d %B %Y, %H:%M"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SteppedClock;
    use crate::limits::VOLATILE_TOKENS_MAX;
    use crate::provider::budget::message_tokens;

    /// 2026-11-30 14:05 UTC.
    const NOW_MS: i64 = 1_796_047_500_000;

    #[test]
    fn the_block_tells_weekday_date_and_time_of_the_persons_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(8));
        let sent = with_block("hello", &SteppedClock::new(NOW_MS), &zone);
        assert_eq!(sent, "[Monday 30 November 2026, 22:05]\nhello");
    }

    #[test]
    fn before_the_clock_is_set_there_is_no_block() {
        assert_eq!(with_block("hello", &SteppedClock::new(3_600_000), &TimeZone::UTC), "hello");
    }

    #[test]
    fn the_longest_block_is_within_its_bound() {
        let wednesday_in_september = SteppedClock::new(1_790_780_700_000);
        let sent = with_block("", &wednesday_in_september, &TimeZone::UTC);
        assert!(sent.contains("Wednesday 30 September"), "{sent}");
        assert!(message_tokens(&sent) <= VOLATILE_TOKENS_MAX);
    }
}
