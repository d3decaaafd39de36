//! A push button: what a press means (pure).

use std::time::Duration;

use tokio::time::Instant;

/// A press held as long as this is a long one: longer than anybody presses by accident, shorter
/// than the four seconds after which a Pi's own power button cuts the power.
pub const LONG_PRESS: Duration = Duration::from_secs(3);

/// What a person meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Press {
    /// Pressed and let go.
    Short,
    /// Held for [`LONG_PRESS`]; told while it is still held.
    Long,
}

/// The button's state.
#[derive(Debug, Clone, Copy, Default)]
pub struct Button {
    down_since: Option<Instant>,
}

impl Button {
    /// The contact has closed or opened. Contacts bounce: an edge that changes nothing is none.
    pub fn edge(&mut self, down: bool, now: Instant) -> Option<Press> {
        match (self.down_since, down) {
            (None, true) => {
                self.down_since = Some(now);
                None
            }
            (Some(_), false) => {
                let long = self.ripe_at().is_some_and(|ripe_at| now >= ripe_at);
                self.down_since = None;
                Some(if long { Press::Long } else { Press::Short })
            }
            (None, false) | (Some(_), true) => None,
        }
    }

    /// When a button that stays down becomes a long press.
    #[must_use]
    pub fn ripe_at(&self) -> Option<Instant> {
        self.down_since.map(|since| since + LONG_PRESS)
    }

    /// It has stayed down until [`ripe_at`](Self::ripe_at); letting it go means nothing more.
    pub fn ripen(&mut self) -> Press {
        self.down_since = None;
        Press::Long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_is_short_and_a_hold_is_long_once() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut button = Button::default();
        assert_eq!(button.edge(true, start), None);
        assert_eq!(button.edge(true, after(5)), None, "a bounce");
        assert_eq!(button.edge(false, after(200)), Some(Press::Short));
        assert_eq!(button.edge(false, after(205)), None, "a bounce");

        assert_eq!(button.edge(true, after(1000)), None);
        assert_eq!(button.ripe_at(), Some(after(4000)));
        assert_eq!(button.ripen(), Press::Long);
        assert_eq!(button.edge(false, after(5000)), None, "told already");

        button.edge(true, after(6000));
        assert_eq!(button.edge(false, after(9500)), Some(Press::Long), "nobody looked meanwhile");
    }
}
