//! How warm a Raspberry Pi 5 becomes: two bodies, the die and the board with its cooler.
//!
//! The figures are fitted to published measurements, not to a board of ours:
//! - without a cooler it idles at about 50 °C (beamostore.com, "Raspberry Pi 5 overheating"), and
//!   a stress test on four cores at 22 °C reaches 80 °C "within a few minutes"
//!   (pidiylab.com, "Raspberry Pi 5 cooling guide");
//! - the same benchmarks gave a peak of 89 °C without and 72 °C with the Active Cooler, 81 °C and
//!   56 °C on average (phoronix.com, "Raspberry Pi 5 benchmarks", page 2).

/// What takes the heat away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cooling {
    /// The bare board.
    None,
    /// The official cooler with its fan.
    Active,
}

/// Power of the chip at rest, in watts.
const IDLE_W: f64 = 2.0;

/// Power of the chip while four cores decode, in watts.
const DECODING_W: f64 = 6.5;

/// From the die to the board, in kelvin a watt: the jump within seconds of the first token.
const DIE_K_PER_W: f64 = 1.2;

/// Heat that the die stores, in joules a kelvin: its jump takes some three seconds.
const DIE_J_PER_K: f64 = 2.5;

/// Heat that the board stores, in joules a kelvin.
const BOARD_J_PER_K: f64 = 24.0;

/// The firmware slows the chip down here, in degrees Celsius; it then takes this share of the
/// power for each degree beyond.
const THROTTLES_AT_C: f64 = 80.0;
const THROTTLED_SHARE_PER_K: f64 = 0.1;

/// A board in a room.
#[derive(Debug, Clone)]
pub struct Board {
    ambient_c: f64,
    board_k_per_w: f64,
    die_c: f64,
    board_c: f64,
}

impl Board {
    /// A board that has rested for long.
    #[must_use]
    pub fn new(cooling: Cooling, ambient_c: f64) -> Self {
        let board_k_per_w = match cooling {
            Cooling::None => 12.8,
            Cooling::Active => 5.0,
        };
        let board_c = ambient_c + IDLE_W * board_k_per_w;
        Self { ambient_c, board_k_per_w, die_c: board_c + IDLE_W * DIE_K_PER_W, board_c }
    }

    /// Lets time pass, in seconds.
    pub fn pass(&mut self, seconds: f64, decoding: bool) {
        const STEP_S: f64 = 0.25;
        let mut left = seconds;
        while left > 0.0 {
            let dt = left.min(STEP_S);
            let beyond = (self.die_c - THROTTLES_AT_C).max(0.0);
            let share = (1.0 - THROTTLED_SHARE_PER_K * beyond).max(0.0);
            let asked = if decoding { DECODING_W } else { IDLE_W };
            let power = IDLE_W + (asked - IDLE_W) * share;
            let to_board = (self.die_c - self.board_c) / DIE_K_PER_W;
            let to_room = (self.board_c - self.ambient_c) / self.board_k_per_w;
            self.die_c += (power - to_board) * dt / DIE_J_PER_K;
            self.board_c += (to_board - to_room) * dt / BOARD_J_PER_K;
            left -= dt;
        }
    }

    /// The die's true temperature, in degrees Celsius.
    #[must_use]
    pub fn die_c(&self) -> f64 {
        self.die_c
    }

    /// What the sensor says: steps of 0.55 degrees, as the chip's are, with a jitter of one step
    /// that depends on `salt`.
    #[must_use]
    pub fn sensor_c(&self, salt: u64) -> f32 {
        const STEP_C: f64 = 0.55;
        let jitter = [0.0, STEP_C, -STEP_C][usize::try_from(salt % 3).unwrap_or(0)];
        ((self.die_c / STEP_C).round() * STEP_C + jitter) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_board_is_as_warm_as_the_published_ones() {
        let mut bare = Board::new(Cooling::None, 22.0);
        assert!((47.0..53.0).contains(&bare.die_c()), "idle: {}", bare.die_c());
        let mut seconds = 0;
        while bare.die_c() < 80.0 && seconds < 1000 {
            bare.pass(1.0, true);
            seconds += 1;
        }
        assert!((90..300).contains(&seconds), "80 °C after {seconds} s, a few minutes");
        bare.pass(3600.0, true);
        assert!((84.0..90.0).contains(&bare.die_c()), "throttled: {}", bare.die_c());
        let mut cooled = Board::new(Cooling::Active, 22.0);
        cooled.pass(3600.0, true);
        assert!((56.0..72.0).contains(&cooled.die_c()), "cooled: {}", cooled.die_c());
    }
}
