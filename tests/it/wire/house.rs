//! The agent over a real store, with the real client between it and the simulators.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crayfish::agent::service::{Agent, Settings};
use crayfish::agent::{Answer, Converse, Submission, Turn, TurnEvent};
use crayfish::clock::{SteppedClock, WallClock};
use crayfish::config::Config;
use crayfish::event::{Event, Events};
use crayfish::limits::CONTEXT_MARGIN_TOKENS;
use crayfish::mood::Tuning;
use crayfish::net::client::ReqwestHttp;
use crayfish::net::{Http, HttpError, HttpRequest, HttpResponse};
use crayfish::provider::Provider;
use crayfish::provider::backend::{Backend, Sampling};
use crayfish::provider::breaker::Policy;
use crayfish::provider::engine::{Engine, SlotName};
use crayfish::session::Sessions;
use crayfish::store::{Options, Store};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// 2026-11-30 14:05 UTC.
pub(super) const NOW_MS: i64 = 1_796_047_500_000;

/// Nothing in these tests takes so long; whoever waits longer has hung.
pub(super) const LATE: Duration = Duration::from_secs(60);

/// The real client, which remembers what it sent.
#[derive(Default)]
pub(super) struct Recorder {
    http: ReqwestHttp,
    sent: Mutex<Vec<Sent>>,
}

/// One request that left with a body.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) url: String,
    pub(super) bytes: Vec<u8>,
    pub(super) body: Value,
}

/// What a house is built from.
pub(super) struct Parts {
    /// In the order of the slots, each with its context in tokens.
    pub(super) backends: Vec<(Arc<dyn Backend>, u32)>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) settings: Settings,
    pub(super) policy: Policy,
}

/// The agent with all below it. Dropping it checks what it sent.
pub(super) struct House {
    pub(super) agent: Arc<Agent>,
    pub(super) provider: Arc<Provider>,
    pub(super) clock: Arc<SteppedClock>,
    pub(super) recorder: Arc<Recorder>,
    heard: broadcast::Receiver<Event>,
    contexts: Vec<(String, u32)>,
    stop: CancellationToken,
    store_stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// What a door was told of one turn.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) text: String,
    pub(super) end: TurnEvent,
}

pub(super) fn settings() -> Settings {
    Settings {
        system: "You are Pinch, a crayfish. You are brief and honest.".to_owned(),
        answer_tokens_max: 200,
        turns_max: 24,
        sampling: Sampling::default(),
        deadline: Duration::from_secs(30),
        zone: jiff::tz::TimeZone::UTC,
        mood: Tuning::new(&Config::default().mood, Duration::from_secs(30)),
        nudges: Config::default().mood.nudges,
    }
}

/// A breaker that tries again almost at once.
pub(super) fn quick_policy() -> Policy {
    Policy {
        open_for: Duration::from_millis(50),
        open_max: Duration::from_millis(200),
        ..Policy::default()
    }
}

impl Parts {
    pub(super) fn new(recorder: Arc<Recorder>, backends: Vec<(Arc<dyn Backend>, u32)>) -> Self {
        Self { backends, recorder, settings: settings(), policy: quick_policy() }
    }

    /// A daemon on this state directory.
    pub(super) fn start(self, state_dir: &Path) -> House {
        let events = Events::default();
        let heard = events.listen();
        let slots = [SlotName::Primary, SlotName::Fallback, SlotName::Reserve];
        let mut contexts = Vec::new();
        let mut engines = Vec::new();
        for (slot, (backend, context)) in slots.into_iter().zip(self.backends) {
            contexts.push((backend.name().to_owned(), context));
            let quiet = Duration::from_secs(30);
            engines.push(Engine::new(slot, backend, self.policy, quiet, events.clone()));
        }
        let provider = Provider::new(engines, events.clone());
        let clock = Arc::new(SteppedClock::new(NOW_MS));
        let wall: Arc<dyn WallClock> = Arc::<SteppedClock>::clone(&clock);
        let options = Options {
            state_dir: state_dir.to_owned(),
            fsync_always: false,
            idle_flush: Duration::from_secs(30),
            pages_max: None,
        };
        let (store, store_task) = Store::open(options, Arc::clone(&wall), events.clone()).unwrap();
        let sessions = Sessions::new(store, Arc::clone(&wall));
        let (agent, task) =
            Agent::new(Arc::clone(&provider), sessions, self.settings, wall, events.clone());
        let (stop, store_stop) = (CancellationToken::new(), CancellationToken::new());
        let storing = store_stop.clone();
        let tasks = vec![
            tokio::spawn(task.run(stop.clone())),
            tokio::spawn(async move { store_task.run(storing).await.unwrap() }),
        ];
        House {
            agent,
            provider,
            clock,
            recorder: self.recorder,
            heard,
            contexts,
            stop,
            store_stop,
            tasks,
        }
    }
}

impl House {
    /// Begins what the daemon does beside turns: warming up and probing.
    pub(super) fn recover(&mut self) {
        let provider = Arc::clone(&self.provider);
        self.tasks.push(tokio::spawn(provider.recover(self.stop.clone())));
    }

