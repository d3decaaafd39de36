//! The provider as a whole over scripted backends, on a paused clock.

use super::backend::{ChatDelta, Message, Role};
use super::breaker::Policy;
use super::engine::SlotName;
use super::fake::{Fake, Script, fault, says, text};
use super::fault::Phase;
use super::prompt::{Fitted, NoRoom};
use super::recovery::RECOVERY_WAIT;
use super::*;
use std::sync::atomic::Ordering;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

/// An answer that goes on and on, and is no loop.
fn counting() -> Script {
    (0..1000).map(|n| text(&format!("{n} "))).collect()
}

struct House {
    hailo: Arc<Fake>,
    ollama: Arc<Fake>,
    provider: Arc<Provider>,
    events: Events,
}

fn house() -> House {
    let (hailo, ollama) = (Fake::new("hailo"), Fake::new("ollama"));
    let events = Events::default();
    let engine = |slot, backend: &Arc<Fake>| {
        let backend: Arc<dyn backend::Backend> = Arc::clone(backend) as _;
        Engine::new(slot, backend, Policy::default(), 30 * SECOND, events.clone())
    };
    let engines = vec![engine(SlotName::Primary, &hailo), engine(SlotName::Fallback, &ollama)];
    House { hailo, ollama, provider: Provider::new(engines, events.clone()), events }
}

