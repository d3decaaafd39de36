//! The beat against tables.

use super::*;
use crate::config::Config;
use crate::snapshot::body::Level;
use jiff::civil::{date, time};

fn rhythm() -> Rhythm {
    let config = Config::default();
    Rhythm {
        pulse: Duration::from_secs(30),
        duty_start: time(6, 0, 0, 0),
        sleep_start: time(2, 0, 0, 0),
        idle: Duration::from_secs(300),
        stress: Limits::of(&config, false),
        ladder: Ladder::of(&config),
    }
}

fn pulse() -> Pulse {
    Pulse::new(rhythm(), None)
}

fn whole() -> Seen {
    Seen { whole: true, online: true, ..Seen::default() }
}

fn warm(c: f32) -> Seen {
    Seen { vitals: VitalSigns { temperature_c: Some(c), ..VitalSigns::default() }, ..whole() }
}

fn told(actions: &[Action]) -> Vec<&'static str> {
    let names = actions.iter().map(|action| match action {
        Action::FeedWatchdog => "feed",
        Action::Tell(event) => event.name(),
        Action::Obey(order) => order.level.as_str(),
        Action::StartSleep(_) => "sleep",
        Action::EndSleep(_) => "wake",
        Action::StartIdle => "idle",
        Action::Keep => "keep",
    });
    names.collect()
}

#[test]
fn a_beat_feeds_only_when_all_move_and_says_each_change_once() {
    let mut pulse = pulse();
    let now = Instant::now();
    let mut look = |stuck: &[&'static str]| {
        told(&pulse.beat(now, Seen { stuck: Some(stuck.to_vec()), ..Seen::default() }))
    };
    assert_eq!(look(&[]), ["feed"]);
    assert_eq!(look(&["store"]), ["beat.stuck"]);
    assert_eq!(look(&["store"]), [""; 0]);
    assert_eq!(look(&["store", "agent"]), ["beat.stuck"]);
    assert_eq!(look(&[]), ["feed", "beat.moving"]);
    assert_eq!(told(&pulse.beat(now, Seen::default())), [""; 0], "not looked, not fed");
}

#[test]
fn heat_is_told_at_its_edges_only_and_orders_follow() {
    let mut pulse = pulse();
    let begin = Instant::now();
    let mut at = |seconds, c| told(&pulse.beat(begin + Duration::from_secs(seconds), warm(c)));
    assert_eq!(at(0, 50.0), ["keep"]);
    assert_eq!(at(30, 76.0), ["stress.entered", "governor.stepped", "no_model", "keep"]);
    let same = at(600, 76.0);
    assert!(!same.contains(&"stress.entered") && !same.contains(&"governor.stepped"), "{same:?}");
    assert_eq!(at(1200, 50.0), ["stress.left", "governor.stepped", "full", "keep"]);
    assert_eq!(pulse.body().counters.stress, 1);
    assert_eq!(pulse.body().stress.peak_temperature_c, Some(76.0));
    assert_eq!(pulse.body().history.len(), 4);
    assert_eq!(pulse.body().history[1].level, Level::NoModel);
}

#[test]
fn nights_begin_and_end_once_and_never_before_the_clock_is_set() {
    let mut pulse = pulse();
    let begin = Instant::now();
    let mut at = |minutes: u64, civil: Option<civil::DateTime>| {
        let now = begin + Duration::from_secs(60 * minutes);
        let actions = pulse.beat(now, Seen { civil, ..whole() });
        actions.into_iter().filter(|action| *action != Action::Keep).collect::<Vec<_>>()
    };
    let evening = date(2026, 3, 1);
    assert_eq!(at(0, None), []);
    assert_eq!(at(1, Some(evening.at(3, 0, 0, 0))), [Action::StartSleep(evening)]);
    assert_eq!(at(2, Some(evening.at(3, 1, 0, 0))), []);
    assert_eq!(at(3, Some(evening.at(6, 0, 0, 0))), [Action::EndSleep(evening)]);
    assert_eq!(at(4, Some(evening.at(23, 0, 0, 0))), []);
    let next = date(2026, 3, 2);
    assert_eq!(at(5, Some(next.at(2, 0, 0, 0))), [Action::StartSleep(next)]);
    assert!(pulse.body().sleeping);
}