    pub(super) async fn submit(&self, session: &str, words: &str) -> Turn {
        let submission = Submission {
            session: Some(session.to_owned()),
            text: words.to_owned(),
            ..Submission::default()
        };
        self.agent.submit(submission).await.unwrap()
    }

    /// One turn in the main conversation.
    pub(super) async fn say(&self, words: &str) -> Told {
        told(self.submit("main", words).await).await
    }

    /// One turn that must go well.
    pub(super) async fn ask(&self, words: &str) -> Answer {
        self.say(words).await.answer()
    }

    /// The events since the last call.
    pub(super) fn heard(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).collect()
    }

    pub(super) fn breaker(&self, slot: usize) -> &'static str {
        self.provider.states()[slot].breaker
    }

    /// Waits until a breaker is closed.
    pub(super) async fn closed(&self, slot: usize) {
        until("the breaker closes", || self.breaker(slot) == "closed").await;
    }

    /// Ends the daemon in its order.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut self.tasks);
        let storing = tasks.remove(1);
        for task in tasks {
            task.await.unwrap();
        }
        self.store_stop.cancel();
        storing.await.unwrap();
    }

    /// Prompt and answer of every request fit their context, with the margin.
    fn check_budgets(&self) {
        for sent in self.recorder.chats() {
            let context = self.contexts.iter().map(|(_, context)| *context);
            let context = match sent.context() {
                Some(context) => context,
                None => context.max().unwrap_or(0),
            };
            let (prompt, answer) = sent.budget();
            assert!(answer >= 1, "{}", sent.body);
            assert!(
                prompt + answer + u64::from(CONTEXT_MARGIN_TOKENS) <= u64::from(context),
                "{prompt} + {answer} tokens do not fit {context}: {}",
                sent.url
            );
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.cancel();
        self.store_stop.cancel();
        if !std::thread::panicking() {
            self.check_budgets();
        }
    }
}

impl Told {
    /// The answer of a turn that went well.
    pub(super) fn answer(self) -> Answer {
        match self.end {
            TurnEvent::Done(answer) => answer,
            other => panic!("not answered: {other:?} after {:?}", self.text),
        }
    }

    /// The code of a turn that failed.
    pub(super) fn code(&self) -> &'static str {
        match &self.end {
            TurnEvent::Failed { code, .. } => code,
            other => panic!("not failed: {other:?} after {:?}", self.text),
        }
    }
}

/// Everything a door is told of a turn: its text and its one end.
pub(super) async fn told(mut turn: Turn) -> Told {
    let (mut text, mut end) = (String::new(), None);
    loop {
        let event = tokio::time::timeout(LATE, turn.events.recv()).await;
        let Some(event) = event.expect("the turn ends") else { break };
        assert!(end.is_none(), "{event:?} after the end {end:?}");
        match event {
            TurnEvent::Waiting { .. } => {}
            TurnEvent::Delta(piece) => text.push_str(&piece),
            terminal => end = Some(terminal),
        }
    }
    let end = end.expect("a turn has an end");
    if let TurnEvent::Done(answer) = &end {
        assert_eq!(answer.text, text, "what was shown is the answer");
    }
    Told { text, end }
}

/// Waits until something is true.
pub(super) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    assert!(tokio::time::timeout(LATE, waiting).await.is_ok(), "never: {what}");
}

impl Recorder {
    /// Requests for an answer, in the order in which they were sent.
    pub(super) fn chats(&self) -> Vec<Sent> {
        let sent = self.sent.lock().unwrap();
        sent.iter().filter(|sent| !sent.messages().is_empty()).cloned().collect()
    }

    /// Everything that was sent with a body.
    pub(super) fn all(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }
}

impl Sent {
    /// Role and content of its messages.
    pub(super) fn messages(&self) -> Vec<(String, String)> {
        let messages = self.body["messages"].as_array();
        let field = |message: &Value, name: &str| message[name].as_str().unwrap().to_owned();
        messages
            .into_iter()
            .flatten()
            .map(|message| (field(message, "role"), field(message, "content")))
            .collect()
    }

    /// The context it asks for, if it names one.
    fn context(&self) -> Option<u32> {
        self.body["options"]["num_ctx"].as_u64().map(|tokens| u32::try_from(tokens).unwrap())
    }

    /// The pessimistic count of its prompt, bytes / 3 + 8 for each message, and its answer's
    /// bound; counted here anew, from what is on the wire.
    pub(super) fn budget(&self) -> (u64, u64) {
        let messages = self.messages();
        let prompt = messages.iter().map(|(_, text)| text.len().div_ceil(3) as u64 + 8);
        let answer = &self.body["options"]["num_predict"];
        let answer = answer.as_u64().or_else(|| self.body["max_tokens"].as_u64());
        (prompt.sum(), answer.expect("an answer has a bound"))
    }
}

impl Http for Recorder {
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        if let Some(bytes) = request.body.clone() {
            let body = serde_json::from_slice(&bytes).unwrap();
            self.sent.lock().unwrap().push(Sent { url: request.url.clone(), bytes, body });
        }
        self.http.send(request)
    }
}
