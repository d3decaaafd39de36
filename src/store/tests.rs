use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::SteppedClock;
use crate::event::Event;

/// Longest wait for something that must happen.
const DEADLINE: Duration = Duration::from_secs(20);

struct Rig {
    store: Store,
    stop: CancellationToken,
    task: JoinHandle<Result<(), StoreError>>,
    told: tokio::sync::broadcast::Receiver<Event>,
}

fn options(dir: &Path) -> Options {
    Options {
        state_dir: dir.to_owned(),
        fsync_always: false,
        idle_flush: Duration::from_secs(3600),
        pages_max: None,
    }
}

fn rig(options: Options) -> Rig {
    let events = Events::default();
    let told = events.listen();
    let clock = Arc::new(SteppedClock::new(1_800_000_000_000));
    let (store, task) = Store::open(options, clock, events).unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(task.run(stop.clone()));
    Rig { store, stop, task, told }
}

impl Rig {
    async fn close(self) -> Result<(), StoreError> {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap()
    }

    async fn next_told(&mut self) -> Event {
        tokio::time::timeout(DEADLINE, self.told.recv()).await.unwrap().unwrap()
    }
}

fn event(kind: &'static str, body: &str) -> NewEvent {
    NewEvent { at_ms: 7, kind, body: body.as_bytes().to_vec() }
}

fn begin(session: &str, turn: u64, text: &str) -> Write {
    Write::Begin {
        session: session.into(),
        title: format!("title of {session}"),
        profile: "companion",
        turn,
        events: vec![event("user", text)],
    }
}

fn partial(session: &str, turn: u64, text: &str) -> Write {
    Write::Partial { session: session.into(), turn, text: text.into() }
}

fn finish(session: &str, turn: u64, text: &str) -> Write {
    let events = vec![event("assistant", text), event(KIND_END, "done")];
    Write::Finish { session: session.into(), turn, events }
}

async fn write(store: &Store, write: Write) -> Result<(), StoreError> {
    store.submit(write).unwrap().wait().await
}

/// `seq turn kind body` of a session's events.
async fn told(store: &Store, session: &str) -> Vec<String> {
    let rows = store.events_of(session, 0..u64::MAX).await.unwrap();
    let line = |r: EventRow| {
        format!("{} {} {} {}", r.seq, r.turn, r.kind, String::from_utf8(r.body).unwrap())
    };
    rows.into_iter().map(line).collect()
}

#[tokio::test]
async fn events_of_interleaved_turns_are_numbered_without_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(options(&dir.path().join("deep/state")));
    let writes = [
        begin("a", 1, "one"),
        begin("b", 1, "eins"),
        begin("a", 2, "two"),
        partial("a", 1, "fi"),
        partial("a", 1, "rst"),
        finish("a", 1, "first"),
        finish("b", 1, "erstens"),
    ];
    let acks: Vec<Ack> = writes.into_iter().map(|w| rig.store.submit(w).unwrap()).collect();
    for ack in acks {
        assert_eq!(ack.within(DEADLINE).await, Stored::Yes);
    }
    assert_eq!(
        told(&rig.store, "a").await,
        ["1 1 user one", "2 2 user two", "3 1 assistant first", "4 1 end done"]
    );
    assert_eq!(
        told(&rig.store, "b").await,
        ["1 1 user eins", "2 1 assistant erstens", "3 1 end done"]
    );
    assert_eq!(rig.store.last_turn("a").await, Ok(2));
    assert_eq!(rig.store.last_turn("nobody").await, Ok(0));
    let open = OpenTurn { session: "a".into(), turn: 2, shown: String::new() };
    assert_eq!(rig.store.open_turns().await, Ok(vec![open]));
    let sessions = rig.store.sessions(9).await.unwrap();
    let ids: Vec<(&str, &str)> = sessions.iter().map(|s| (&*s.id, &*s.title)).collect();
    assert_eq!(ids, [("a", "title of a"), ("b", "title of b")]);
    assert!(rig.store.is_settled());
    rig.close().await.unwrap();
}

#[tokio::test]
async fn what_contradicts_the_log_is_refused_and_the_rest_of_its_batch_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(options(dir.path()));
    let writes = [
        (begin("a", 1, "one"), true),
        (begin("a", 1, "again"), false),
        (finish("a", 1, "first"), true),
        (finish("a", 1, "first, again"), true),
        (partial("a", 1, "late"), false),
        (begin("a", 3, "three"), true),
    ];
    let queued: Vec<(Ack, bool)> =
        writes.into_iter().map(|(w, taken)| (rig.store.submit(w).unwrap(), taken)).collect();
    for (ack, taken) in queued {
        let answer = ack.wait().await;
        assert_eq!(answer.is_ok(), taken, "{answer:?}");
        assert!(taken || matches!(answer, Err(StoreError::Refused(_))));
    }
    assert_eq!(
        told(&rig.store, "a").await,
        ["1 1 user one", "2 1 assistant first", "3 1 end done", "4 3 user three"]
    );
    rig.close().await.unwrap();
}

