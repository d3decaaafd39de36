use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::log::{Line, Outcome};
use super::*;
use crate::clock::SteppedClock;
use crate::event::{Event, Events};
use crate::store::{EventRow, KIND_END, Options};

const DEADLINE: Duration = Duration::from_secs(20);

struct Rig {
    store: Store,
    sessions: Sessions,
    clock: Arc<SteppedClock>,
    events: Events,
    stop: CancellationToken,
    task: JoinHandle<Result<(), StoreError>>,
}

fn rig_with(dir: &Path, pages_max: Option<u32>) -> Rig {
    let clock = Arc::new(SteppedClock::new(1_800_000_000_000));
    let options = Options {
        state_dir: dir.to_owned(),
        fsync_always: false,
        idle_flush: Duration::from_secs(3600),
        pages_max,
    };
    let events = Events::default();
    let (store, task) = Store::open(options, clock.clone(), events.clone()).unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(task.run(stop.clone()));
    let sessions = Sessions::new(store.clone(), clock.clone());
    Rig { store, sessions, clock, events, stop, task }
}

fn rig(dir: &Path) -> Rig {
    rig_with(dir, None)
}

impl Rig {
    async fn close(self) -> Result<(), StoreError> {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap()
    }
}

fn answer(raw: &str) -> Option<Assistant> {
    Some(Assistant { raw: raw.into(), ..Assistant::default() })
}

/// `outcome: text` of each line.
fn shown(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|l| format!("{}: {}", l.outcome.unwrap_or("person"), l.text)).collect()
}

/// What a window makes of the session: the contents after the system block.
async fn ledger(sessions: &Sessions, session: &str, turn: u64) -> Vec<String> {
    let past = sessions.turns(session).await.unwrap();
    let budget = window::Budget { prompt_tokens_max: 4000, turns_max: 40 };
    let newest = window::Newest { turn, content: "newest" };
    let window = window::build("system", &past, newest, budget).unwrap();
    window.messages.into_iter().skip(1).map(|m| m.content).collect()
}

#[test]
fn session_names_are_strict() {
    assert_eq!(resolve(None), Ok("main"));
    for good in ["a", "telegram:42", "A_b-9", &"x".repeat(64)] {
        assert_eq!(resolve(Some(good)), Ok(good));
    }
    for bad in ["", " ", "a b", "../etc", "a/b", "ä", "a\n", "a\0", &"x".repeat(65)] {
        assert_eq!(resolve(Some(bad)), Err(BadId), "{bad:?}");
    }
}

