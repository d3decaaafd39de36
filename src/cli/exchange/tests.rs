//! A daemon's terminal socket with a scripted agent behind it, for the tests of the verbs.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::agent::TurnEvent;
use crate::agent::fake::{Fake, Script};
use crate::cli::place::Places;
use crate::connector::terminal::{self, SOCKET_NAME, Socket};
use crate::session::wire::Metadata;
use crate::snapshot::{self, Snapshot};

/// No test may hang: far beyond what any of them needs.
pub(in crate::cli) const DEADLINE: Duration = Duration::from_secs(30);

pub(in crate::cli) struct House {
    pub(in crate::cli) places: Places,
    pub(in crate::cli) fake: Arc<Fake>,
    dir: tempfile::TempDir,
    stop: CancellationToken,
    served: Option<tokio::task::JoinHandle<()>>,
}

impl House {
    pub(in crate::cli) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let places = Places {
            sockets: vec![dir.path().join(SOCKET_NAME)],
            typed: Some(dir.path().join("typed")),
        };
        let mut house = Self {
            places,
            fake: Arc::new(Fake::default()),
            dir,
            stop: CancellationToken::new(),
            served: None,
        };
        house.start();
        house
    }

    /// Starts the daemon (again).
    pub(in crate::cli) fn start(&mut self) {
        let first = Snapshot {
            designation: "Crayfish".into(),
            store_ok: true,
            active_backend: "hailo".into(),
            ..Snapshot::default()
        };
        let (_publisher, reader) = snapshot::channel(first);
        let socket = Socket::bind(&self.dir.path().join(SOCKET_NAME)).unwrap();
        self.stop = CancellationToken::new();
        let served = terminal::serve(socket, self.fake.clone(), reader, self.stop.clone());
        self.served = Some(tokio::spawn(served));
    }

    /// Kills the daemon without a drain.
    pub(in crate::cli) async fn kill(&mut self) {
        if let Some(served) = self.served.take() {
            served.abort();
            let _ = served.await;
        }
    }
}

#[derive(Default)]
struct Seen {
    waits: Vec<u32>,
    text: String,
    /// Told at every word.
    told: Option<mpsc::UnboundedSender<()>>,
}

impl Show for Seen {
    fn waiting(&mut self, about_s: u32) -> std::io::Result<()> {
        self.waits.push(about_s);
        Ok(())
    }

    fn words(&mut self, text: &str) -> std::io::Result<()> {
        self.text.push_str(text);
        if let Some(told) = &self.told {
            let _ = told.send(());
        }
        Ok(())
    }
}

pub(in crate::cli) fn message(text: &str) -> ClientFrame {
    ClientFrame::Message {
        chat_id: None,
        content: text.into(),
        metadata: Metadata::default(),
        id: None,
    }
}

#[tokio::test]
async fn an_answer_is_shown_as_it_comes() {
    let house = House::new();
    let mut events = vec![TurnEvent::Waiting { about_s: 9 }];
    events.extend(["Hi", " you"].map(|word| TurnEvent::Delta(word.into())));
    events.push(TurnEvent::Done(crate::agent::fake::answer("Hi you")));
    house.fake.script(Script::Say(events));
    let mut link = Link::open(&house.places).await.unwrap();
    assert_eq!(link.designation, "Crayfish");
    let (mut seen, mut known) = (Seen::default(), Known::default());
    let mut none = Interrupts::None;
    let end = exchange(&mut link, &message("x"), &mut seen, &mut none, &mut known).await;
    assert!(matches!(end, End::Done(done) if done.backend == "hailo"));
    assert_eq!((seen.text.as_str(), &seen.waits[..]), ("Hi you", &[9][..]));
    assert_eq!(known, Known { chat_id: Some("main".into()), turn: Some(1) });
}

#[tokio::test]
async fn the_first_interrupt_stops_and_the_second_leaves() {
    for leaves in [false, true] {
        let house = House::new();
        let (words, events) = mpsc::channel(4);
        house.fake.script(Script::Held(events));
        let mut link = Link::open(&house.places).await.unwrap();
        let (told, mut shown) = mpsc::unbounded_channel();
        let (interrupt, channel) = mpsc::channel(4);
        let mut interrupts = Interrupts::Channel(channel);
        let mut seen = Seen { told: Some(told), ..Seen::default() };
        let mut known = Known::default();
        let text = message("x");
        let talk = exchange(&mut link, &text, &mut seen, &mut interrupts, &mut known);
        let person = async {
            words.send(TurnEvent::Delta("one".into())).await.unwrap();
            shown.recv().await.unwrap();
            interrupt.send(()).await.unwrap();
            while house.fake.cancelled().is_empty() {
                tokio::task::yield_now().await;
            }
            if leaves {
                interrupt.send(()).await.unwrap();
            } else {
                words.send(TurnEvent::Cancelled).await.unwrap();
            }
        };
        let both = async { tokio::join!(talk, person).0 };
        let end = tokio::time::timeout(DEADLINE, both).await.unwrap();
        assert_eq!(house.fake.cancelled(), [Some("main".to_owned())]);
        match end {
            End::Left => assert!(leaves),
            End::Cancelled => assert!(!leaves),
            other => panic!("{other:?}"),
        }
        assert_eq!(seen.text, "one");
    }
}

#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_is_told() {
    let mut house = House::new();
    let (words, events) = mpsc::channel(4);
    house.fake.script(Script::Held(events));
    let mut link = Link::open(&house.places).await.unwrap();
    let (told, mut shown) = mpsc::unbounded_channel();
    let mut seen = Seen { told: Some(told), ..Seen::default() };
    let (mut none, mut known) = (Interrupts::None, Known::default());
    let text = message("x");
    let talk = exchange(&mut link, &text, &mut seen, &mut none, &mut known);
    let fate = async {
        words.send(TurnEvent::Delta("half".into())).await.unwrap();
        shown.recv().await.unwrap();
        house.kill().await;
    };
    let both = async { tokio::join!(talk, fate).0 };
    let end = tokio::time::timeout(DEADLINE, both).await.unwrap();
    assert!(matches!(end, End::Lost(LinkError::Lost(_))), "{end:?}");
    assert_eq!(known.turn, Some(1));
    let gone = Link::open(&house.places).await.err().unwrap();
    assert!(gone.to_string().contains("crayfish run"), "{gone}");
}

#[test]
fn words_of_failure_have_their_exit_codes() {
    let table = [
        ("offline", 3),
        ("stopping", 3),
        ("too_long", 2),
        ("no_such_backend", 2),
        ("cancelled", 130),
        ("overloaded", 1),
        ("internal", 1),
        ("a word of tomorrow", 1),
    ];
    for (word, code) in table {
        assert_eq!(exit_code(word), code, "{word}");
    }
}
