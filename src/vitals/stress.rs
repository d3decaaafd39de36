//! Stress: the seed's state machine with two thresholds (pure).
//!
//! Entered when the temperature or the memory reaches its limit, left when both are at or below
//! their release. Between the two nothing changes, so that a reading that jitters around a limit
//! does not change the agent's manners from turn to turn.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;
use crate::snapshot::body::{Stress, VitalSigns};

/// Where stress begins and ends. A release at or above its limit counts as the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Temperature at which it begins, in degrees Celsius.
    pub temperature_c: f32,
    /// Temperature at which it may end.
    pub temperature_release_c: f32,
    /// Memory in use at which it begins, in percent.
    pub ram_percent: f32,
    /// Memory in use at which it may end.
    pub ram_release_percent: f32,
    /// Stress without a reason, for trying its effects on a cool machine.
    pub forced: bool,
}

impl Limits {
    /// As configured; `forced` is stress without a reason.
    #[must_use]
    pub fn of(config: &Config, forced: bool) -> Self {
        let hardware = &config.hardware;
        Self {
            temperature_c: hardware.thermal_limit_c,
            temperature_release_c: hardware.thermal_release_c,
            ram_percent: hardware.ram_limit_percent,
            ram_release_percent: hardware.ram_release_percent,
            forced,
        }
    }
}

/// A change.
#[derive(Debug, Clone, PartialEq)]
pub enum Edge {
    /// Stress has begun.
    Entered {
        /// What is beyond its limit, in a sentence.
        reason: String,
    },
    /// Stress is over.
    Left {
        /// How long it lasted.
        lasted: Duration,
        /// The whole episode.
        episode: Stress,
    },
}

/// Remembers whether the body is under stress.
#[derive(Debug, Default)]
pub struct Detector {
    since: Option<Instant>,
    episode: Stress,
}

impl Detector {
    /// Takes a reading; tells a change, and only that.
    pub fn update(&mut self, now: Instant, vitals: &VitalSigns, limits: &Limits) -> Option<Edge> {
        let (hot, full) = (vitals.temperature_c, vitals.ram_percent);
        match self.since {
            None => {
                let reason = reason(vitals, limits)?;
                self.since = Some(now);
                self.episode = Stress {
                    active: true,
                    lasts: Some(Duration::ZERO),
                    peak_temperature_c: hot,
                    peak_ram_percent: full,
                };
                Some(Edge::Entered { reason })
            }
            Some(since) => {
                let lasted = now.saturating_duration_since(since);
                self.episode.lasts = Some(lasted);
                self.episode.peak_temperature_c = higher(self.episode.peak_temperature_c, hot);
                self.episode.peak_ram_percent = higher(self.episode.peak_ram_percent, full);
                if !is_over(vitals, limits) {
                    return None;
                }
                self.since = None;
                self.episode.active = false;
                Some(Edge::Left { lasted, episode: self.episode.clone() })
            }
        }
    }

    /// The present episode, or the last one.
    #[must_use]
    pub fn state(&self) -> Stress {
        self.episode.clone()
    }
}

/// Why stress begins, if it does.
fn reason(vitals: &VitalSigns, limits: &Limits) -> Option<String> {
    if let Some(c) = vitals.temperature_c.filter(|c| *c >= limits.temperature_c) {
        return Some(format!("the processor has {c:.1} °C, {} is the limit", limits.temperature_c));
    }
    if let Some(used) = vitals.ram_percent.filter(|used| *used >= limits.ram_percent) {
        return Some(format!(
            "{used:.0} % of memory is in use, {} is the limit",
            limits.ram_percent
        ));
    }
    limits.forced.then(|| "it is forced by CRAYFISH_FORCE_STRESS".to_owned())
}

/// A sensor that is gone keeps nobody under stress.
fn is_over(vitals: &VitalSigns, limits: &Limits) -> bool {
    let below = |reading: Option<f32>, limit: f32, release: f32| {
        reading.is_none_or(|value| if release < limit { value <= release } else { value < limit })
    };
    !limits.forced
        && below(vitals.temperature_c, limits.temperature_c, limits.temperature_release_c)
        && below(vitals.ram_percent, limits.ram_percent, limits.ram_release_percent)
}

