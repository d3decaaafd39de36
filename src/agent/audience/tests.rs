use std::collections::BTreeMap;

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::agent::Answer;
use crate::limits;

/// All that a seat is to be told now.
fn hear(seat: &mut Seat) -> Vec<Happening> {
    let mut heard = Vec::new();
    while let Some(happening) = seat.next().now_or_never() {
        let last = happening == Happening::Behind;
        heard.push(happening);
        if last {
            break;
        }
    }
    heard
}

fn event(turn: u64, event: TurnEvent) -> Happening {
    Happening::Turn { session: "a".into(), turn, event }
}

fn delta(turn: u64, text: &str) -> Happening {
    event(turn, TurnEvent::Delta(text.into()))
}

fn done(text: &str) -> TurnEvent {
    TurnEvent::Done(Answer { text: text.into(), ..Answer::default() })
}

#[test]
fn everybody_but_the_one_who_said_it_hears_what_was_said() {
    let audience = Arc::new(Audience::default());
    let (mut speaker, mut other, mut elsewhere) =
        (audience.seat(), audience.seat(), audience.seat());
    speaker.follow("a");
    other.follow("a");
    elsewhere.follow("b");
    let (telling, _) = audience.begin("a", 1, "hi", Some(speaker.number()));
    telling.waiting(3);
    telling.text("He");
    telling.end(TurnEvent::Cancelled);
    telling.text("late");
    telling.end(done("late"));
    let said = Happening::Said { session: "a".into(), turn: 1, said: "hi".into() };
    let waiting = event(1, TurnEvent::Waiting { about_s: 3 });
    let told = [waiting, delta(1, "He"), event(1, TurnEvent::Cancelled)];
    assert_eq!(hear(&mut speaker), told);
    assert_eq!(hear(&mut other), [&[said], &told[..]].concat());
    assert_eq!(hear(&mut elsewhere), []);
    assert!(speaker.is_idle());
}

#[test]
fn an_answer_that_comes_whole_is_told_as_a_piece_and_an_end() {
    let audience = Arc::new(Audience::default());
    let mut seat = audience.seat();
    seat.follow("a");
    let (telling, _) = audience.begin("a", 1, "hi", Some(seat.number()));
    telling.text("He");
    telling.end(done("Hello"));
    assert_eq!(hear(&mut seat), [delta(1, "Hello"), event(1, done("Hello"))]);
}

#[test]
fn a_turn_that_nobody_ends_is_ended() {
    let audience = Arc::new(Audience::default());
    let (telling, mut events) = audience.begin("a", 1, "hi", None);
    let also = telling.clone();
    drop(telling);
    assert_eq!(events.recv().now_or_never(), None, "somebody may still tell");
    drop(also);
    let end = events.recv().now_or_never().flatten();
    assert!(matches!(end, Some(TurnEvent::Failed { code: "internal", .. })), "{end:?}");
    assert_eq!(events.recv().now_or_never(), Some(None));
    drop(events);
    let left = format!("{:?}", audience.hall());
    assert!(left.contains("feeds: {}, places: {}"), "nothing is kept: {left}");
}

#[test]
fn who_comes_in_the_middle_is_shown_the_state_and_told_the_rest() {
    let audience = Arc::new(Audience::default());
    let (first, _) = audience.begin("a", 1, "one", None);
    first.text("Hel");
    let (second, _) = audience.begin("a", 2, "two", None);
    second.waiting(9);
    let mut late = audience.seat();
    let snap = |turn, said: &str, text: &str, about_s| Snap {
        turn,
        said: said.into(),
        text: text.into(),
        about_s,
    };
    assert_eq!(late.follow("a"), [snap(1, "one", "Hel", None), snap(2, "two", "", Some(9))]);
    first.text("lo");
    first.end(done("Hello"));
    second.end(TurnEvent::Cancelled);
    assert_eq!(late.untold_from("a"), Some(1));
    let expected = [delta(1, "lo"), event(1, done("Hello")), event(2, TurnEvent::Cancelled)];
    assert_eq!(hear(&mut late), expected);
    assert_eq!(late.untold_from("a"), None);
    assert_eq!(late.follow("a"), [], "an ended turn is history");
}