#[tokio::test]
async fn a_conversation_is_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(dir.path());
    let s = &first.sessions;
    let typed = "  hello\n there, this is a message that is longer than a title may be";
    assert_eq!(s.begin("main", typed, "SENT 1", None).await, Ok(Begun { turn: 1, stored: true }));
    assert!(s.shown("main", 1, "Hi ").await);
    assert!(s.shown("main", 1, "you.").await);
    first.clock.set(1_800_000_001_000);
    assert_eq!(
        shown(&s.history("main", 10).await.unwrap()),
        [format!("person: {typed}"), "running: Hi you.".into()]
    );
    let whole = Assistant {
        raw: " Hi you.<x>".into(),
        shown: Some("Hi you.".into()),
        sent: Some("SENT 1 clipped".into()),
        backend: "hailo".into(),
        tokens: Some(4),
        ..Assistant::default()
    };
    assert_eq!(s.finish("main", 1, Some(whole), End::new(Outcome::Done)).await, Ok(true));
    s.begin("main", "two", "two", None).await.unwrap();
    s.shown("main", 2, "Half an ans").await;
    let failed = End {
        outcome: Outcome::Error,
        code: Some("offline".into()),
        words: Some("I lost my voice.".into()),
    };
    // Without an answer whatever was shown becomes it.
    s.finish("main", 2, None, failed.clone()).await.unwrap();
    s.begin("main", "three", "three", None).await.unwrap();
    s.finish("main", 3, None, failed).await.unwrap();
    s.begin("main", "four", "four", None).await.unwrap();
    s.shown("main", 4, "Stop").await;
    s.finish("main", 4, answer("Stop"), End::new(Outcome::Cancelled)).await.unwrap();
    assert_eq!(s.finish("main", 4, None, End::new(Outcome::Done)).await, Ok(true), "once");
    let expected = [
        "SENT 1 clipped".to_owned(),
        " Hi you.<x>".to_owned(),
        format!("{}two", window::BROKEN_MARK),
        "Half an ans".to_owned(),
        format!("{}four", window::BROKEN_MARK),
        "Stop".to_owned(),
        "newest".to_owned(),
    ];
    assert_eq!(ledger(s, "main", 5).await, expected);
    let lines = s.history("main", 100).await.unwrap();
    first.close().await.unwrap();

    let second = rig(dir.path());
    let s = &second.sessions;
    assert_eq!(s.recover().await, Ok(0));
    assert_eq!(ledger(s, "main", 5).await, expected);
    assert_eq!(s.history("main", 100).await.unwrap(), lines);
    assert_eq!(
        shown(&lines)[1..],
        [
            "done: Hi you.",
            "person: two",
            "error: Half an ans\n\nI lost my voice.",
            "person: three",
            "error: I lost my voice.",
            "person: four",
            "cancelled: Stop",
        ]
    );
    assert_eq!(shown(&s.history("main", 3).await.unwrap()), shown(&lines)[5..]);
    assert_eq!((lines[0].at_ms, lines[1].at_ms), (1_800_000_000_000, 1_800_000_001_000));
    assert_eq!(s.history("nobody", 10).await, Ok(vec![]));
    let list = s.list(10).await.unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].title, "hello there, this is a message that is l");
    assert_eq!(s.begin("main", "five", "five", None).await, Ok(Begun { turn: 5, stored: true }));
    second.close().await.unwrap();
}

#[tokio::test]
async fn turns_that_a_crash_left_open_are_closed_once_with_what_they_had_shown() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(dir.path());
    for n in 0..200 {
        let session = format!("s{}", n % 100);
        first.sessions.begin(&session, "typed", "sent", None).await.unwrap();
        first.sessions.shown(&session, 1 + n / 100, "some ").await;
        first.sessions.shown(&session, 1 + n / 100, "words").await;
    }
    first.close().await.unwrap();
    let second = rig(dir.path());
    assert_eq!(second.sessions.recover().await, Ok(200));
    assert_eq!(second.sessions.recover().await, Ok(0));
    let lines = second.sessions.history("s42", 9).await.unwrap();
    let turn = ["person: typed", "interrupted: some words"];
    assert_eq!(shown(&lines), [turn, turn].concat());
    let marked = format!("{}sent", window::BROKEN_MARK);
    let twice = [marked.as_str(), "some words", marked.as_str(), "some words", "newest"];
    assert_eq!(ledger(&second.sessions, "s42", 3).await, twice);
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_turn_that_nothing_can_close_keeps_nobody_from_talking() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(dir.path());
    for session in ["stuck", "sound"] {
        first.sessions.begin(session, "typed", "sent", None).await.unwrap();
    }
    // SQLite answers that all went well, and the row stays.
    let keep = "CREATE TRIGGER keep BEFORE DELETE ON partial WHEN old.session = 'stuck'
                BEGIN SELECT raise(IGNORE); END";
    first.store.read(|c| c.execute_batch(keep)).await.unwrap();
    first.close().await.unwrap();
    let second = rig(dir.path());
    let recovered = tokio::time::timeout(DEADLINE, second.sessions.recover()).await.unwrap();
    assert_eq!(recovered, Ok(2));
    for session in ["stuck", "sound"] {
        assert_eq!(second.sessions.begin(session, "two", "two", None).await.unwrap().turn, 2);
    }
    second.close().await.unwrap();
    // The next process finds the row again, and its turn has one end all the same.
    let third = rig(dir.path());
    assert_eq!(third.sessions.begin("stuck", "three", "three", None).await.unwrap().turn, 3);
    let lines = shown(&third.sessions.history("stuck", 9).await.unwrap());
    let expected = ["person: typed", "interrupted: ", "person: two", "interrupted: "];
    assert_eq!(lines[..4], expected);
    third.close().await.unwrap();
}

