//! Levels of the mood's channels as one value, such as `joy 0.15, calm -0.08` (pure).

use super::rule::Wrong;

/// Names of the channels, in the order in which they are told. They are the seed's.
pub const CHANNELS: [&str; 5] = ["joy", "anger", "sorrow", "excitement", "calm"];

/// What to write, as the end of a message.
pub(super) const HINT: &str =
    "write channels and numbers from -1 to 1, e.g. \"joy 0.15, calm -0.08\"";

/// A number for each channel, in the order of [`CHANNELS`]; 0 for those not named.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Channels(pub [f64; CHANNELS.len()]);

impl Channels {
    /// Reads the text; an empty one is no change of any channel.
    pub(super) fn read(text: &str, shown: &str) -> Result<Self, Wrong> {
        let wrong = |says: String| Err(Wrong::new(says, HINT));
        let mut channels = Self::default();
        let mut named = [false; CHANNELS.len()];
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split_whitespace();
            let (Some(name), Some(number), None) = (words.next(), words.next(), words.next())
            else {
                return wrong(format!("{shown}: {part:?} is not a channel and a number"));
            };
            let Some(at) = CHANNELS.iter().position(|channel| *channel == name) else {
                return wrong(format!("{shown}: {name:?} is not one of {}", CHANNELS.join(", ")));
            };
            let level = number.parse::<f64>().ok().filter(|level| (-1.0..=1.0).contains(level));
            let Some(level) = level else {
                return wrong(format!("{shown}: {number:?} is not a number from -1 to 1"));
            };
            if named[at] {
                return wrong(format!("{shown}: {name} is there twice"));
            }
            (channels.0[at], named[at]) = (level, true);
        }
        Ok(channels)
    }
}

impl std::fmt::Display for Channels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = CHANNELS.iter().zip(self.0).filter(|(_, level)| *level != 0.0);
        for (at, (name, level)) in named.enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{name} {level}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (text, channels) in [
            ("", [0.0; 5]),
            ("joy 0.15, excitement 0.08", [0.15, 0.0, 0.0, 0.08, 0.0]),
            ("sorrow 1, calm -0.08", [0.0, 0.0, 1.0, 0.0, -0.08]),
        ] {
            let read = Channels::read(text, "").unwrap();
            assert_eq!(read.0, channels);
            assert_eq!(read.to_string(), text);
        }
        assert_eq!(Channels::read(" joy  +0.5 ,", "").unwrap().0[0], 0.5);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("joy", "not a channel and a number"),
            ("joy 0.1 0.2", "not a channel and a number"),
            ("glee 0.1", "not one of joy"),
            ("joy 2", "not a number from -1 to 1"),
            ("joy NaN", "not a number from -1 to 1"),
            ("joy 0.1, joy 0.2", "twice"),
        ] {
            let wrong = Channels::read(text, "").unwrap_err();
            assert!(wrong.says.contains(says), "{text}: {}", wrong.says);
        }
    }
}
