//! Model servers in memory: hailo-ollama and Ollama as a client sees them.
//!
//! hailo-ollama: one lock for loads and answers, the head before prefill, prefill in chunks of 96
//! tokens, the cache reused only for a literal continuation, a client's absence noticed only while
//! writing, a failed load that is remembered as a model. Ollama: the head with the first token,
//! the longest common prefix reused, absence noticed at once. OpenAI's interface is spoken as
//! llama.cpp's server does: several slots, 503 while it loads, events, thinking kept apart, the
//! whole prompt counted.
//!
//! The servers also judge what they are sent (`super::checks`): they are the only ones who see it.

mod chat;
mod dialect;
pub(super) mod said;
mod script;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, watch};

use self::said::{Chat, Said, Who};
use super::book::Book;
use super::checks;
use super::journal::Journal;
use super::options::{Flaw, Swarm};

/// Which program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// hailo-ollama 5.4.
    Hailo,
    /// Ollama.
    Ollama,
    /// llama.cpp's server.
    OpenAi,
}

impl Kind {
    /// The backend's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hailo => "hailo",
            Self::Ollama => "ollama",
            Self::OpenAi => "openai",
        }
    }

    /// Where it is.
    pub(super) fn base(self) -> &'static str {
        match self {
            Self::Hailo => "http://127.0.0.1:8000",
            Self::Ollama => "http://127.0.0.1:11434",
            Self::OpenAi => "http://127.0.0.1:8080",
        }
    }

    /// Where it answers chats.
    fn chat_path(self) -> &'static str {
        match self {
            Self::Hailo | Self::Ollama => "/api/chat",
            Self::OpenAi => "/v1/chat/completions",
        }
    }

    /// Requests it works on at once.
    fn slots(self) -> usize {
        match self {
            Self::Hailo | Self::Ollama => 1,
            Self::OpenAi => 4,
        }
    }

    /// Its model.
    pub(super) fn model(self) -> &'static str {
        match self {
            Self::Hailo => "qwen2.5-instruct:1.5b",
            Self::Ollama => "qwen2.5:1.5b",
            Self::OpenAi => "qwen2.5-1.5b-instruct",
        }
    }

    /// Prompt and answer together, in tokens.
    pub(super) fn context_tokens(self) -> u32 {
        match self {
            Self::Hailo => 2048,
            Self::Ollama | Self::OpenAi => 1024,
        }
    }
}

/// How it meets connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// Answers.
    Up,
    /// Refuses.
    Down,
    /// Accepts and says nothing.
    Wedged,
    /// Nothing comes back from its host.
    Unplugged,
}

/// The last prompt and its answer, as they stand in the cache.
#[derive(Debug, Clone)]
struct Record {
    messages: Vec<Said>,
    answer: String,
    /// The answer was aborted: the cache holds half of it.
    dirty: bool,
}

/// A request that is being worked on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inside {
    number: u64,
    pub(super) who: Who,
    /// Its client has gone.
    pub(super) ghost: bool,
    /// The server is at fault, or was when it came: nobody outside can know how long it stays.
    pub(super) flawed: bool,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) presence: Presence,
    loaded: bool,
    /// Since when a process that loads by itself is loading.
    loading_since: Option<Duration>,
    /// The process was started anew and nobody outside can know.
    forgot: bool,
    /// It believes in a model that never loaded.
    poisoned: bool,
    /// Another program holds the NPU.
    pub(super) held: bool,
    /// The model is not in its list.
    pub(super) without_model: bool,
    record: Option<Record>,
    pub(super) inside: Vec<Inside>,
    numbers: u64,
    lock: Arc<Semaphore>,
    pub(super) random: fastrand::Rng,
    /// When answers to people failed for certain, since one was complete.
    failures: Vec<Duration>,
    /// Faults are over.
    calm: bool,
    /// When a person's request was last here, in this life of the daemon.
    pub(super) owner_at: Option<Duration>,
}

/// A model server.
pub(super) struct Server {
    pub(super) kind: Kind,
    pub(super) journal: Arc<Journal>,
    pub(super) book: Arc<Book>,
    swarm: Swarm,
    state: Mutex<State>,
    /// Rises when the process dies.
    deaths: watch::Sender<u64>,
    /// Rises when whatever hangs is let go.
    relief: watch::Sender<u64>,
}

/// Both directions of a connection.
pub(super) struct Line {
    read: ReadHalf<DuplexStream>,
    write: WriteHalf<DuplexStream>,
}

impl Server {
    /// A server that is up and has nothing loaded.
    pub(super) fn new(
        kind: Kind,
        journal: Arc<Journal>,
        book: Arc<Book>,
        swarm: Swarm,
        random: fastrand::Rng,
    ) -> Arc<Self> {
        let state = State {
            presence: Presence::Up,
            loaded: kind == Kind::OpenAi,
            loading_since: None,
            forgot: false,
            poisoned: false,
            held: false,
            without_model: false,
            record: None,
            inside: Vec::new(),
            numbers: 0,
            lock: Arc::new(Semaphore::new(kind.slots())),
            random,
            failures: Vec::new(),
            calm: false,
            owner_at: None,
        };
        Arc::new(Self {
            kind,
            journal,
            book,
            swarm,
            state: Mutex::new(state),
            deaths: watch::channel(0).0,
            relief: watch::channel(0).0,
        })
    }