#[tokio::test]
async fn at_stop_the_queue_is_committed_and_the_log_folded() {
    let dir = tempfile::tempdir().unwrap();
    let first = rig(options(dir.path()));
    let store = first.store.clone();
    let acks: Vec<Ack> = (1..=40).map(|t| store.submit(begin("a", t, "text")).unwrap()).collect();
    first.close().await.unwrap();
    for ack in acks {
        ack.wait().await.unwrap();
    }
    let refused = store.submit(begin("a", 99, "text")).unwrap_err();
    assert_eq!(refused, (StoreError::Closed, begin("a", 99, "text")));
    assert_eq!(store.last_turn("a").await, Err(StoreError::Closed));
    assert_eq!(store.flush().await, Err(StoreError::Closed));
    assert!(!dir.path().join("crayfish.db-wal").exists(), "SQLite removes a folded log");
    let second = rig(options(dir.path()));
    assert_eq!(second.store.last_turn("a").await, Ok(40));
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_told_once_and_everything_is_there_when_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = rig(Options { pages_max: Some(24), ..options(dir.path()) });
    let long = "x".repeat(3000);
    let mut kept = 0;
    for turn in 1..=40 {
        write(&rig.store, begin("a", turn, &long)).await.unwrap_or_else(|error| {
            assert_eq!(error, StoreError::Full);
            kept += 1;
        });
        // Kept in memory even where the begin was: shown text stays in its order.
        for piece in ["one ", "two ", "three"] {
            let _ = write(&rig.store, partial("a", turn, piece)).await;
        }
        if turn % 2 == 0 {
            let _ = write(&rig.store, finish("a", turn, "one two three")).await;
        }
    }
    assert!(kept > 5, "{kept}");
    assert!(matches!(rig.next_told().await, Event::StoreDegraded { .. }));
    let health = rig.store.health();
    assert!(health.degraded && health.kept > 5 && health.lost == 0, "{health:?}");
    assert_eq!(rig.store.flush().await, Err(StoreError::Full));
    assert!(rig.store.last_turn("a").await.unwrap() < 40, "reads go on");
    // Space returns; the next write, or the retry, finds it.
    rig.store.read(|c| c.execute_batch("PRAGMA max_page_count = 100000")).await.unwrap();
    assert_eq!(rig.next_told().await, Event::StoreRecovered);
    assert_eq!(rig.store.health(), StoreHealth::default());
    let rows = rig.store.events_of("a", 0..u64::MAX).await.unwrap();
    assert!(rows.iter().map(|r| r.seq).eq(1..=80), "gapless, nothing twice");
    let open = rig.store.open_turns().await.unwrap();
    let turns: Vec<u64> = open.iter().map(|o| o.turn).collect();
    assert_eq!(turns, (1..40).step_by(2).collect::<Vec<u64>>());
    assert!(open.iter().all(|o| o.shown == "one two three"), "{open:?}");
    assert!(rig.told.try_recv().is_err(), "edges only");
    rig.close().await.unwrap();
}

struct Counting(AtomicU64);

impl Medium for Counting {
    fn run(
        &self,
        call: medium::Call,
    ) -> futures_util::future::BoxFuture<'_, Result<(), StoreError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        call();
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn at_stop_one_call_does_all_that_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let medium = Arc::new(Counting(AtomicU64::new(0)));
    let clock = Arc::new(SteppedClock::new(1_800_000_000_000));
    let (store, task) =
        Store::open_on(medium.clone(), options(dir.path()), clock, Events::default()).unwrap();
    let ack = store.submit(begin("a", 1, "hi")).unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(task.run(stop).await, Ok(()));
    assert_eq!(ack.wait().await, Ok(()));
    assert_eq!(medium.0.load(Ordering::SeqCst), 1, "each call may wait for a slow card");
    let wal = dir.path().join("crayfish.db-wal");
    assert!(std::fs::metadata(wal).map_or(0, |log| log.len()) == 0, "folded and closed");
}

#[tokio::test]
async fn stopping_on_a_full_disk_says_that_something_was_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(Options { pages_max: Some(10), ..options(dir.path()) });
    assert_eq!(write(&rig.store, begin("a", 1, &"x".repeat(60_000))).await, Err(StoreError::Full));
    assert_eq!(rig.close().await, Err(StoreError::Full));
}

