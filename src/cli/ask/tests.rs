use serde_json::Value;

use super::*;
use crate::agent::fake::{self, Script};
use crate::agent::{Refused, TurnEvent};
use crate::cli::exchange::tests::House;

/// Asks and gives the exit code, standard output and standard error.
async fn asked(house: &House, json: bool, tty: bool) -> (u8, String, String) {
    let args = AskArgs { json, ..AskArgs::default() };
    let mut link = Link::open(&house.places).await.unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { out: &mut out, err: &mut err, err_is_tty: tty };
    let code = ask(&args, "hi".into(), &mut link, streams, &mut Interrupts::None).await;
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[tokio::test]
async fn standard_output_has_the_answer_alone() {
    let house = House::new();
    for tty in [false, true] {
        let done = TurnEvent::Done(fake::answer("Hello \u{1b}[31myou"));
        house.fake.script(Script::Say(vec![
            TurnEvent::Waiting { about_s: 9 },
            TurnEvent::Delta("Hello ".into()),
            TurnEvent::Delta("\u{1b}[3".into()),
            TurnEvent::Delta("1myou".into()),
            done,
        ]));
        let (code, out, err) = asked(&house, false, tty).await;
        assert_eq!((code, out.as_str()), (0, "Hello you\n"));
        assert_eq!(err.contains("thinking, about 9 s"), tty, "{err:?}");
    }
}

#[tokio::test]
async fn a_report_is_one_object() {
    let house = House::new();
    house.fake.script(fake::say(&["a\n", "b"]));
    let (code, out, _) = asked(&house, true, false).await;
    let report: Value = serde_json::from_str(&out).unwrap();
    let expected = serde_json::json!({
        "reply": "a\nb", "backend": "hailo", "model": "qwen2:1.5b", "session": "main", "turn": 1,
        "elapsed_ms": 30, "first_word_ms": 10, "cut": false, "clipped": false,
    });
    assert_eq!((code, report), (0, expected));

    let failed = TurnEvent::Failed { words: "no model".into(), code: "offline" };
    house.fake.script(Script::Say(vec![TurnEvent::Delta("half".into()), failed]));
    let (code, out, err) = asked(&house, true, false).await;
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, err.as_str()), (3, "no model\n"));
    assert_eq!((&report["reply"], &report["error"]), (&"half".into(), &"offline".into()));
}

#[tokio::test]
async fn failures_have_their_codes_and_words() {
    let house = House::new();
    let failed = |code| TurnEvent::Failed { words: "words".into(), code };
    let table = [
        (Script::Say(vec![failed("offline")]), 3, "words\n"),
        (Script::Say(vec![failed("internal")]), 1, "words\n"),
        (Script::Say(vec![TurnEvent::Cancelled]), 130, "stopped\n"),
        (Script::Refuse(Refused::BadSession), 2, "not a session name"),
        (Script::Refuse(Refused::Overloaded), 1, "too many messages"),
    ];
    for (script, expected, words) in table {
        house.fake.script(script);
        let (code, out, err) = asked(&house, false, false).await;
        assert_eq!((code, out.as_str()), (expected, ""), "{err}");
        assert!(err.contains(words), "{err}");
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_is_quiet() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let house = House::new();
    let mut link = Link::open(&house.places).await.unwrap();
    let mut err = Vec::new();
    let streams = Streams { out: &mut Closed, err: &mut err, err_is_tty: false };
    let args = AskArgs::default();
    assert_eq!(ask(&args, "hi".into(), &mut link, streams, &mut Interrupts::None).await, 0);
    assert!(err.is_empty());
}

#[test]
fn the_question_is_what_was_typed_and_what_was_piped() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let long = "x".repeat(limits::MESSAGE_BYTES_MAX + 1);
    type Row<'a> = (&'a [String], Option<&'a [u8]>, Result<&'a str, NoQuestion>);
    let table: [Row<'_>; 9] = [
        (&words("what is this"), None, Ok("what is this")),
        (&words("sum up"), Some(b"a\nb\n"), Ok("sum up\n\na\nb")),
        (&[], Some(b"a\n"), Ok("a")),
        (&words("x"), Some(b" \n"), Ok("x")),
        (&[], Some(b"\xffok"), Ok("\u{fffd}ok")),
        (&[], Some(b" \n"), Err(NoQuestion::Empty)),
        (&[], None, Err(NoQuestion::Empty)),
        (&[], Some(long.as_bytes()), Err(NoQuestion::TooLong)),
        (std::slice::from_ref(&long), None, Err(NoQuestion::TooLong)),
    ];
    for (typed, piped, expected) in table {
        let mut piped = piped;
        let input = piped.as_mut().map(|piped| piped as &mut dyn Read);
        assert_eq!(question(typed, input), expected.map(str::to_owned));
    }
}