#[tokio::test]
async fn rows_that_an_ended_turn_left_behind_are_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(dir.path());
    first.sessions.begin("main", "typed", "sent", None).await.unwrap();
    let end = End::new(Outcome::Done);
    first.sessions.finish("main", 1, answer("all"), end).await.unwrap();
    let stray = "INSERT INTO partial (session, turn, n, text) VALUES ('main', 1, 0, 'stray')";
    first.store.read(|c| c.execute_batch(stray)).await.unwrap();
    first.close().await.unwrap();
    let second = rig(dir.path());
    let recovered = tokio::time::timeout(DEADLINE, second.sessions.recover()).await.unwrap();
    assert_eq!(recovered, Ok(1));
    assert_eq!(second.store.open_turns().await, Ok(Vec::new()));
    assert_eq!(
        shown(&second.sessions.history("main", 9).await.unwrap()),
        ["person: typed", "done: all"]
    );
    second.close().await.unwrap();
}

#[tokio::test]
async fn what_a_crash_left_is_closed_even_if_the_database_comes_late() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(dir.path());
    first.sessions.begin("main", "typed", "sent", None).await.unwrap();
    first.sessions.shown("main", 1, "some").await;
    first.close().await.unwrap();
    let (place, away) = (dir.path().join("crayfish.db"), dir.path().join("away"));
    std::fs::rename(&place, &away).unwrap();
    std::fs::create_dir(&place).unwrap();
    let second = rig(dir.path());
    assert!(matches!(second.sessions.recover().await, Err(StoreError::Io(_))));
    let refused = second.sessions.begin("main", "two", "two", None).await;
    assert!(matches!(refused, Err(StoreError::Io(_))), "{refused:?}");
    std::fs::remove_dir(&place).unwrap();
    std::fs::rename(&away, &place).unwrap();
    assert_eq!(second.sessions.begin("main", "two", "two", None).await.unwrap().turn, 2);
    let lines = second.sessions.history("main", 9).await.unwrap();
    assert_eq!(shown(&lines), ["person: typed", "interrupted: some", "person: two"]);
    assert_eq!(second.sessions.recover().await, Ok(0), "a running turn is left alone");
    assert_eq!(checked(&second.store, "main").await.len(), 2);
    second.close().await.unwrap();
}

#[tokio::test]
async fn on_a_full_disk_turns_go_on_and_are_all_there_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig_with(dir.path(), Some(16));
    let mut told = rig.events.listen();
    let mut unstored = 0;
    let text = "word ".repeat(300);
    for turn in 1..=30 {
        let begun = rig.sessions.begin("main", &text, &text, None).await.unwrap();
        assert_eq!(begun.turn, turn);
        unstored += usize::from(!begun.stored);
        rig.sessions.shown("main", turn, "answer").await;
        rig.sessions.finish("main", turn, answer("answer"), End::new(Outcome::Done)).await.unwrap();
        assert!(rig.sessions.turns("main").await.unwrap().len() as u64 == turn);
    }
    assert!(unstored > 5, "{unstored}");
    assert!(rig.store.health().late > 5);
    let meanwhile = rig.sessions.history("main", 1000).await.unwrap();
    assert_eq!(meanwhile.len(), 60, "people see what is in memory only");
    rig.store.read(|c| c.execute_batch("PRAGMA max_page_count = 100000")).await.unwrap();
    loop {
        let event = tokio::time::timeout(DEADLINE, told.recv()).await.unwrap().unwrap();
        if event == Event::StoreRecovered {
            break;
        }
    }
    let lines = rig.sessions.history("main", 1000).await.unwrap();
    assert_eq!(lines, meanwhile);
    assert!(lines.iter().all(|l| l.from_person || l.outcome == Some("done")));
    rig.close().await.unwrap();
}

