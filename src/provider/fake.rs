//! A scripted backend for tests on a paused clock. It asserts what every backend may rely on:
//! one request at a time, system first, roles in turn, and that the proof of fitting holds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};

use super::backend::{
    Backend, Capacity, ChatDelta, ChatRequest, ChatStream, Done, DoneReason, GivesWay, Presence,
    Role,
};
use super::fault::{Class, Fault, Phase};
use super::learned::{Learned, Seed};

/// What the fake does with one request: pauses and items, in order.
pub(crate) type Script = Vec<(Duration, Result<ChatDelta, Fault>)>;

pub(crate) const SEED: Seed = Seed {
    context_tokens: 2048,
    chunk_tokens: 96,
    chunk: Duration::from_millis(370),
    tokens_per_s: 7.0,
    load: Duration::from_secs(8),
    prefill_max: Some(Duration::from_secs(8)),
    prefix_cache: false,
};

pub(crate) struct Fake {
    name: &'static str,
    pub(crate) scripts: Mutex<VecDeque<Script>>,
    pub(crate) requests: Mutex<Vec<ChatRequest>>,
    pub(crate) present: AtomicBool,
    pub(crate) has_model: AtomicBool,
    /// How often it was looked at.
    pub(crate) looks: AtomicU32,
    pub(crate) context_tokens: AtomicU32,
    pub(crate) unloads: AtomicU32,
    /// Whether unloads are answered.
    pub(crate) unloads_work: AtomicBool,
    pub(crate) loads: AtomicU32,
    /// Takes connections and answers nothing.
    pub(crate) hangs: AtomicBool,
    /// Its version, and figures of it.
    pub(crate) version: Mutex<&'static str>,
    pub(crate) learned: Learned,
    /// Whether somebody has loaded its model, and the memory that this takes; 0 is none of ours.
    pub(crate) held: AtomicBool,
    pub(crate) memory_to_load: AtomicU64,
    /// What it finds out about the machine.
    pub(crate) hint: Mutex<Option<String>>,
    /// Stands in, with its model loaded, and gives way after so many seconds; 0 is never, the
    /// most is now.
    pub(crate) gives_way_after_s: AtomicU32,
    pub(crate) strained: AtomicBool,
    inside: Arc<AtomicBool>,
}

/// Marks the one request inside, until its stream is dropped.
struct Inside(Arc<AtomicBool>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

pub(crate) fn text(words: &str) -> (Duration, Result<ChatDelta, Fault>) {
    (Duration::from_millis(140), Ok(ChatDelta::Text(words.to_owned())))
}

pub(crate) fn done() -> (Duration, Result<ChatDelta, Fault>) {
    let done = Done { reason: DoneReason::Stop, tokens: Some(2), prompt_tokens: None };
    (Duration::ZERO, Ok(ChatDelta::Done(done)))
}

pub(crate) fn fault(class: Class, phase: Phase) -> (Duration, Result<ChatDelta, Fault>) {
    (Duration::ZERO, Err(Fault::new(class, phase, format!("{class:?}"))))
}

/// An answer that goes well.
pub(crate) fn says(words: &[&str]) -> Script {
    words.iter().map(|w| text(w)).chain([done()]).collect()
}

impl Fake {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            scripts: Mutex::default(),
            requests: Mutex::default(),
            present: AtomicBool::new(true),
            has_model: AtomicBool::new(true),
            looks: AtomicU32::new(0),
            context_tokens: AtomicU32::new(2048),
            unloads: AtomicU32::new(0),
            unloads_work: AtomicBool::new(true),
            loads: AtomicU32::new(0),
            hangs: AtomicBool::new(false),
            version: Mutex::new("1"),
            learned: Learned::new(SEED),
            held: AtomicBool::new(false),
            memory_to_load: AtomicU64::new(0),
            hint: Mutex::default(),
            gives_way_after_s: AtomicU32::new(0),
            strained: AtomicBool::new(false),
            inside: Arc::default(),
        })
    }

    /// Adds what it does with the next request. Without a script it says "ok".
    pub(crate) fn then(&self, script: Script) {
        self.scripts.lock().unwrap().push_back(script);
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    fn absence(&self) -> Result<(), Fault> {
        if self.hangs.load(Ordering::SeqCst) {
            return Err(Fault::new(Class::Wedged, Phase::Head, "silence"));
        }
        if !self.present.load(Ordering::SeqCst) {
            return Err(Fault::new(Class::Down, Phase::Connect, "refused"));
        }
        Ok(())
    }

    fn check(&self, request: &ChatRequest) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two requests in {}", self.name);
        assert_eq!(request.messages[0].role, Role::System);
        for (i, message) in request.messages.iter().enumerate().skip(1) {
            let expected = if i % 2 == 1 { Role::User } else { Role::Assistant };
            assert_eq!(message.role, expected, "roles in turn");
        }
        assert_eq!(request.messages.last().unwrap().role, Role::User);
        assert!(super::prompt::fits(request, self.capacity()));
    }
}

