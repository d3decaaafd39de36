//! The status light: how it shines at each level of the governor (pure).

use std::time::Duration;

/// Something that shines.
pub trait Lamp: Send {
    /// Switches it on or off. A pin that fails stays as it is: a light is not worth a fault.
    fn shine(&mut self, on: bool);
}

/// How the light alternates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// Time on.
    pub on: Duration,
    /// Time off; zero is a steady light, which wakes nobody.
    pub off: Duration,
}

/// Shown after a short press, whatever the level: the press was noticed.
pub const NOTICED: Rhythm =
    Rhythm { on: Duration::from_millis(100), off: Duration::from_millis(100) };

/// How the light shines at a level: steady when everything is allowed, slower and darker the less
/// is allowed, so that no light is left for "dead".
#[must_use]
pub fn rhythm(level: u8) -> Rhythm {
    let (on_ms, off_ms) = match level {
        0 => (1000, 0),
        1 => (2000, 500),
        2 => (1000, 1000),
        _ => (200, 1800),
    };
    Rhythm { on: Duration::from_millis(on_ms), off: Duration::from_millis(off_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_is_allowed_the_darker_is_the_light_and_it_is_never_out() {
        let share = |level| {
            let Rhythm { on, off } = rhythm(level);
            on.as_secs_f64() / (on + off).as_secs_f64()
        };
        assert!((0..3).all(|level| share(level) > share(level + 1)));
        assert!(share(3) > 0.0);
        assert_eq!(rhythm(0).off, Duration::ZERO);
        assert_eq!(rhythm(9), rhythm(3), "a level that is not known is the last one");
    }
}