#[tokio::test]
async fn sessions_beyond_the_bound_are_let_go_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path());
    let count = limits::SESSIONS_OPEN_MAX * 3;
    for round in 1..=3 {
        for n in 0..count {
            let session = format!("s{n}");
            let begun = rig.sessions.begin(&session, "q", "q", None).await.unwrap();
            assert_eq!(begun.turn, round);
            rig.sessions
                .finish(&session, round, answer("a"), End::new(Outcome::Done))
                .await
                .unwrap();
        }
    }
    assert!(rig.sessions.locked().sessions.len() <= limits::SESSIONS_OPEN_MAX + 1);
    for n in 0..count {
        assert_eq!(rig.sessions.turns(&format!("s{n}")).await.unwrap().len(), 3);
    }
    rig.close().await.unwrap();
}

#[test]
fn events_of_a_newer_program_are_read_as_far_as_they_are_known() {
    let body = |value: ciborium::Value| {
        let mut bytes = Vec::new();
        ciborium::into_writer(&value, &mut bytes).unwrap();
        bytes
    };
    let text = |s: &str| ciborium::Value::Text(s.into());
    let row = |seq, kind: &str, body| EventRow { seq, turn: 1, at_ms: 5, kind: kind.into(), body };
    let rows = [
        row(
            1,
            "user",
            body(ciborium::Value::Map(vec![
                (text("typed"), text("hello")),
                (text("mood"), text("new field")),
            ])),
        ),
        row(2, "tool_call", body(text("new kind"))),
        row(3, "assistant", body(ciborium::Value::Map(vec![(text("raw"), text("hi"))]))),
        row(4, KIND_END, body(ciborium::Value::Map(vec![(text("outcome"), text("paused"))]))),
    ];
    let logged = log::gather(&rows);
    assert_eq!(logged.len(), 1);
    let lines: Vec<Line> = logged[0].lines().collect();
    assert_eq!(shown(&lines), ["person: hello", "error: hi"]);
    // Bytes that are not CBOR cost that event only.
    let broken = [row(1, "user", vec![0xff, 1, 2]), rows[2].clone(), row(3, KIND_END, vec![])];
    let lines: Vec<Line> = log::gather(&broken)[0].lines().collect();
    assert_eq!(shown(&lines), ["person: ", "error: hi"]);
}

/// Checks the log of a session: `seq` without gaps, each turn opened once and ended at most once,
/// nothing after its end. Returns what was logged.
async fn checked(store: &Store, session: &str) -> Vec<log::Logged> {
    let rows = store.events_of(session, 0..u64::MAX).await.unwrap();
    assert!(rows.iter().map(|r| r.seq).eq(1..=rows.len() as u64), "seq is gapless");
    let mut kinds: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for row in &rows {
        kinds.entry(row.turn).or_default().push(&row.kind);
    }
    for (turn, kinds) in kinds {
        let order = ["user", "assistant", "end"];
        let without = ["user", "end"];
        assert!(kinds == order || kinds == without || kinds == ["user"], "{turn}: {kinds:?}");
    }
    log::gather(&rows)
}

#[derive(Debug, Clone)]
enum Step {
    Begin,
    Shown(u64),
    Finish(u64, bool),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Begin),
        6 => (1..12_u64).prop_map(Step::Shown),
        3 => ((1..12_u64), any::<bool>()).prop_map(|(turn, done)| Step::Finish(turn, done)),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn any_order_of_calls_leaves_a_sound_log(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let mut rig = rig(dir.path());
            let mut expected: BTreeMap<u64, String> = BTreeMap::new();
            let mut running: Vec<u64> = Vec::new();
            for (index, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Begin => {
                        let turn = rig.sessions.begin("main", "q", "q", None).await.unwrap().turn;
                        assert_eq!(turn, expected.len() as u64 + 1);
                        expected.insert(turn, String::new());
                        running.push(turn);
                    }
                    Step::Shown(turn) => {
                        let text = format!("{index} ");
                        rig.sessions.shown("main", turn, &text).await;
                        if running.contains(&turn) {
                            expected.get_mut(&turn).unwrap().push_str(&text);
                        }
                    }
                    Step::Finish(turn, done) => {
                        let text = expected.get(&turn).map_or("", |t| t);
                        let whole = done.then(|| format!("{text}."));
                        let given = whole.as_deref().and_then(answer);
                        rig.sessions
                            .finish("main", turn, given, End::new(Outcome::Done))
                            .await
                            .unwrap();
                        if running.contains(&turn) {
                            running.retain(|t| *t != turn);
                            if let Some(whole) = whole {
                                expected.insert(turn, whole);
                            }
                        }
                    }
                    Step::Restart => {
                        rig.close().await.unwrap();
                        rig = self::rig(dir.path());
                        assert_eq!(rig.sessions.recover().await, Ok(running.len()));
                        running.clear();
                    }
                }
            }
            let logged = checked(&rig.store, "main").await;
            assert_eq!(logged.len(), expected.len());
            for turn in logged {
                assert_eq!(turn.end.is_none(), running.contains(&turn.turn));
                if turn.end.is_some() {
                    assert_eq!(turn.answer(), expected[&turn.turn]);
                }
            }
            rig.close().await.unwrap();
        });
    }
}