fn higher(a: Option<f32>, b: Option<f32>) -> Option<f32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        temperature_c: 75.0,
        temperature_release_c: 70.0,
        ram_percent: 85.0,
        ram_release_percent: 80.0,
        forced: false,
    };

    fn reading(c: Option<f32>, ram: f32) -> VitalSigns {
        VitalSigns { temperature_c: c, ram_percent: Some(ram), ..VitalSigns::default() }
    }

    /// Readings ten seconds apart, and the edges they cause: `+` enters, `-` leaves.
    fn edges(limits: &Limits, readings: &[VitalSigns]) -> String {
        let mut detector = Detector::default();
        let begin = Instant::now();
        let at = |n: usize| begin + Duration::from_secs(10) * u32::try_from(n).unwrap();
        let told = readings.iter().enumerate().map(|(n, reading)| {
            match detector.update(at(n), reading, limits) {
                None => '.',
                Some(Edge::Entered { .. }) => '+',
                Some(Edge::Left { .. }) => '-',
            }
        });
        told.collect()
    }

    #[test]
    fn it_begins_with_either_and_ends_with_both() {
        let c = |c, ram| reading(Some(c), ram);
        let row = [c(74.9, 10.0), c(75.0, 10.0), c(71.0, 86.0), c(70.0, 84.0), c(70.0, 80.0)];
        assert_eq!(edges(&LIMITS, &row), ".+..-");
        let row = [c(50.0, 85.0), c(50.0, 81.0), c(76.0, 70.0), c(70.1, 70.0), c(70.0, 70.0)];
        assert_eq!(edges(&LIMITS, &row), "+...-");
    }

    #[test]
    fn without_a_sensor_memory_decides_alone() {
        let row = [reading(None, 85.0), reading(None, 81.0), reading(None, 80.0)];
        assert_eq!(edges(&LIMITS, &row), "+.-");
        let row = [reading(Some(80.0), 1.0), VitalSigns::default()];
        assert_eq!(edges(&LIMITS, &row), "+-", "a sensor that went away");
    }

    #[test]
    fn forced_stress_does_not_end() {
        let forced = Limits { forced: true, ..LIMITS };
        assert_eq!(edges(&forced, &[reading(Some(40.0), 10.0), reading(Some(40.0), 10.0)]), "+.");
    }

    #[test]
    fn a_release_above_the_limit_counts_as_the_limit() {
        let odd = Limits { temperature_release_c: 90.0, ..LIMITS };
        let row = [reading(Some(75.0), 1.0), reading(Some(75.0), 1.0), reading(Some(74.9), 1.0)];
        assert_eq!(edges(&odd, &row), "+.-");
    }

    #[test]
    fn the_end_tells_the_peaks_and_the_duration_of_the_episode() {
        let mut detector = Detector::default();
        let begin = Instant::now();
        detector.update(begin, &reading(Some(76.0), 50.0), &LIMITS);
        detector.update(begin + Duration::from_secs(30), &reading(Some(81.5), 40.0), &LIMITS);
        let end = begin + Duration::from_secs(90);
        let Some(Edge::Left { lasted, episode }) =
            detector.update(end, &reading(Some(60.0), 45.0), &LIMITS)
        else {
            panic!("it is over")
        };
        assert_eq!(lasted, Duration::from_secs(90));
        assert_eq!(episode.peak_temperature_c, Some(81.5));
        assert_eq!(episode.peak_ram_percent, Some(50.0));
        assert!(!detector.state().active);
    }

    proptest! {
        #[test]
        fn readings_inside_the_band_change_nothing(
            noise in proptest::collection::vec((70.01_f32..74.99, 80.01_f32..84.99), 1..100),
            hot in any::<bool>(),
        ) {
            let first = if hot { reading(Some(80.0), 50.0) } else { reading(Some(40.0), 50.0) };
            let mut row = vec![first];
            row.extend(noise.into_iter().map(|(c, ram)| reading(Some(c), ram)));
            let expected = if hot { '+' } else { '.' };
            let told = edges(&LIMITS, &row);
            prop_assert!(told.starts_with(expected) && told[1..].chars().all(|c| c == '.'));
        }
    }
}
