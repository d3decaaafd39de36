//! The governor against tables, against noise, and against a board that heats up.

use super::*;
use crate::config::Config;
use crate::sim::thermal::{Board, Cooling};
use crate::snapshot::body::Throttling;
use proptest::prelude::*;

fn ladder() -> Ladder {
    Ladder::of(&Config::default())
}

fn hot(c: f32) -> VitalSigns {
    VitalSigns { temperature_c: Some(c), ..VitalSigns::default() }
}

fn after(begin: Instant, seconds: u64) -> Instant {
    begin + Duration::from_secs(seconds)
}

#[test]
fn a_steep_rise_is_answered_before_the_limit_and_undone_below_the_release() {
    let ladder = ladder();
    let mut governor = Governor::new(ladder);
    let begin = Instant::now();
    // One degree every five seconds: the limit of 75 would be reached after 125 s.
    let mut levels = Vec::new();
    for n in 0..25_u64 {
        let c = 50.0 + n as f32;
        if let Some(step) = governor.update(after(begin, 5 * n), &hot(c), false) {
            levels.push((step.to, c));
            assert!(step.reason.contains("75 °C is the limit"), "{}", step.reason);
        }
    }
    let order: Vec<Level> = levels.iter().map(|(level, _)| *level).collect();
    assert_eq!(order, [Level::Short, Level::Cheap, Level::NoModel]);
    assert!(levels[2].1 <= ladder.limit_c - 5.0, "well before the limit: {levels:?}");
    // It cools down: nothing changes above the release, and everything is undone below.
    let released = ladder.limit_c - ladder.no_model_below_c - ladder.release_c;
    let later = after(begin, 1000);
    assert_eq!(governor.update(later, &hot(released + 0.1), false), None);
    let step = governor.update(after(begin, 1100), &hot(45.0), false).unwrap();
    assert_eq!((step.from, step.to), (Level::NoModel, Level::Full));
    assert_eq!(governor.order(), &Order::default());
}

#[test]
fn bits_voltage_and_a_slow_model_hold_for_a_while() {
    let ladder = ladder();
    let mut governor = Governor::new(ladder);
    let begin = Instant::now();
    let throttled = VitalSigns {
        throttling: Some(Throttling { throttled: true, ..Throttling::default() }),
        ..VitalSigns::default()
    };
    let quiet = VitalSigns::default();
    let step = governor.update(begin, &throttled, false).unwrap();
    assert_eq!((step.to, step.reason.as_str()), (Level::Cheap, HELD[1].1));
    let hold = ladder.hold.as_secs();
    assert_eq!(governor.update(after(begin, hold - 1), &quiet, false), None);
    let step = governor.update(after(begin, hold), &quiet, true).unwrap();
    assert_eq!((step.to, step.reason.as_str()), (Level::Short, HELD[2].1));
    let low = VitalSigns { under_voltage: Some(true), ..quiet.clone() };
    assert_eq!(governor.update(after(begin, 3 * hold), &low, false), None);
    assert_eq!(governor.order().reason.as_deref(), Some(HELD[0].1));
    assert_eq!(governor.update(after(begin, 4 * hold), &quiet, false).unwrap().to, Level::Full);
}

#[test]
fn pressure_and_memory_demand_their_levels() {
    let pressure = |cpu, stall, ram| VitalSigns {
        cpu_pressure_percent: Some(cpu),
        memory_stall_percent: Some(stall),
        ram_percent: Some(ram),
        ..VitalSigns::default()
    };
    let mut governor = Governor::new(ladder());
    let now = Instant::now();
    let mut level = |vitals| {
        governor.update(now, &vitals, false);
        governor.order().level
    };
    assert_eq!(level(pressure(10.0, 0.0, 50.0)), Level::Full);
    assert_eq!(level(pressure(85.0, 0.0, 50.0)), Level::Short);
    assert_eq!(level(pressure(45.0, 0.0, 50.0)), Level::Short, "inside the band");
    assert_eq!(level(pressure(10.0, 12.0, 50.0)), Level::Cheap);
    assert_eq!(level(pressure(10.0, 1.0, 86.0)), Level::Cheap);
    assert_eq!(level(pressure(10.0, 1.0, 81.0)), Level::Cheap, "inside the band");
    assert_eq!(level(VitalSigns::default()), Level::Full, "what is absent demands nothing");
}

#[test]
fn a_governor_that_is_off_demands_nothing() {
    let mut governor = Governor::new(Ladder { enabled: false, ..ladder() });
    assert_eq!(governor.update(Instant::now(), &hot(99.0), true), None);
    assert_eq!(governor.order(), &Order::default());
}