/// Set for a copy of the test program that talks until it is killed.
const TALK_IN: &str = "CRAYFISH_TEST_TALK_IN";

/// How often the talking process is killed.
const KILLS: usize = 60;

/// Talks in the directory and says on stdout what was acknowledged: `@begun TURN`,
/// `@shown TURN TEXT` and `@done TURN TEXT`.
async fn talk(dir: &Path) {
    let rig = rig(dir);
    rig.sessions.recover().await.unwrap();
    let mut out = std::io::stdout().lock();
    for _ in 0..10_000 {
        let turn = rig.sessions.begin("main", "question", "question", None).await.unwrap().turn;
        writeln!(out, "@begun {turn}").unwrap();
        let mut text = String::new();
        for piece in 0..8 {
            let piece = format!("{turn}.{piece},");
            text.push_str(&piece);
            if rig.sessions.shown("main", turn, &piece).await {
                writeln!(out, "@shown {turn} {text}").unwrap();
            }
        }
        let stored =
            rig.sessions.finish("main", turn, answer(&text), End::new(Outcome::Done)).await;
        if stored == Ok(true) {
            writeln!(out, "@done {turn} {text}").unwrap();
        }
    }
}

/// Starts the talking copy and kills it after some acknowledgements and a little more. Adds to
/// `told` what it acknowledged, the last word for each turn.
fn talk_and_kill(dir: &Path, told: &mut BTreeMap<u64, (bool, String)>) {
    let name = "session::tests::what_was_acknowledged_survives_kill_at_any_moment";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(TALK_IN, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut note = |line: &str| {
        // The test program prints lines of its own, and one of them has no end.
        let Some(said) = line.find('@').map(|at| &line[at + 1..]) else { return false };
        let mut words = said.split(' ');
        let (Some(what), Some(turn)) = (words.next(), words.next()) else { return false };
        let text = words.next().unwrap_or("").to_owned();
        told.insert(turn.parse().unwrap(), (what == "done", text));
        true
    };
    let mut wait_for = fastrand::usize(0..60);
    while wait_for > 0 {
        let Some(Ok(line)) = lines.next() else { panic!("the talking process ended by itself") };
        wait_for -= usize::from(note(&line));
    }
    // The moment of the kill is the point of the test, not a wait for something.
    std::thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
    child.kill().unwrap();
    child.wait().unwrap();
    // What it said before it died counts, but a line cut in its middle was not said.
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    for line in rest.iter().filter(|line| line.ends_with(',') || line.contains("@begun")) {
        note(line);
    }
}

#[test]
fn what_was_acknowledged_survives_kill_at_any_moment() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Some(dir) = std::env::var_os(TALK_IN) {
        runtime.block_on(talk(Path::new(&dir)));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut told = BTreeMap::new();
    for kill in 0..KILLS {
        talk_and_kill(dir.path(), &mut told);
        // Every third time the next talking process has to recover by itself.
        if kill % 3 == 2 || kill == KILLS - 1 {
            runtime.block_on(proves(dir.path(), &told));
        }
    }
    assert!(told.len() > KILLS, "they talked: {} turns", told.len());
}

/// Opens what the killed process left and looks for everything it had acknowledged.
async fn proves(dir: &Path, told: &BTreeMap<u64, (bool, String)>) {
    let rig = rig(dir);
    assert!(rig.sessions.recover().await.unwrap() <= 1);
    let logged = checked(&rig.store, "main").await;
    let turns: BTreeMap<u64, &log::Logged> = logged.iter().map(|l| (l.turn, l)).collect();
    assert_eq!(turns.len(), logged.len());
    for (turn, logged) in &turns {
        let (_, end) = logged.end.as_ref().unwrap_or_else(|| panic!("turn {turn} is open"));
        let whole: String = (0..8).map(|piece| format!("{turn}.{piece},")).collect();
        let text = logged.answer();
        assert!(whole.starts_with(text), "turn {turn}: nothing twice: {text}");
        assert!(end.outcome != Outcome::Done || whole == text, "turn {turn} is cut: {text}");
    }
    for (turn, (done, text)) in told {
        let logged = turns.get(turn).unwrap_or_else(|| panic!("turn {turn} is lost"));
        assert!(logged.answer().starts_with(text.as_str()), "turn {turn} lost what was shown");
        let outcome = logged.end.as_ref().map(|(_, end)| end.outcome);
        assert!(!done || outcome == Some(Outcome::Done), "turn {turn}: {outcome:?}");
    }
    assert!(
        !std::fs::read_dir(dir)
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().contains("damaged") })
    );
    rig.close().await.unwrap();
}

