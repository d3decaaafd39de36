//! Day and night (pure).

use std::cmp::Ordering;

use jiff::civil;

/// Whether a time of day is within the duty window, which may go over midnight: it begins at
/// `duty_start` and ends when sleep does. The same time for both: no sleep.
#[must_use]
pub fn on_duty(now: civil::Time, duty_start: civil::Time, sleep_start: civil::Time) -> bool {
    match duty_start.cmp(&sleep_start) {
        Ordering::Equal => true,
        Ordering::Less => duty_start <= now && now < sleep_start,
        Ordering::Greater => duty_start <= now || now < sleep_start,
    }
}

/// The date of the evening in which the sleep of this moment began.
#[must_use]
pub fn night_of(now: civil::DateTime, sleep_start: civil::Time) -> civil::Date {
    if now.time() >= sleep_start {
        return now.date();
    }
    now.date().yesterday().unwrap_or_else(|_| now.date())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::{date, time};

    #[test]
    fn the_duty_window_goes_over_midnight() {
        let at = |hour, minute| time(hour, minute, 0, 0);
        let table = [
            // (duty, sleep, now, on duty)
            (at(6, 0), at(2, 0), at(5, 59), false),
            (at(6, 0), at(2, 0), at(6, 0), true),
            (at(6, 0), at(2, 0), at(23, 59), true),
            (at(6, 0), at(2, 0), at(0, 0), true),
            (at(6, 0), at(2, 0), at(1, 59), true),
            (at(6, 0), at(2, 0), at(2, 0), false),
            (at(6, 0), at(22, 0), at(21, 59), true),
            (at(6, 0), at(22, 0), at(22, 0), false),
            (at(6, 0), at(22, 0), at(3, 0), false),
            (at(6, 0), at(6, 0), at(6, 0), true),
            (at(6, 0), at(6, 0), at(3, 0), true),
        ];
        for (duty, sleep, now, expected) in table {
            assert_eq!(on_duty(now, duty, sleep), expected, "{duty} to {sleep} at {now}");
        }
    }

    #[test]
    fn a_night_has_the_date_of_its_evening() {
        let late = date(2026, 3, 1).at(23, 30, 0, 0);
        let early = date(2026, 3, 2).at(1, 0, 0, 0);
        let sleep = time(23, 0, 0, 0);
        assert_eq!(night_of(late, sleep), date(2026, 3, 1));
        assert_eq!(night_of(early, sleep), date(2026, 3, 1));
        assert_eq!(night_of(early, time(0, 30, 0, 0)), date(2026, 3, 2));
    }
}
