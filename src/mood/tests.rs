//! The seed's figures, and properties of any.

use proptest::prelude::*;

use super::*;
use crate::config::Config;

fn tuning() -> Tuning {
    Tuning::new(&Config::default().mood, Duration::from_secs(30))
}

fn nudges() -> Nudges {
    Config::default().mood.nudges
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

#[test]
fn the_seeds_figures_are_the_defaults() {
    let tuning = tuning();
    assert_eq!(tuning.baselines, Channels([0.2, 0.0, 0.0, 0.2, 0.6]));
    assert_eq!(tuning.half_life, minutes(3));
    let n = nudges();
    for (nudge, channels) in [
        (n.user_positive, [0.15, 0.0, 0.0, 0.08, 0.0]),
        (n.user_negative, [0.0, 0.0, 0.15, 0.0, -0.08]),
        (n.user_neutral, [0.0, 0.0, 0.0, 0.0, 0.02]),
        (n.user_urgent, [0.0, 0.0, 0.0, 0.12, -0.05]),
        (n.user_mixed, [0.07, 0.0, 0.07, 0.0, 0.0]),
        (n.vitals_stress, [0.0, 0.12, 0.06, -0.1, 0.0]),
    ] {
        assert_eq!(nudge.0, channels);
    }
}

#[test]
fn half_of_a_nudge_is_left_after_a_half_life_and_a_quarter_after_two() {
    let tuning = tuning();
    let sad = Mood::at_rest(&tuning).with(nudges().user_negative);
    for (later, left) in [(0, 0.15), (3, 0.075), (6, 0.0375)] {
        let sorrow = sad.after(minutes(later), &tuning).level(Channel::Sorrow);
        assert!((sorrow - left).abs() < 1e-9, "{later} min: {sorrow}");
    }
}

/// The seed's program compared channels as they are, so that joy at rest hid a fresh sorrow.
#[test]
fn one_sad_message_is_felt_as_sorrow_and_rest_as_nothing() {
    let tuning = tuning();
    let rest = Mood::at_rest(&tuning);
    assert_eq!(rest.felt(&tuning), None);
    assert_eq!(rest.dominant(), Channel::Calm);
    let sad = rest.with(nudges().user_negative);
    assert_eq!(sad.felt(&tuning).map(|(channel, _)| channel), Some(Channel::Sorrow));
    assert_eq!(sad.after(minutes(30), &tuning).felt(&tuning), None);
}

#[test]
fn a_message_in_a_hurry_adds_to_what_else_it_is() {
    let reading = Reading { sentiment: Sentiment::Negative, urgent: true };
    let both = nudge_of(reading, &nudges()).0;
    let wanted = [0.0, 0.0, 0.15, 0.12, -0.13];
    assert!(both.iter().zip(wanted).all(|(is, want)| (is - want).abs() < 1e-9), "{both:?}");
}

fn channels() -> impl Strategy<Value = Channels> {
    prop::array::uniform5(-1.5..1.5_f64).prop_map(Channels)
}

fn tunings() -> impl Strategy<Value = Tuning> {
    (prop::array::uniform5(0.0..=1.0_f64), 1..100_000_u64).prop_map(|(baselines, seconds)| Tuning {
        baselines: Channels(baselines),
        half_life: Duration::from_secs(seconds),
        ..tuning()
    })
}

proptest! {
    #[test]
    fn every_channel_stays_within_0_and_1(
        tuning in tunings(),
        steps in prop::collection::vec((channels(), 0..10_000_u64), 0..30),
    ) {
        let mut mood = Mood::at_rest(&tuning);
        for (nudge, seconds) in steps {
            mood = mood.with(nudge).after(Duration::from_secs(seconds), &tuning);
            for channel in Channel::ALL {
                prop_assert!((0.0..=1.0).contains(&mood.level(channel)), "{mood:?}");
            }
        }
    }

    #[test]
    fn looking_more_often_changes_nothing(
        tuning in tunings(),
        nudge in channels(),
        parts in prop::collection::vec(0..3_000_u64, 1..20),
    ) {
        let nudged = Mood::at_rest(&tuning).with(nudge);
        let at_once = nudged.after(Duration::from_secs(parts.iter().sum()), &tuning);
        let mut in_steps = nudged;
        for part in parts {
            in_steps = in_steps.after(Duration::from_secs(part), &tuning);
        }
        for channel in Channel::ALL {
            prop_assert!((at_once.level(channel) - in_steps.level(channel)).abs() < 1e-9);
        }
    }

    #[test]
    fn every_channel_comes_nearer_to_its_baseline_and_never_past_it(
        tuning in tunings(), nudge in channels(), seconds in 1..100_000_u64,
    ) {
        let before = Mood::at_rest(&tuning).with(nudge);
        let later = before.after(Duration::from_secs(seconds), &tuning);
        for (channel, base) in Channel::ALL.into_iter().zip(tuning.baselines.0) {
            let (was, is) = (before.level(channel) - base, later.level(channel) - base);
            prop_assert!(is.abs() <= was.abs() + 1e-12 && was * is >= -1e-12, "{was} {is}");
        }
    }

    #[test]
    fn a_nudge_is_exact_until_a_channel_is_full_or_empty(
        nudge in prop::array::uniform5(-0.2..0.4_f64),
    ) {
        let middle = Tuning { baselines: Channels([0.3; 5]), ..tuning() };
        let mood = Mood::at_rest(&middle).with(Channels(nudge));
        for (channel, added) in Channel::ALL.into_iter().zip(nudge) {
            prop_assert!((mood.level(channel) - 0.3 - added).abs() < 1e-12);
        }
    }
}