proptest! {
    /// Whatever the sensor's noise does within its band around a steady truth, and however the
    /// readings are spaced, the level never goes down after it went up.
    #[test]
    fn no_noise_within_the_band_makes_it_oscillate(
        truth in 40.0_f32..85.0,
        cpu in 0.0_f32..100.0,
        release in 0.5_f32..12.0,
        readings in proptest::collection::vec((-1.0_f32..=1.0, -1.0_f32..=1.0, 1_u64..40), 2..200),
    ) {
        let ladder = Ladder { release_c: release, ..ladder() };
        // A hair less than the proof allows, for the rounding of the sums.
        let band_c = release / 4.0 * 0.999;
        let band_cpu = ladder.cpu_pressure_percent * PRESSURE_RELEASE / 2.0 * 0.999;
        let mut governor = Governor::new(ladder);
        let begin = Instant::now();
        let mut seconds = 0;
        let mut level = Level::Full;
        for (noise, noise_cpu, pause) in readings {
            seconds += pause;
            let vitals = VitalSigns {
                cpu_pressure_percent: Some(cpu + noise_cpu * band_cpu),
                ..hot(truth + noise * band_c)
            };
            if let Some(step) = governor.update(after(begin, seconds), &vitals, false) {
                prop_assert!(step.to > level, "{step:?} after {level:?} at {seconds} s");
                level = step.to;
            }
        }
    }

    /// Noise of a corner case: the sensor alternates between the two ends of its band.
    #[test]
    fn a_sensor_that_jumps_between_the_ends_of_its_band_changes_nothing_twice(
        truth in 40.0_f32..85.0,
        pause in 1_u64..60,
    ) {
        let ladder = ladder();
        let mut governor = Governor::new(ladder);
        let begin = Instant::now();
        let mut ups = 0;
        for n in 0..100_u64 {
            let noise = if n % 2 == 0 { 1.0 } else { -1.0 };
            let c = truth + noise * ladder.release_c / 4.0 * 0.999;
            if let Some(step) = governor.update(after(begin, n * pause), &hot(c), false) {
                prop_assert!(step.to > step.from);
                ups += 1;
            }
        }
        prop_assert!(ups <= 3);
    }
}

/// Someone who asks the next question as soon as an answer ends, for six hours, on a model that
/// keeps all four cores busy. Gives the highest temperature and the answers.
fn sustained_chat(cooling: Cooling, ambient_c: f64, governed: bool) -> (f64, u32) {
    const TOKENS_PER_S: f64 = 7.5;
    const ANSWER_TOKENS: u32 = 320;
    let ladder = Ladder { enabled: governed, ..ladder() };
    let mut governor = Governor::new(ladder);
    let mut board = Board::new(cooling, ambient_c);
    let begin = Instant::now();
    let (mut answer_left_s, mut wait_left_s, mut look_in_s) = (0.0, 0.0, 0_i64);
    let (mut peak, mut answers) = (0.0_f64, 0);
    for second in 0..6 * 3600 {
        let asks = answer_left_s <= 0.0 && wait_left_s <= 0.0;
        // The heart is woken by a question, and looks every five seconds while it works.
        if asks || look_in_s <= 0 {
            let vitals = hot(board.sensor_c(second));
            governor.update(after(begin, second), &vitals, false);
            look_in_s = if asks || answer_left_s > 0.0 { 5 } else { 30 };
        }
        if asks {
            let order = governor.order();
            if order.level == Level::NoModel {
                // It is told that the model rests, and tries again.
                wait_left_s = 10.0;
            } else {
                let most = order.answer_tokens_max.unwrap_or(ANSWER_TOKENS).min(ANSWER_TOKENS);
                answer_left_s = f64::from(most) / TOKENS_PER_S;
                answers += 1;
            }
        }
        board.pass(1.0, answer_left_s > 0.0);
        answer_left_s -= 1.0;
        wait_left_s -= 1.0;
        look_in_s -= 1;
        peak = peak.max(board.die_c());
    }
    (peak, answers)
}

#[test]
fn under_sustained_chat_the_limit_is_reached_only_without_the_governor() {
    let limit = f64::from(ladder().limit_c);
    for ambient_c in [18.0, 22.0, 26.0] {
        let (peak, _) = sustained_chat(Cooling::None, ambient_c, false);
        assert!(peak > limit, "{ambient_c} °C without the governor: {peak:.1} °C");
        let (peak, answers) = sustained_chat(Cooling::None, ambient_c, true);
        assert!(peak < limit, "{ambient_c} °C with the governor: {peak:.1} °C");
        assert!(answers > 100, "{ambient_c} °C: it still answers: {answers}");
    }
}

#[test]
fn a_cooled_board_is_left_alone() {
    let (peak, answers) = sustained_chat(Cooling::Active, 22.0, true);
    let (peak_without, answers_without) = sustained_chat(Cooling::Active, 22.0, false);
    assert_eq!((answers, peak.to_bits()), (answers_without, peak_without.to_bits()));
}