#[tokio::test]
async fn what_was_said_is_paged_back_turn_by_turn_without_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path());
    let s = &rig.sessions;
    for turn in 1..=9 {
        let typed = format!("q{turn}");
        s.begin("main", &typed, &typed, None).await.unwrap();
        s.finish("main", turn, answer("a"), End::new(Outcome::Done)).await.unwrap();
    }
    // A turn that runs has one line while nothing is shown of it.
    s.begin("main", "q10", "q10", None).await.unwrap();
    let all = s.history("main", 100).await.unwrap();
    assert_eq!(all.len(), 19);
    for limit in 1..=7 {
        let (mut before, mut pages) = (u64::MAX, Vec::new());
        loop {
            let page = s.earlier("main", before, limit).await.unwrap();
            let Some(first) = page.first() else { break };
            assert!(first.from_person, "a page begins with what was said: {page:?}");
            assert!(page.len() <= limit.max(2), "{limit}: {page:?}");
            before = first.turn;
            pages.insert(0, page);
        }
        assert_eq!(pages.concat(), all, "pages of {limit}");
    }
    assert_eq!(shown(&s.earlier("main", 3, 100).await.unwrap()), shown(&all)[..4]);
    assert_eq!(s.earlier("main", 1, 100).await, Ok(vec![]));
    assert_eq!(s.earlier("main", 0, 100).await, Ok(vec![]));
    assert_eq!(s.earlier("nobody", 9, 100).await, Ok(vec![]));
    rig.close().await.unwrap();
}

#[tokio::test]
async fn the_ids_of_the_last_messages_are_known_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(dir.path());
    let kept = limits::MESSAGE_IDS_KEPT as u64;
    for turn in 1..=kept + 3 {
        let id = format!("m{turn}");
        assert_eq!(first.sessions.known("main", &id).await, Ok(None));
        let begun = first.sessions.begin("main", "q", "q", Some(&id)).await.unwrap();
        assert_eq!(begun.turn, turn);
        first.sessions.finish("main", turn, answer("a"), End::new(Outcome::Done)).await.unwrap();
    }
    let same = async |rig: &Rig| {
        let oldest = kept + 3 - (kept - 1);
        assert_eq!(rig.sessions.known("main", &format!("m{oldest}")).await, Ok(Some(oldest)));
        assert_eq!(rig.sessions.known("main", &format!("m{}", oldest - 1)).await, Ok(None));
        assert_eq!(rig.sessions.known("main", &format!("m{}", kept + 3)).await, Ok(Some(kept + 3)));
        assert_eq!(rig.sessions.known("other", &format!("m{oldest}")).await, Ok(None));
    };
    same(&first).await;
    first.close().await.unwrap();
    let second = rig(dir.path());
    same(&second).await;
    let lines = second.sessions.history("main", 2).await.unwrap();
    assert_eq!(lines[0].id, Some(format!("m{}", kept + 3)));
    assert_eq!(lines[1].id, None);
    second.close().await.unwrap();
}