    /// The state, for a moment.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, text: &str) {
        self.journal.note(&format!("{} {text}", self.kind.name()));
    }

    /// The process dies; connections are reset.
    pub(super) fn die(&self, presence: Presence) {
        self.note(&format!("dies, then {presence:?}"));
        let mut state = self.state();
        state.presence = presence;
        state.loaded = false;
        state.loading_since = None;
        state.forgot = true;
        state.poisoned = false;
        state.record = None;
        state.inside.clear();
        state.lock = Arc::new(Semaphore::new(self.kind.slots()));
        drop(state);
        self.deaths.send_modify(|deaths| *deaths += 1);
    }

    /// Every client is gone at once: their process was killed.
    pub(super) fn orphaned(&self) {
        let mut state = self.state();
        state.inside.clear();
        state.failures.clear();
        state.owner_at = None;
        state.lock = Arc::new(Semaphore::new(self.kind.slots()));
    }

    /// All is well from now on; what was damaged stays so until somebody heals it.
    pub(super) fn recover(&self) {
        let mut state = self.state();
        state.presence = Presence::Up;
        state.held = false;
        state.without_model = false;
        state.calm = true;
        drop(state);
        self.relief.send_modify(|reliefs| *reliefs += 1);
    }

    /// A wedge or a hang ends.
    pub(super) fn relieve(&self) {
        self.relief.send_modify(|reliefs| *reliefs += 1);
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let mut deaths = self.deaths.subscribe();
        deaths.mark_unchanged();
        let (read, write) = tokio::io::split(stream);
        tokio::select! {
            biased;
            _ = deaths.changed() => {}
            () = self.talk(Line { read, write }) => {}
        }
    }

    /// Hangs until somebody lets go.
    async fn hang(&self) {
        if self.state().calm {
            return;
        }
        let mut relief = self.relief.subscribe();
        relief.mark_unchanged();
        let _ = relief.changed().await;
    }

    async fn talk(&self, mut line: Line) {
        let Some(request) = wire::read(&mut line.read).await else { return };
        if self.state().presence == Presence::Wedged {
            self.hang().await;
            return;
        }
        checks::head(self, request.head_bytes);
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", path) if path == self.kind.chat_path() => match Chat::read(&request.body) {
                Some(chat) => self.chat(line, chat).await,
                None => self.journal.broken("a body that no server reads"),
            },
            (_, path) => {
                let pause = self.state().random.u64(1..15);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let (status, body) = self.page(path);
                let _ = wire::answer(&mut line.write, status, "", &body).await;
            }
        }
    }

    /// The pages that take no lock.
    fn page(&self, path: &str) -> (u16, String) {
        let model = self.kind.model();
        match (path, self.kind) {
            ("/", Kind::Hailo) => (200, "hailo-ollama is running".into()),
            ("/", Kind::Ollama) => (200, "Ollama is running".into()),
            ("/api/tags", Kind::Hailo | Kind::Ollama) if self.state().without_model => {
                (200, r#"{"models":[]}"#.into())
            }
            ("/api/tags", Kind::Hailo) => (
                200,
                format!(r#"{{"models":[{{"name":"{model}","details":{{"format":"hef"}}}}]}}"#),
            ),
            ("/api/tags", Kind::Ollama) => (
                200,
                format!(r#"{{"models":[{{"name":"{model}","details":{{"format":"gguf"}}}}]}}"#),
            ),
            ("/v1/models", Kind::OpenAi) if self.state().without_model => {
                (200, r#"{"object":"list","data":[]}"#.into())
            }
            ("/v1/models", Kind::OpenAi) => (
                200,
                format!(r#"{{"object":"list","data":[{{"id":"{model}","owned_by":"llamacpp"}}]}}"#),
            ),
            ("/api/version", Kind::Ollama) => (200, r#"{"version":"0.33.0"}"#.into()),
            // Of Ollama this takes no lock.
            ("/api/ps", Kind::Ollama) if !self.state().loaded => (200, r#"{"models":[]}"#.into()),
            ("/api/ps", Kind::Ollama) => (200, format!(r#"{{"models":[{{"name":"{model}"}}]}}"#)),
            ("/api/show", Kind::Ollama) => (200, r#"{"capabilities":["completion"]}"#.into()),
            (path, _) => {
                self.journal.broken(&format!("{} was asked for {path}", self.kind.name()));
                (404, "code=404".into())
            }
        }
    }

    /// Answers to people that failed within the breaker's window, none of them complete.
    pub(super) fn failures_lately(&self) -> usize {
        let now = self.journal.now();
        let window = Duration::from_secs(55);
        self.state().failures.iter().filter(|at| now < **at + window).count()
    }

    /// Whether this prompt would be decoded on the rest of an aborted answer.
    pub(super) fn would_extend_dirty(&self, messages: &[Said]) -> bool {
        let state = self.state();
        state.record.as_ref().is_some_and(|record| {
            record.dirty
                && messages.len() > record.messages.len()
                && messages.starts_with(&record.messages)
        })
    }

    /// What is wrong with the next answer.
    fn flaw(&self) -> Option<Flaw> {
        let mut state = self.state();
        if state.calm {
            return None;
        }
        self.swarm.flaw(&mut state.random)
    }

    fn thinks(&self) -> bool {
        let percent = self.swarm.thinks_percent;
        let mut state = self.state();
        !state.calm && state.random.u32(0..100) < percent
    }
}

impl Line {
    /// Resolves when the client has gone.
    async fn gone(&mut self) {
        let mut more = [0; 64];
        while self.read.read(&mut more).await.is_ok_and(|bytes| bytes > 0) {}
    }
}