#[test]
fn a_night_that_began_before_a_restart_does_not_begin_again_and_ends() {
    let evening = date(2026, 3, 1);
    let mut pulse = Pulse::new(rhythm(), Some(evening));
    let mut at = |civil| {
        let actions = pulse.beat(Instant::now(), Seen { civil: Some(civil), ..whole() });
        (told(&actions).first().copied(), pulse.body().sleeping)
    };
    assert_eq!(at(evening.at(3, 0, 0, 0)), (Some("keep"), true));
    assert_eq!(at(evening.at(6, 0, 0, 0)), (Some("wake"), false));
    // A clock that is put back does not make a second night of it.
    assert_eq!(at(evening.at(5, 0, 0, 0)), (Some("keep"), true));
    assert_eq!(at(evening.at(6, 0, 0, 0)), (Some("wake"), false));
    assert_eq!(at(date(2026, 3, 2).at(2, 0, 0, 0)), (Some("sleep"), true));
}

#[test]
fn quiet_is_noticed_once_and_not_while_it_sleeps_or_works() {
    let mut pulse = pulse();
    let begin = Instant::now();
    let noon = date(2026, 3, 1).at(12, 0, 0, 0);
    let mut at = |quiet_s, turns, civil| {
        let quiet = Duration::from_secs(quiet_s);
        told(&pulse.beat(begin, Seen { quiet, turns, civil: Some(civil), ..whole() }))
    };
    assert_eq!(at(299, 0, noon), ["keep"]);
    assert_eq!(at(300, 1, noon), ["keep"], "an answer runs");
    assert_eq!(at(301, 0, noon), ["idle", "keep"]);
    assert_eq!(at(999, 0, noon), ["keep"], "once");
    assert_eq!(at(0, 0, noon), ["keep"]);
    assert_eq!(at(300, 0, noon), ["idle", "keep"], "again after a message");
    let night = date(2026, 3, 2).at(3, 0, 0, 0);
    assert_eq!(at(9999, 0, night), ["sleep", "keep"]);
    let morning = date(2026, 3, 2).at(6, 0, 0, 0);
    assert_eq!(at(99_999, 0, morning), ["wake", "keep"], "waking begins a new quiet");
}

#[test]
fn the_charts_keep_the_last_beats_and_looks_in_between_leave_no_sample() {
    let mut pulse = pulse();
    let begin = Instant::now();
    for n in 0..2 * HISTORY_SAMPLES {
        let now = begin + Duration::from_secs(30 * n as u64);
        let _ = pulse.beat(now, Seen { at_ms: n as i64, ..whole() });
        let _ = pulse.beat(now, Seen { at_ms: -1, ..Seen::default() });
    }
    let history = &pulse.body().history;
    assert_eq!(history.len(), HISTORY_SAMPLES);
    assert_eq!(history[0].at_ms, HISTORY_SAMPLES as i64);
    assert_eq!(pulse.body().counters.pulses, 2 * HISTORY_SAMPLES as u64);
}

#[test]
fn an_hour_of_beats_is_one_happening_and_the_rest_is_told_at_the_end() {
    let mut pulse = pulse();
    let begin = Instant::now();
    let mut summaries = Vec::new();
    for n in 0..=180_u64 {
        let c = if n % 2 == 0 { 40.0 } else { 50.0 };
        let actions = pulse.beat(begin + Duration::from_secs(30 * n), warm(c));
        summaries.extend(actions.into_iter().filter_map(|action| match action {
            Action::Tell(Event::BeatsSummed(summary)) => Some(summary),
            _ => None,
        }));
    }
    assert_eq!(summaries.len(), 1);
    let summary = &summaries[0];
    assert_eq!(summary.beats, 121);
    assert_eq!((summary.temperature_min_c, summary.temperature_max_c), (Some(40.0), Some(50.0)));
    assert!((44.0..46.0).contains(&summary.temperature_mean_c.unwrap()));
    assert_eq!(summary.cpu_mean_percent, None, "absent is not 0");
    let Some(Event::BeatsSummed(rest)) = pulse.last_words() else { panic!("sixty beats are left") };
    assert_eq!(rest.beats, 60);
    assert_eq!(pulse.last_words(), None);
}
