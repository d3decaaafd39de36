use proptest::prelude::*;

use super::*;

const SYSTEM: &str = "You are a small crayfish. Tell the truth.";

fn budget(prompt_tokens_max: u32) -> Budget {
    Budget { prompt_tokens_max, turns_max: limits::WINDOW_TURNS_MAX }
}

fn done(turn: u64, sent: &str, answer: &str) -> PastTurn {
    PastTurn::new(turn, sent, answer, Outcome::Done)
}

fn window(past: &[PastTurn], turn: u64, content: &str, budget: Budget) -> Window {
    build(SYSTEM, past, Newest { turn, content }, budget).unwrap()
}

fn contents(window: &Window) -> Vec<&str> {
    window.messages.iter().map(|m| m.content.as_str()).collect()
}

#[test]
fn done_turns_are_repeated_and_the_newest_is_last() {
    let past = [done(1, "one", " first\n"), done(2, "two", "second")];
    let window = window(&past, 3, "three", budget(500));
    assert_eq!(contents(&window), [SYSTEM, "one", " first\n", "two", "second", "three"]);
    assert_eq!(window.prompt_tokens, budget::prompt_tokens(&window.messages));
    assert_eq!((window.clipped, window.first_turn), (None, Some(1)));
}

#[test]
fn a_broken_turn_is_no_literal_continuation_of_its_own_request() {
    for outcome in [Outcome::Error, Outcome::Cancelled, Outcome::Interrupted] {
        let aborted = window(&[], 1, "tell me", budget(500));
        let past = [PastTurn::new(1, "tell me", "Once up", outcome)];
        let next = window(&past, 2, "go on", budget(500));
        let marked = format!("{BROKEN_MARK}tell me");
        assert_eq!(contents(&next), [SYSTEM, marked.as_str(), "Once up", "go on"]);
        assert_ne!(next.messages[..2], aborted.messages[..2]);
        assert!(!next.messages[1].content.starts_with("tell me"));
    }
}

#[test]
fn turns_without_an_answer_leave_no_trace() {
    let big = "x".repeat(3000);
    let with = [
        done(1, "one", "first"),
        PastTurn::new(2, &big, "", Outcome::Error),
        done(3, "three", "third"),
        PastTurn::new(4, "four", "", Outcome::Cancelled),
    ];
    let without = [with[0].clone(), with[2].clone()];
    assert_eq!(window(&with, 5, "five", budget(900)), window(&without, 5, "five", budget(900)));
}

#[test]
fn a_message_that_is_too_long_alone_loses_its_middle() {
    let text = format!("{}{}{}", "Anfang ", "ü你🦞".repeat(3000), " Ende?");
    let past = [done(1, "one", "first")];
    for max in [64, 100, 512, 1900] {
        let window = window(&past, 2, &text, budget(max));
        let clipped = window.clipped.clone().unwrap();
        assert!(window.prompt_tokens <= max);
        assert_eq!(contents(&window), [SYSTEM, clipped.as_str()]);
        if max >= 100 {
            assert!(clipped.starts_with("Anfang ") && clipped.ends_with(" Ende?"), "{clipped}");
            let note = clipped.split("[… ").nth(1).unwrap();
            let left_out: usize = note.split(' ').next().unwrap().parse().unwrap();
            let note = format!("\n[… {left_out} characters left out …]\n");
            let kept = clipped.replace(&note, "").chars().count();
            assert_eq!(kept + left_out, text.chars().count());
        }
    }
}

#[test]
fn a_system_block_without_room_beside_it_is_an_error() {
    let newest = Newest { turn: 1, content: "hello there, how are you today" };
    let system_tokens = budget::message_tokens(SYSTEM);
    for max in [0, 5, system_tokens, system_tokens + 8] {
        let error = build(SYSTEM, &[], newest, budget(max)).unwrap_err();
        assert_eq!(error, NoRoom { system_tokens, prompt_tokens_max: max });
    }
    let whole = system_tokens + budget::message_tokens(newest.content);
    assert!(build(SYSTEM, &[], newest, budget(whole - 1)).is_ok_and(|w| w.clipped.is_some()));
    assert_eq!(build(SYSTEM, &[], newest, budget(whole)).unwrap().clipped, None);
}

#[test]
fn on_the_npu_the_window_moves_about_every_ten_turns() {
    // 40 tokens asked, 60 answered, as in small talk; 1,700 prompt tokens as on the NPU.
    let (sent, answer) = ("q".repeat(96), "a".repeat(156));
    let mut past = Vec::new();
    let mut moved_at = Vec::new();
    let mut first = None;
    for turn in 1..=1000 {
        let window = window(&past, turn, &sent, budget(1700));
        if first != window.first_turn && !past.is_empty() && turn > 2 {
            moved_at.push(turn);
        }
        first = window.first_turn;
        past.push(done(turn, &sent, &answer));
    }
    assert!((100..=160).contains(&moved_at.len()), "{} moves", moved_at.len());
}