impl Backend for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn model(&self) -> String {
        "fake:1b".to_owned()
    }

    fn capacity(&self) -> Capacity {
        let context_tokens = self.context_tokens.load(Ordering::SeqCst);
        Capacity { context_tokens, prefill_tokens_max: context_tokens }
    }

    fn first_token_estimate(&self, fresh_tokens: u32) -> Duration {
        Duration::from_millis(4) * fresh_tokens
    }

    fn tokens_per_s(&self) -> Option<f32> {
        Some(7.0)
    }

    fn chat(&self, request: ChatRequest) -> BoxFuture<'_, Result<ChatStream, Fault>> {
        self.check(&request);
        self.requests.lock().unwrap().push(request);
        let script = self.scripts.lock().unwrap().pop_front();
        let inside = Inside(Arc::clone(&self.inside));
        async move {
            self.absence()?;
            let items = script.unwrap_or_else(|| says(&["ok"]));
            let head = (Duration::ZERO, Ok(ChatDelta::Head));
            let stream =
                stream::iter([head].into_iter().chain(items)).then(move |(pause, item)| {
                    let _inside = &inside;
                    async move {
                        tokio::time::sleep(pause).await;
                        item
                    }
                });
            Ok(stream.boxed() as ChatStream)
        }
        .boxed()
    }

    fn presence(&self) -> BoxFuture<'_, Result<Presence, Fault>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        async {
            self.absence()?;
            let model = self.has_model.load(Ordering::SeqCst).then(|| self.model());
            let server = format!("{} {}", self.name, self.version.lock().unwrap());
            Ok(Presence { server, model, offered: Vec::new() })
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<(), Fault>> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }.boxed()
    }

    fn unload(&self) -> BoxFuture<'_, Result<(), Fault>> {
        self.unloads.fetch_add(1, Ordering::SeqCst);
        self.gives_way_after_s.store(0, Ordering::SeqCst);
        let works = self.unloads_work.load(Ordering::SeqCst);
        let wedged = || Fault::new(Class::Wedged, Phase::Head, "no answer");
        async move { if works { Ok(()) } else { Err(wedged()) } }.boxed()
    }

    fn ghost(&self, _before_head: bool, _prompt_tokens: u32) -> Duration {
        Duration::from_millis(500)
    }

    fn holds_model(&self) -> BoxFuture<'_, bool> {
        async { self.held.load(Ordering::SeqCst) }.boxed()
    }

    fn memory_to_load(&self) -> Option<u64> {
        Some(self.memory_to_load.load(Ordering::SeqCst)).filter(|bytes| *bytes > 0)
    }

    fn learned(&self) -> Option<&Learned> {
        Some(&self.learned)
    }

    fn hint(&self) -> Option<String> {
        self.hint.lock().unwrap().clone()
    }

    fn service(&self) -> Option<&str> {
        (self.name == "hailo").then_some("hailo-ollama")
    }

    fn record_outlives_failure(&self) -> bool {
        self.name == "hailo"
    }

    fn strained(&self, strained: bool) {
        self.strained.store(strained, Ordering::SeqCst);
    }

    fn holding(&self) -> BoxFuture<'_, ()> {
        // The tests set it from outside at any time.
        Box::pin(std::future::ready(()))
    }

    fn gives_way(&self) -> GivesWay {
        match self.gives_way_after_s.load(Ordering::SeqCst) {
            0 => GivesWay::Never,
            u32::MAX => GivesWay::Now,
            seconds => GivesWay::After(Duration::from_secs(u64::from(seconds))),
        }
    }
}