/// Files beside the database whose name says that it was damaged.
fn set_aside(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|n| n.contains(".damaged-")).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_whole_and_a_new_one_started() {
    let good = tempfile::tempdir().unwrap();
    let first = rig(options(good.path()));
    for turn in 1..=50 {
        write(&first.store, begin("a", turn, &"text ".repeat(200))).await.unwrap();
    }
    first.close().await.unwrap();
    let sound = fs::read(good.path().join(FILE_NAME)).unwrap();
    let mut header = sound.clone();
    header[..16].copy_from_slice(b"not a database!!");
    let mut page = sound.clone();
    page[8192..40_000].fill(0xA5);
    let cut = sound[..sound.len() / 2 + 100].to_vec();
    let text = b"hello, I am a text file and longer than a header of a database needs to be. \
                 hello, I am a text file and longer than a header of a database needs to be."
        .to_vec();
    for (name, bytes) in [("header", header), ("page", page), ("cut", cut), ("text", text)] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), &bytes).unwrap();
        let mut rig = rig(options(dir.path()));
        let Event::StoreReplaced { aside } = rig.next_told().await else { panic!("{name}") };
        assert_eq!(set_aside(dir.path()), ["crayfish.db.damaged-20270115T080000Z"], "{name}");
        assert!(aside.ends_with("crayfish.db.damaged-20270115T080000Z"));
        assert_eq!(fs::read(aside).unwrap(), bytes, "{name}: left as it was");
        write(&rig.store, begin("a", 1, "anew")).await.unwrap();
        assert_eq!(told(&rig.store, "a").await, ["1 1 user anew"]);
        rig.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_log_of_a_damaged_file_goes_with_it() {
    let crashed = tempfile::tempdir().unwrap();
    let first = rig(options(crashed.path()));
    for turn in 1..=50 {
        write(&first.store, begin("a", turn, &"text ".repeat(200))).await.unwrap();
    }
    first.store.flush().await.unwrap();
    write(&first.store, begin("a", 51, "in the log only")).await.unwrap();
    // As a crash leaves it: a log that was not folded, beside a file with broken pages.
    let dir = tempfile::tempdir().unwrap();
    let mut file = fs::read(crashed.path().join(FILE_NAME)).unwrap();
    file[4096..].fill(0xA5);
    let wal = fs::read(crashed.path().join("crayfish.db-wal")).unwrap();
    fs::write(dir.path().join("crayfish.db-wal"), &wal).unwrap();
    fs::write(dir.path().join(FILE_NAME), &file).unwrap();
    let mut second = rig(options(dir.path()));
    let Event::StoreReplaced { aside } = second.next_told().await else { panic!("not told") };
    assert_eq!(fs::read(&aside).unwrap(), file);
    assert_eq!(fs::read(format!("{aside}-wal")).unwrap(), wal);
    assert_eq!(second.store.last_turn("a").await, Ok(0), "nothing was played into the new file");
    second.close().await.unwrap();
    first.close().await.unwrap();
}

#[tokio::test]
async fn damage_found_while_running_replaces_the_file_and_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = rig(options(dir.path()));
    for turn in 1..=400 {
        write(&rig.store, begin("a", turn, &"text ".repeat(200))).await.unwrap();
    }
    rig.store.flush().await.unwrap();
    // The cache would hide what happens to the file.
    rig.store.read(|c| c.execute_batch("PRAGMA shrink_memory")).await.unwrap();
    let path = dir.path().join(FILE_NAME);
    let bytes = fs::metadata(&path).unwrap().len();
    {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let garbage = vec![0xA5; usize::try_from(bytes).unwrap() - 4096];
        file.write_all_at(&garbage, 4096).unwrap();
    }
    let read = rig.store.events_of("a", 0..u64::MAX).await;
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{:?}", read.map(|r| r.len()));
    assert!(matches!(rig.next_told().await, Event::StoreReplaced { .. }));
    write(&rig.store, begin("a", 401, "goes on")).await.unwrap();
    assert_eq!(told(&rig.store, "a").await, ["1 401 user goes on"]);
    // And damage that a write finds: the write is done again on the new file.
    rig.store.flush().await.unwrap();
    rig.store.read(|c| c.execute_batch("PRAGMA shrink_memory")).await.unwrap();
    {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let bytes = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
        file.write_all_at(&vec![0xA5; bytes - 4096], 4096).unwrap();
    }
    write(&rig.store, begin("a", 402, "still")).await.unwrap();
    assert!(matches!(rig.next_told().await, Event::StoreReplaced { .. }));
    assert_eq!(told(&rig.store, "a").await, ["1 402 user still"]);
    assert_eq!(
        set_aside(dir.path()),
        ["crayfish.db.damaged-20270115T080000Z", "crayfish.db.damaged-20270115T080000Z-2"]
    );
    rig.close().await.unwrap();
}