/// A conversation of one long message that takes whatever room it gets.
struct Talk(Vec<&'static str>);

impl Prompt for Talk {
    fn fit(&self, prompt_tokens_max: u32) -> Result<Fitted, NoRoom> {
        let mut messages = vec![Message { role: Role::System, content: "be brief".to_owned() }];
        for (i, words) in self.0.iter().enumerate() {
            let role = if i % 2 == 0 { Role::User } else { Role::Assistant };
            messages.push(Message { role, content: (*words).to_owned() });
        }
        let clipped = (budget::prompt_tokens(&messages) > prompt_tokens_max).then(|| {
            let last = messages.len() - 1;
            messages[last].content = "clipped".to_owned();
            "clipped".to_owned()
        });
        Ok(Fitted { messages, clipped, voices: Vec::new() })
    }
}

fn job(events: &Events, priority: Priority) -> Job {
    Job {
        priority,
        conversation: "main".to_owned(),
        route: None,
        deadline: Instant::now() + 300 * SECOND,
        answer_tokens: 320,
        answer_tokens_max: None,
        sampling: Sampling::default(),
        schema: None,
        tools: Vec::new(),
        events: events.clone(),
    }
}

impl House {
    async fn ask(&self, job: &Job) -> (Result<Completed, ProviderError>, String) {
        self.say(job, &Talk(vec!["hello"])).await
    }

    async fn say(&self, job: &Job, talk: &Talk) -> (Result<Completed, ProviderError>, String) {
        let (out, mut heard) = mpsc::channel(1024);
        let result = self.provider.chat(job, talk, &out).await;
        drop(out);
        let mut shown = String::new();
        while let Some(progress) = heard.recv().await {
            if let Progress::Text(text) = progress {
                shown.push_str(&text);
            }
        }
        (result, shown)
    }

    fn owner(&self) -> Job {
        job(&self.events, Priority::Owner)
    }
}

#[tokio::test(start_paused = true)]
async fn the_primary_answers_while_it_can() {
    let house = house();
    house.hailo.then(says(&["Hel", "lo."]));
    let (result, shown) = house.ask(&house.owner()).await;
    let completed = result.unwrap();
    assert_eq!((shown.as_str(), completed.shown.as_str()), ("Hello.", "Hello."));
    assert_eq!(completed.backend, "hailo");
    assert_eq!(house.ollama.request_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refused_is_free_at_once_and_one_that_was_left_is_not() {
    for (class, phase, free) in [
        (Class::ModelMissing, Phase::Head, true),
        (Class::DeviceFault, Phase::Head, true),
        (Class::ServerError, Phase::Stream, true),
        (Class::Truncated, Phase::FirstToken, false),
        (Class::PrefillTimeout, Phase::FirstToken, false),
    ] {
        let house = house();
        house.hailo.then(vec![fault(class, phase)]);
        house.hailo.then(vec![fault(class, phase)]);
        house.hailo.then(vec![fault(class, phase)]);
        let begin = Instant::now();
        for _ in 0..2 {
            house.ask(&house.owner()).await.0.unwrap();
        }
        // The fallback's two answers of one word take 280 ms; the fake's ghost is half a second.
        assert_eq!(begin.elapsed() < Duration::from_millis(500), free, "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_fault_before_the_first_word_ends_on_the_fallback() {
    use Class::*;
    for class in [
        Down,
        Crashed,
        Wedged,
        DeviceBusy,
        DeviceFault,
        Poisoned,
        PrefillTimeout,
        Truncated,
        ModelMissing,
        OurBug,
        Busy,
        ServerError,
        EmptyAnswer,
        BadOutput,
        ThinkOverrun,
        Unauthorised,
    ] {
        let house = house();
        // Twice: some classes are tried once more on the same backend.
        house.hailo.then(vec![fault(class, Phase::FirstToken)]);
        house.hailo.then(vec![fault(class, Phase::FirstToken)]);
        house.ollama.then(says(&["Here."]));
        let (result, shown) = house.ask(&house.owner()).await;
        assert_eq!(shown, "Here.", "{class:?}");
        assert_eq!(result.unwrap().backend, "ollama", "{class:?}");
        assert!(house.hailo.request_count() <= 2, "at most one retry: {class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_first_word_there_is_no_other_backend() {
    let house = house();
    house.hailo.then(vec![text("Half an "), fault(Class::Truncated, Phase::Stream)]);
    let (result, shown) = house.ask(&house.owner()).await;
    assert_eq!(shown, "Half an ");
    assert!(matches!(result, Err(ProviderError::BrokeOff(_))));
    assert_eq!((house.hailo.request_count(), house.ollama.request_count()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_a_retry_can_mend_is_retried_once_on_the_same_backend() {
    for (class, unloads) in [
        (Class::DeviceFault, 1),
        (Class::Poisoned, 1),
        (Class::PrefillTimeout, 0),
        (Class::EmptyAnswer, 0),
    ] {
        let house = house();
        house.hailo.then(vec![fault(class, Phase::FirstToken)]);
        house.hailo.then(says(&["Mended."]));
        let (result, _) = house.ask(&house.owner()).await;
        assert_eq!(result.unwrap().backend, "hailo", "{class:?}");
        assert_eq!(house.hailo.unloads.load(Ordering::SeqCst), unloads, "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_answer_is_retried_with_another_seed() {
    let house = house();
    house.hailo.then(says(&["  \n"]));
    house.hailo.then(says(&["Words."]));
    let (_, shown) = house.ask(&house.owner()).await;
    assert_eq!(shown, "Words.");
    let requests = house.hailo.requests.lock().unwrap();
    assert_eq!(requests[0].sampling.seed, None);
    assert!(requests[1].sampling.seed.is_some());
}

#[tokio::test(start_paused = true)]
async fn each_backend_gets_the_conversation_fitted_to_it() {
    const LONG: &str = "abcdefghi abcdefghi abcdefghi abcdefghi abcdefghi abcdefghi abcdefghi \
        abcdefghi abcdefghi abcdefghi abcdefghi abcdefghi abcdefghi abcdefghi abcdefghi abcdefghi";
    let house = house();
    house.hailo.context_tokens.store(160, Ordering::SeqCst);
    house.hailo.then(vec![fault(Class::Down, Phase::Connect)]);
    let (result, _) = house.say(&house.owner(), &Talk(vec![LONG])).await;
    assert_eq!(result.unwrap().clipped, None, "the fallback has room for all of it");
    assert_eq!(house.hailo.requests.lock().unwrap()[0].messages[1].content, "clipped");
    assert_eq!(house.ollama.requests.lock().unwrap()[0].messages[1].content, LONG);
}

#[tokio::test(start_paused = true)]
async fn a_dead_primary_costs_its_fault_once_and_comes_back_by_itself() {
    let house = house();
    let stop = CancellationToken::new();
    let recovery = tokio::spawn(Arc::clone(&house.provider).recover(stop.clone()));
    house.hailo.present.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        let (result, _) = house.ask(&house.owner()).await;
        assert_eq!(result.unwrap().backend, "ollama");
    }
    assert!(house.hailo.request_count() <= 1, "an open breaker sends nothing");
    house.hailo.present.store(true, Ordering::SeqCst);
    tokio::time::sleep(150 * SECOND).await;
    assert_eq!(house.provider.states()[0].breaker, "closed");
    assert!(house.hailo.loads.load(Ordering::SeqCst) > 0, "it is warm again");
    let (result, _) = house.ask(&house.owner()).await;
    assert_eq!(result.unwrap().backend, "hailo");
    stop.cancel();
    recovery.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stand_in_lets_go_when_an_earlier_backend_is_well_for_long_enough() {
    let house = house();
    let stop = CancellationToken::new();
    house.hailo.present.store(false, Ordering::SeqCst);
    let recovery = tokio::spawn(Arc::clone(&house.provider).recover(stop.clone()));
    tokio::time::sleep(70 * SECOND).await;
    house.ollama.gives_way_after_s.store(120, Ordering::SeqCst);
    house.hailo.gives_way_after_s.store(1, Ordering::SeqCst);
    tokio::time::sleep(400 * SECOND).await;
    assert_eq!(house.ollama.unloads.load(Ordering::SeqCst), 0, "nobody else is there");
    assert_eq!(house.hailo.unloads.load(Ordering::SeqCst), 0, "nobody stands before it");
    // Healing the first may unload it as well; only the stand-in is of interest from here on.
    house.hailo.present.store(true, Ordering::SeqCst);
    let back = Instant::now();
    while house.provider.states()[0].breaker != "closed" {
        tokio::time::sleep(SECOND).await;
        assert!(back.elapsed() < 300 * SECOND, "it does not come back");
    }
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(house.ollama.unloads.load(Ordering::SeqCst), 0, "not yet");
    tokio::time::sleep(50 * SECOND).await;
    assert_eq!(house.ollama.unloads.load(Ordering::SeqCst), 1);
    stop.cancel();
    recovery.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stand_in_of_a_machine_that_suffers_lets_go_also_without_another() {
    let house = house();
    let stop = CancellationToken::new();
    house.hailo.present.store(false, Ordering::SeqCst);
    let recovery = tokio::spawn(Arc::clone(&house.provider).recover(stop.clone()));
    tokio::time::sleep(70 * SECOND).await;
    house.provider.set_strained(true);
    assert!(house.ollama.strained.load(Ordering::SeqCst));
    house.ollama.gives_way_after_s.store(u32::MAX, Ordering::SeqCst);
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(house.ollama.unloads.load(Ordering::SeqCst), 1);
    stop.cancel();
    recovery.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_model_that_comes_late_is_found_without_a_question() {
    let house = house();
    let stop = CancellationToken::new();
    house.hailo.present.store(false, Ordering::SeqCst);
    house.ollama.has_model.store(false, Ordering::SeqCst);
    let recovery = tokio::spawn(Arc::clone(&house.provider).recover(stop.clone()));
    // Longer than servers are waited for at the start.
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(house.provider.active(), None);
    house.ollama.has_model.store(true, Ordering::SeqCst);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(house.provider.active().as_deref(), Some("ollama"));
    assert_eq!(house.provider.states()[1].last_error, None);
    stop.cancel();
    recovery.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_every_server_gone_the_answer_is_the_truth_at_once() {
    let house = house();
    let stop = CancellationToken::new();
    let recovery = tokio::spawn(Arc::clone(&house.provider).recover(stop.clone()));
    house.hailo.present.store(false, Ordering::SeqCst);
    house.ollama.present.store(false, Ordering::SeqCst);
    let start = Instant::now();
    let (result, shown) = house.ask(&house.owner()).await;
    assert!(start.elapsed() <= RECOVERY_WAIT);
    assert_eq!(shown, "");
    let Err(ProviderError::Offline { retry_after, causes }) = result else { panic!() };
    assert_eq!(causes.len(), 2);
    assert!(retry_after <= 12 * SECOND, "{retry_after:?}");
    assert_eq!(house.provider.active(), None);
    stop.cancel();
    recovery.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_person_who_waits_hurries_the_probe_of_a_server_that_is_back() {
    let house = house();
    let stop = CancellationToken::new();
    let recovery = tokio::spawn(Arc::clone(&house.provider).recover(stop.clone()));
    house.hailo.present.store(false, Ordering::SeqCst);
    house.ollama.present.store(false, Ordering::SeqCst);
    // Past the start, when absent servers are polled anyway, into the long open times.
    tokio::time::sleep(400 * SECOND).await;
    assert!(house.ask(&house.owner()).await.0.is_err());
    house.ollama.present.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let (result, _) = house.ask(&house.owner()).await;
    assert_eq!(result.unwrap().backend, "ollama");
    assert!(start.elapsed() <= RECOVERY_WAIT + SECOND);
    stop.cancel();
    recovery.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cancelling_keeps_the_slot_for_the_ghost_and_blames_nobody() {
    let house = house();
    let slow: Script = counting();
    house.hailo.then(slow);
    let first = house.owner();
    let cancelled = tokio::time::timeout(SECOND, house.ask(&first)).await;
    assert!(cancelled.is_err());
    assert_eq!(house.provider.states()[0].breaker, "closed");
    let start = Instant::now();
    let (result, _) = house.ask(&house.owner()).await;
    assert_eq!(result.unwrap().backend, "hailo");
    assert!(start.elapsed() >= Duration::from_millis(500), "the server was still busy");
}

#[tokio::test(start_paused = true)]
async fn extending_an_aborted_conversation_is_never_sent_on_a_dirty_cache() {
    let house = house();
    house.hailo.then(counting());
    let _ = tokio::time::timeout(SECOND, house.ask(&house.owner())).await;
    let talk = Talk(vec!["hello", "word word", "go on"]);
    house.say(&house.owner(), &talk).await.0.unwrap();
    assert_eq!(house.hailo.unloads.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_could_not_be_cleared_stays_suspect() {
    let house = house();
    house.hailo.then(counting());
    let _ = tokio::time::timeout(SECOND, house.ask(&house.owner())).await;
    house.hailo.unloads_work.store(false, Ordering::SeqCst);
    let talk = Talk(vec!["hello", "word word", "go on"]);
    let (result, _) = house.say(&house.owner(), &talk).await;
    assert_eq!(result.unwrap().backend, "ollama");
    assert_eq!(house.hailo.request_count(), 1, "nothing is sent on a dirty cache");
    assert!(house.hailo.unloads.load(Ordering::SeqCst) > 0);
}

/// A conversation with one past turn, answered by this backend.
struct Told(&'static str);

impl Prompt for Told {
    fn fit(&self, prompt_tokens_max: u32) -> Result<Fitted, NoRoom> {
        let fitted = Talk(vec!["hello", "hi", "go on"]).fit(prompt_tokens_max)?;
        Ok(Fitted { voices: vec![self.0.into()], ..fitted })
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_process_may_have_left_half_done_is_cleared_once() {
    for (voice, unloads) in [("hailo", 0), ("ollama", 1)] {
        let house = house();
        let (out, _heard) = mpsc::channel(1024);
        for _ in 0..2 {
            let (job, told) = (house.owner(), Told(voice));
            house.provider.chat(&job, &told, &out).await.unwrap();
        }
        assert_eq!(house.hailo.unloads.load(Ordering::SeqCst), unloads, "{voice}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_warm_up_leaves_a_server_alone_whose_breaker_opened_meanwhile() {
    let house = house();
    house.hailo.then(vec![text("well "), fault(Class::Wedged, Phase::Stream)]);
    let stop = CancellationToken::new();
    let recovery = tokio::spawn(Arc::clone(&house.provider).recover(stop.clone()));
    let (result, _) = house.ask(&house.owner()).await;
    assert!(matches!(result, Err(ProviderError::BrokeOff(_))));
    // The hold for the ghost is over, and it is not looked at again yet.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(house.provider.states()[0].breaker, "open");
    assert_eq!(house.hailo.loads.load(Ordering::SeqCst), 0, "it waited for the slot until then");
    stop.cancel();
    recovery.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn background_work_gives_way_to_a_person() {
    let house = Arc::new(house());
    house.hailo.then(counting());
    house.hailo.then(says(&["Yes?"]));
    let background = {
        let house = Arc::clone(&house);
        let musing = job(&house.events, Priority::Curiosity);
        tokio::spawn(async move { house.ask(&musing).await.0 })
    };
    tokio::time::sleep(2 * SECOND).await;
    let start = Instant::now();
    let (result, shown) = house.ask(&house.owner()).await;
    assert_eq!((result.unwrap().backend.as_str(), shown.as_str()), ("hailo", "Yes?"));
    assert!(start.elapsed() <= SECOND, "{:?}", start.elapsed());
    assert_eq!(background.await.unwrap(), Err(ProviderError::Preempted));
}

#[tokio::test(start_paused = true)]
async fn a_route_by_name_asks_only_that_backend() {
    let house = house();
    let mut named = house.owner();
    named.route = Some("ollama".to_owned());
    assert_eq!(house.ask(&named).await.0.unwrap().backend, "ollama");
    named.route = Some("nowhere".to_owned());
    assert_eq!(house.ask(&named).await.0, Err(ProviderError::NoSuchBackend("nowhere".to_owned())));
    assert_eq!(house.hailo.request_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_stream_that_never_does() {
    let house = house();
    house.hailo.then(vec![text("well "), (10_000 * SECOND, Ok(ChatDelta::Head))]);
    let mut short = house.owner();
    short.deadline = Instant::now() + 20 * SECOND;
    let start = Instant::now();
    assert_eq!(house.ask(&short).await.0, Err(ProviderError::TooLate));
    assert_eq!(start.elapsed(), 20 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cuts_the_prompt_in_silence_is_told() {
    let house = house();
    let mut heard = house.events.listen();
    let mut script = says(&["ok"]);
    if let Some((_, Ok(ChatDelta::Done(done)))) = script.last_mut() {
        done.prompt_tokens = Some(1);
    }
    house.hailo.then(script);
    let talk = Talk(vec![
        "a question of a hundred bytes or so, which no tokenizer makes one token \
                          of, whatever its family is",
    ]);
    house.say(&house.owner(), &talk).await.0.unwrap();
    assert!(matches!(heard.try_recv(), Ok(Event::PromptTruncated { counted: 1, .. })));
}