#[test]
fn text_that_was_let_go_is_never_in_a_window_and_moves_nothing_else() {
    let mut past: Vec<PastTurn> = (1..=9).map(|t| done(t, "question", "answer")).collect();
    let before = window(&past, 10, "newest", budget(200));
    assert!(before.first_turn > Some(3));
    past[0].let_go();
    past[1].let_go();
    assert_eq!(window(&past, 10, "newest", budget(200)), before);
    for turn in &mut past[2..8] {
        turn.let_go();
    }
    let after = window(&past, 10, "newest", budget(2000));
    assert_eq!(contents(&after), [SYSTEM, "question", "answer", "newest"]);
}

/// One turn of a made-up conversation: lengths of question and answer, and its outcome.
fn turns() -> impl Strategy<Value = Vec<(usize, usize, Outcome)>> {
    let outcome = prop_oneof![
        8 => Just(Outcome::Done),
        1 => Just(Outcome::Cancelled),
        1 => Just(Outcome::Error),
    ];
    let sent = prop_oneof![10 => 1..200_usize, 1 => 1..8000_usize];
    let answer = prop_oneof![1 => Just(0_usize), 12 => 1..600_usize];
    prop::collection::vec((sent, answer, outcome), 1..180)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn every_conversation_keeps_the_windows_promises(
        turns in turns(),
        max in 300_u32..3000,
        turns_max in 1_u32..60,
    ) {
        let budget = Budget { prompt_tokens_max: max, turns_max };
        let mut past: Vec<PastTurn> = Vec::new();
        let mut last: Option<(Window, u64, String)> = None;
        let mut moves = 0_usize;
        let mut tokens_in_all = 0_u64;
        for (turn, (sent_bytes, answer_bytes, outcome)) in (1..).zip(turns) {
            let sent = format!("{turn}{}", "q".repeat(sent_bytes));
            let window = build(SYSTEM, &past, Newest { turn, content: &sent }, budget).unwrap();
            prop_assert!(window.prompt_tokens <= max);
            prop_assert_eq!(window.prompt_tokens, budget::prompt_tokens(&window.messages));
            prop_assert_eq!(window.messages[0].role, Role::System);
            prop_assert_eq!(window.messages[0].content.as_str(), SYSTEM);
            for (index, message) in window.messages.iter().enumerate().skip(1) {
                let role = if index % 2 == 1 { Role::User } else { Role::Assistant };
                prop_assert_eq!(message.role, role);
            }
            let newest = window.clipped.clone().unwrap_or(sent);
            prop_assert_eq!(&window.messages.last().unwrap().content, &newest);
            prop_assert!((window.messages.len() - 2) / 2 <= turns_max as usize);
            // A restart knows only what the log's end says.
            let oldest = oldest_needed(turn);
            let rebuilt: Vec<PastTurn> =
                past.iter().filter(|p| p.turn() >= oldest).cloned().collect();
            let again = build(SYSTEM, &rebuilt, Newest { turn, content: &newest }, budget);
            prop_assert_eq!(&again.unwrap().messages, &window.messages);
            let answer = "a".repeat(answer_bytes);
            let start = window.first_turn.unwrap_or(turn);
            if let Some((before, before_start, answer)) = &last {
                prop_assert!(start >= *before_start, "it moved backwards");
                if start == *before_start {
                    let mut expected = before.messages.clone();
                    expected.push(Message { role: Role::Assistant, content: answer.clone() });
                    prop_assert_eq!(&window.messages[..expected.len()], &expected[..]);
                } else {
                    moves += 1;
                }
            }
            let past_turn = PastTurn::new(turn, &newest, &answer, outcome);
            if past_turn.is_answered() {
                tokens_in_all += u64::from(past_turn.tokens);
            }
            let whole = outcome == Outcome::Done && !answer.is_empty();
            last = whole.then_some((window, start, answer));
            past.push(past_turn);
        }
        // A move frees a good part of the budget or of the turns, or is an epoch's.
        let room = u64::from(max - max / 100 * KEEP_PERCENT).max(1);
        let turns_room = u64::from(turns_max - turns_max * KEEP_PERCENT / 100).max(1);
        let answered = past.iter().filter(|p| p.is_answered()).count() as u64;
        let bound = 2 * tokens_in_all / room + 2 * answered / turns_room
            + past.len() as u64 / limits::WINDOW_EPOCH_TURNS + 4;
        prop_assert!(moves as u64 <= bound, "{} moves, bound {}", moves, bound);
    }
}

#[test]
fn the_voices_are_those_of_complete_answers_in_the_window() {
    let broken = PastTurn::new(3, "three", "half", Outcome::Error).said_by("reserve");
    let past = [
        done(1, "one", "a").said_by("hailo"),
        done(2, "two", "b").said_by("ollama"),
        broken,
        done(4, "four", "d").said_by("hailo"),
    ];
    let voices = |turns_max| {
        let budget = Budget { prompt_tokens_max: 2000, turns_max };
        let window = window(&past, 5, "five", budget);
        window.voices.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(voices(40), ["hailo", "ollama"]);
    assert_eq!(voices(1), ["hailo"]);
}