#[tokio::test]
async fn a_newer_programs_file_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let newer = schema::VERSION + 1;
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(&format!(
            "PRAGMA journal_mode = WAL; CREATE TABLE later (x); PRAGMA user_version = {newer}"
        ))
        .unwrap();
    let before = fs::read(&path).unwrap();
    let clock = Arc::new(SteppedClock::new(0));
    let refused = Store::open(options(dir.path()), clock, Events::default()).err().unwrap();
    let shown = path.display().to_string();
    assert_eq!(refused, StoreError::Newer { path: shown, found: newer, known: schema::VERSION });
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(set_aside(dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn without_a_database_the_task_keeps_what_comes_and_opens_one_as_soon_as_it_can() {
    for blocked_by_file in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        // A file where the directory should be, or a directory where the file should be.
        if blocked_by_file {
            fs::write(&state, "").unwrap();
        } else {
            fs::create_dir_all(state.join(FILE_NAME)).unwrap();
        }
        let mut rig = rig(options(&state));
        assert!(matches!(rig.next_told().await, Event::StoreDegraded { .. }));
        assert!(rig.store.health().degraded);
        let answer = write(&rig.store, begin("a", 1, "text")).await;
        assert!(matches!(answer, Err(StoreError::Io(_))), "{answer:?}");
        let read = rig.store.last_turn("a").await;
        assert!(matches!(read, Err(StoreError::Io(_))), "{read:?}");
        assert!(matches!(rig.store.flush().await, Err(StoreError::Io(_))));
        if blocked_by_file {
            fs::remove_file(&state).unwrap();
        } else {
            fs::remove_dir(state.join(FILE_NAME)).unwrap();
        }
        // Found by the retry, without being asked.
        assert_eq!(rig.next_told().await, Event::StoreRecovered);
        assert_eq!(told(&rig.store, "a").await, ["1 1 user text"]);
        rig.close().await.unwrap();
    }
}

fn wal_bytes(dir: &Path) -> u64 {
    fs::metadata(dir.join("crayfish.db-wal")).map_or(0, |m| m.len())
}

#[tokio::test]
async fn after_quiet_the_log_is_folded_without_being_asked() {
    let dir = tempfile::tempdir().unwrap();
    let idle_flush = Duration::from_millis(30);
    let rig = rig(Options { idle_flush, ..options(dir.path()) });
    write(&rig.store, begin("a", 1, "text")).await.unwrap();
    let folded = async {
        while wal_bytes(dir.path()) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, folded).await.unwrap();
    rig.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_large_log_is_folded_at_a_pause_and_not_between_two_writes() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(options(dir.path()));
    // Beyond the size, and within what is allowed without a pause.
    let turns = 2 * limits::WAL_BYTES_MAX / 60_000;
    let mut sizes = Vec::new();
    for turn in 1..=turns {
        write(&rig.store, begin("a", turn, &"x".repeat(60_000))).await.unwrap();
        sizes.push(wal_bytes(dir.path()));
    }
    assert!(sizes.is_sorted(), "folded in the middle: {sizes:?}");
    // The idle flush of this rig is an hour away.
    let folded = async {
        while wal_bytes(dir.path()) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, folded).await.unwrap();
    rig.close().await.unwrap();
}

#[tokio::test]
async fn the_log_does_not_outgrow_its_bound_and_a_reader_elsewhere_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(options(dir.path()));
    let mut largest = 0;
    let bound = limits::WAL_BYTES_MAX + limits::WAL_BYTES_WITHOUT_PAUSE;
    for turn in 1..=300 {
        write(&rig.store, begin("a", turn, &"x".repeat(60_000))).await.unwrap();
        largest = largest.max(wal_bytes(dir.path()));
    }
    assert!(largest > bound / 2, "{largest}");
    assert!(largest < bound + bound / 4, "{largest}");
    rig.store.flush().await.unwrap();
    assert_eq!(wal_bytes(dir.path()), 0);
    let reader = rusqlite::Connection::open(dir.path().join(FILE_NAME)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM event").unwrap();
    reader.query_row("SELECT count(*) FROM event", (), |r| r.get::<_, i64>(0)).unwrap();
    write(&rig.store, begin("a", 301, "text")).await.unwrap();
    assert!(matches!(rig.store.flush().await, Err(StoreError::Io(_))));
    assert!(!rig.store.health().degraded, "writes work");
    drop(reader);
    rig.store.flush().await.unwrap();
    rig.close().await.unwrap();
}

#[tokio::test]
async fn the_strict_mode_syncs_every_commit() {
    for (fsync_always, level) in [(false, 1), (true, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let rig = rig(Options { fsync_always, ..options(dir.path()) });
        let found = rig.store.read(|c| c.query_row("PRAGMA synchronous", (), |r| r.get(0))).await;
        assert_eq!(found, Ok(level));
        rig.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_full_queue_refuses_deltas_first_and_ends_last() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SteppedClock::new(0));
    // The task does not run: the queue fills up.
    let (store, task) = Store::open(options(dir.path()), clock, Events::default()).unwrap();
    let mut acks = Vec::new();
    let mut fill = |make: &dyn Fn(u64) -> Write| {
        let mut count = 0;
        loop {
            match store.submit(make(count + 1)) {
                Ok(ack) => acks.push(ack),
                Err((error, back)) => {
                    assert_eq!((error, back), (StoreError::Overloaded, make(count + 1)));
                    return usize::try_from(count).unwrap();
                }
            }
            count += 1;
        }
    };
    let reserved = limits::STORE_QUEUE_RESERVED;
    assert_eq!(fill(&|n| partial("a", 1, &n.to_string())), limits::STORE_QUEUE - 2 * reserved);
    assert_eq!(fill(&|n| begin("b", n, "text")), reserved);
    assert_eq!(fill(&|n| finish("b", n, "text")), reserved);
    assert_eq!(store.last_turn("b").await, Err(StoreError::Overloaded));
    let stop = CancellationToken::new();
    let running = tokio::spawn(task.run(stop.clone()));
    for ack in acks {
        ack.wait().await.unwrap();
    }
    assert_eq!(store.last_turn("b").await, Ok(u64::try_from(reserved).unwrap()));
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn turns_are_found_by_their_index_however_long_a_session_is() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(options(dir.path()));
    for (query, by) in [(disk::HAS_ENDED, "turn=?"), (disk::EVENTS_OF, "turn>? AND turn<?")] {
        let plan = rig.store.read(move |c| {
            let numbered = [":a", ":b", ":c"];
            let count = query.matches('?').count();
            let mut statement = c.prepare(&format!("EXPLAIN QUERY PLAN {query}"))?;
            for index in 1..=count {
                statement.raw_bind_parameter(index, numbered[index - 1])?;
            }
            let mut rows = statement.raw_query();
            let mut plan = String::new();
            while let Some(row) = rows.next()? {
                plan += &row.get::<_, String>(3)?;
            }
            Ok(plan)
        });
        let plan = plan.await.unwrap();
        let expected = format!("SEARCH event USING INDEX event_by_turn (session=? AND {by})");
        assert!(plan.starts_with(&expected), "{plan}");
    }
    rig.close().await.unwrap();
}

#[tokio::test]
async fn a_session_is_taken_away_whole_and_the_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(options(dir.path()));
    for session in ["a", "b"] {
        write(&rig.store, begin(session, 1, "text")).await.unwrap();
        write(&rig.store, partial(session, 1, "half")).await.unwrap();
    }
    write(&rig.store, Write::Rename { session: "b".into(), title: "B".into() }).await.unwrap();
    write(&rig.store, Write::Rename { session: "c".into(), title: "C".into() }).await.unwrap();
    write(&rig.store, Write::Delete { session: "a".into() }).await.unwrap();
    write(&rig.store, Write::Delete { session: "a".into() }).await.unwrap();
    assert_eq!(told(&rig.store, "a").await, Vec::<String>::new());
    assert_eq!(told(&rig.store, "b").await, ["1 1 user text"]);
    assert_eq!(rig.store.session("a").await, Ok(None));
    let sessions = rig.store.sessions(10).await.unwrap();
    let titles: Vec<_> = sessions.iter().map(|row| (row.id.as_str(), row.title.as_str())).collect();
    assert_eq!(titles, [("b", "B")]);
    let open = rig.store.open_turns().await.unwrap();
    assert_eq!(open.iter().map(|turn| turn.session.as_str()).collect::<Vec<_>>(), ["b"]);
    // The name may be used again, from the first turn on.
    write(&rig.store, begin("a", 1, "new")).await.unwrap();
    assert_eq!(told(&rig.store, "a").await, ["1 1 user new"]);
    rig.close().await.unwrap();
}