#[test]
fn whoever_is_too_far_behind_is_told_so_and_keeps_nothing() {
    let audience = Arc::new(Audience::default());
    let mut asleep = audience.seat();
    asleep.follow("a");
    for turn in 1..=limits::TURNS_BEHIND_MAX as u64 + 1 {
        let (telling, _) = audience.begin("a", turn, "hi", None);
        telling.end(done("x"));
    }
    assert_eq!(hear(&mut asleep), [Happening::Behind]);
    drop(asleep);
    let mut notified = audience.seat();
    notified.follow("a");
    for _ in 0..=limits::TURNS_BEHIND_MAX {
        audience.titled("a", "t", 0);
    }
    assert_eq!(hear(&mut notified), [Happening::Behind]);
}

#[test]
fn the_session_followed_longest_is_let_go_when_there_are_too_many() {
    let audience = Arc::new(Audience::default());
    let seat = audience.seat();
    for number in 0..=limits::FOLLOWED_MAX {
        seat.follow(&number.to_string());
    }
    assert!(!seat.follows("0"));
    assert!(seat.follows("1"));
}

/// What one reader knows of each turn, from whatever it was told.
#[derive(Default)]
struct Known(BTreeMap<u64, (String, u32)>);

impl Known {
    fn note(&mut self, heard: Vec<Happening>) {
        for happening in heard {
            let Happening::Turn { turn, event, .. } = happening else { continue };
            let known = self.0.entry(turn).or_default();
            match event {
                TurnEvent::Delta(text) => {
                    assert_eq!(known.1, 0, "no words after the end");
                    known.0.push_str(&text);
                }
                TurnEvent::Waiting { .. } => assert_eq!(known.1, 0, "no wait after the end"),
                _ => known.1 += 1,
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Begin,
    Text(String),
    Waiting(u32),
    End,
    Cancel,
    Read(usize),
    Join(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Begin),
        8 => "[a-zäö]{1,4}".prop_map(Step::Text),
        1 => (0..9u32).prop_map(Step::Waiting),
        2 => Just(Step::End),
        1 => Just(Step::Cancel),
        4 => (0..4usize).prop_map(Step::Read),
        2 => (0..4usize).prop_map(Step::Join),
    ]
}

proptest! {
    #[test]
    fn whenever_readers_come_and_read_each_has_every_text_whole_and_every_end_once(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let audience = Arc::new(Audience::default());
        let mut seats: Vec<_> = (0..4).map(|_| (audience.seat(), Known::default())).collect();
        let mut truth: BTreeMap<u64, String> = BTreeMap::new();
        let mut running: Option<(u64, Telling)> = None;
        let mut turns = 0;
        let mut joined = [None; 4];
        for step in steps {
            match step {
                Step::Begin if running.is_none() => {
                    turns += 1;
                    running = Some((turns, audience.begin("a", turns, "hi", None).0));
                    truth.insert(turns, String::new());
                }
                Step::Text(text) => if let Some((turn, telling)) = &running {
                    telling.text(&text);
                    truth.get_mut(turn).unwrap().push_str(&text);
                },
                Step::Waiting(about_s) => if let Some((_, telling)) = &running {
                    telling.waiting(about_s);
                },
                Step::End => if let Some((turn, telling)) = running.take() {
                    telling.end(done(&truth[&turn]));
                },
                Step::Cancel => if let Some((_, telling)) = running.take() {
                    telling.end(TurnEvent::Cancelled);
                },
                Step::Read(at) => {
                    let (seat, known) = &mut seats[at];
                    known.note(hear(seat));
                }
                Step::Join(at) => {
                    let (seat, known) = &mut seats[at];
                    let snaps = seat.follow("a");
                    joined[at].get_or_insert(snaps.first().map_or(turns + 1, |snap| snap.turn));
                    for snap in snaps {
                        known.0.insert(snap.turn, (snap.text, 0));
                    }
                }
                Step::Begin => {}
            }
        }
        drop(running);
        for ((seat, known), joined) in seats.iter_mut().zip(joined) {
            known.note(hear(seat));
            let Some(from) = joined else {
                prop_assert!(known.0.is_empty());
                continue;
            };
            for (turn, text) in truth.range(from..) {
                prop_assert_eq!(known.0.get(turn), Some(&(text.clone(), 1)), "turn {}", turn);
            }
            prop_assert!(seat.is_idle());
        }
        drop(seats);
        let left = format!("{:?}", audience.hall());
        prop_assert!(left.contains("feeds: {}"), "{}", left);
    }
}
