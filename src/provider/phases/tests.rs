use std::sync::Mutex;

use futures_util::stream;

use super::*;
use crate::net::{Http, HttpRequest};
use crate::provider::backend::{Backend, ChatRequest};
use crate::provider::hailo::{Hailo, HailoConfig};
use crate::provider::ollama::{Ollama, OllamaConfig};
use crate::provider::rig::request;

/// What a scripted body does next, on the paused clock.
#[derive(Debug, Clone)]
enum Then {
    Send(u64, &'static str),
    Fail(u64),
    End(u64),
    Hang,
}

type Row = (u64, &'static [Then], Option<(Class, Phase)>, u64);

/// A server in memory: answers `/api/tags`, and prompts with a head after some seconds and then
/// its script.
struct Memory {
    head_after_s: Mutex<Vec<u64>>,
    script: Vec<Then>,
    /// What it says to `/`, or the error; absent is silence.
    root: Option<Result<&'static str, HttpError>>,
}

const TOKEN: &str = "{\"message\":{\"content\":\"a\"},\"done\":false}\r\n";
const EMPTY: &str = "{\"message\":{\"content\":\"\"},\"done\":false}\r\n";
const DONE: &str = "{\"done\":true,\"eval_count\":9}\r\n";

impl Http for Memory {
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        Box::pin(async move {
            let whole = |text: &'static str| {
                stream::once(async move { Ok(text.as_bytes().to_vec()) }).boxed()
            };
            let body = if request.url.ends_with("/api/tags") {
                whole("{\"models\":[{\"name\":\"qwen2.5:1.5b\"}]}")
            } else if request.url.ends_with("/api/show") {
                whole("{}")
            } else if request.url.ends_with("11434/") || request.url.ends_with("8000/") {
                match self.root.clone() {
                    Some(said) => whole(said?),
                    None => std::future::pending().await,
                }
            } else {
                let after = self.head_after_s.lock().unwrap().pop().unwrap();
                tokio::time::sleep(Duration::from_secs(after)).await;
                let steps = stream::iter(self.script.clone());
                let pieces = steps.then(|step| async move {
                    let (after, piece) = match step {
                        Then::Send(after, text) => (after, Some(Ok(text.as_bytes().to_vec()))),
                        Then::Fail(after) => (after, Some(Err(HttpError::Cut("reset".into())))),
                        Then::End(after) => (after, None),
                        Then::Hang => (1_000_000, None),
                    };
                    tokio::time::sleep(Duration::from_secs(after)).await;
                    piece
                });
                pieces
                    .take_while(|piece| std::future::ready(piece.is_some()))
                    .map(Option::unwrap)
                    .boxed()
            };
            Ok(HttpResponse {
                status: 200,
                content_type: None,
                retry_after: None,
                location: None,
                length: None,
                body,
            })
        })
    }
}

fn server(head_after_s: &[u64], script: &[Then]) -> Arc<dyn Http> {
    let head_after_s = Mutex::new(head_after_s.iter().rev().copied().collect());
    Arc::new(Memory { head_after_s, script: script.to_vec(), root: Some(Ok("")) })
}

/// One answer: its fault or `None`, and the whole seconds it took.
async fn ask(backend: &dyn Backend, request: ChatRequest) -> (Option<(Class, Phase)>, u64) {
    let began = Instant::now();
    let mut stream = backend.chat(request).await.unwrap();
    let mut fault = None;
    while let Some(item) = stream.next().await {
        fault = item.err().map(|fault| (fault.class, fault.phase));
    }
    (fault, began.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn hailo_ollama_gets_the_patience_of_the_specification() {
    use Then::{End, Fail, Hang, Send};
    let prefill = Some((Class::PrefillTimeout, Phase::FirstToken));
    let cut = Some((Class::Truncated, Phase::FirstToken));
    let stalled = Some((Class::Truncated, Phase::Stream));
    let table: [Row; 12] = [
        (44, &[Send(8, TOKEN), Send(0, DONE)], None, 52),
        (46, &[], Some((Class::Wedged, Phase::Head)), 45),
        (0, &[End(10)], prefill, 10),
        (0, &[Fail(9)], prefill, 9),
        (0, &[End(8)], cut, 8),
        (0, &[Fail(0)], cut, 0),
        (0, &[Hang], Some((Class::Wedged, Phase::FirstToken)), 12),
        (0, &[Send(11, TOKEN), Send(11, DONE)], None, 22),
        (0, &[Send(1, TOKEN), End(10)], stalled, 11),
        (0, &[Send(1, TOKEN), Hang], stalled, 13),
        // A line without text is a sign of life between tokens, but no first token.
        (0, &[Send(1, TOKEN), Send(11, EMPTY), Send(11, DONE)], None, 23),
        (0, &[Send(11, EMPTY), Send(11, TOKEN)], Some((Class::Wedged, Phase::FirstToken)), 12),
    ];
    for (head_after_s, script, want, took) in table {
        let hailo = Hailo::new(server(&[head_after_s], script), HailoConfig::default());
        let got = ask(&hailo, request()).await;
        assert_eq!(got, (want, took), "{head_after_s} {script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loaded_model_gets_less_patience_and_a_fault_takes_that_back() {
    let script = [Then::Send(1, TOKEN), Then::Send(1, DONE)];
    let hailo = Hailo::new(server(&[20, 7, 7], &script), HailoConfig::default());
    assert_eq!(ask(&hailo, request()).await, (None, 22));
    let wedged = (Some((Class::Wedged, Phase::Head)), 6);
    assert_eq!(ask(&hailo, request()).await, wedged, "loaded");
    hailo.learned().unwrap().unloaded();
    assert_eq!(ask(&hailo, request()).await, (None, 9), "cold again");

    let brief = HailoConfig { keep_alive_s: 60, ..HailoConfig::default() };
    let hailo = Hailo::new(server(&[20, 7], &script), brief);
    assert_eq!(ask(&hailo, request()).await, (None, 22));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(ask(&hailo, request()).await, (None, 9), "the keep-alive has run out");
}

#[tokio::test(start_paused = true)]
async fn ollama_gets_time_for_prefill_before_its_head() {
    let script = [Then::Send(0, TOKEN), Then::Send(9, TOKEN), Then::Send(0, DONE)];
    let big = ChatRequest { prompt_tokens: 3000, ..request() };
    let ollama = Ollama::new(server(&[210, 100, 120], &script), OllamaConfig::default());
    assert_eq!(ask(&ollama, big.clone()).await, (None, 219), "120 s and 3000 / 30 s");
    assert_eq!(ask(&ollama, big.clone()).await, (None, 109), "loaded: 10 s and 3000 / 30 s");
    assert_eq!(ask(&ollama, big).await, (Some((Class::Wedged, Phase::Head)), 110));
    for (script, want) in [
        (vec![Then::Hang], (Some((Class::Wedged, Phase::FirstToken)), 15)),
        (vec![Then::End(0)], (Some((Class::Truncated, Phase::FirstToken)), 0)),
        (vec![Then::Send(0, TOKEN), Then::Hang], (Some((Class::Truncated, Phase::Stream)), 10)),
    ] {
        let ollama = Ollama::new(server(&[0], &script), OllamaConfig::default());
        assert_eq!(ask(&ollama, request()).await, want, "{script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_head_is_waited_for_while_the_server_lives() {
    let silent = None;
    let refuses = Some(Err(HttpError::Refused("refused".into())));
    let cut = Some(Err(HttpError::Cut("reset".into())));
    let head = |class| Some((class, Phase::Head));
    let gone = Some((Class::Down, Phase::Connect));
    let table: [(_, &str, _, u64); 7] = [
        (silent.clone(), "hailo", head(Class::Wedged), 3),
        (silent, "ollama", head(Class::Wedged), 3),
        (refuses, "hailo", gone, 1),
        (Some(Ok("Ollama is running")), "hailo", head(Class::ServerError), 1),
        (Some(Ok("hailo-ollama is running")), "ollama", head(Class::ServerError), 1),
        (Some(Ok("hailo-ollama is running")), "hailo", None, 30),
        (cut, "ollama", None, 30),
    ];
    for (root, dialect, want, took) in table {
        let script = vec![Then::Send(0, TOKEN), Then::Send(0, DONE)];
        let head_after_s = Mutex::new(vec![30]);
        let http: Arc<dyn Http> = Arc::new(Memory { head_after_s, script, root: root.clone() });
        let backend: Box<dyn Backend> = match dialect {
            "hailo" => Box::new(Hailo::new(http, HailoConfig::default())),
            _ => Box::new(Ollama::new(http, OllamaConfig::default())),
        };
        assert_eq!(ask(&*backend, request()).await, (want, took), "{dialect}: {root:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_has_a_limit_that_grows_with_its_length() {
    // One token in ten seconds never breaks the limit between tokens.
    let script = vec![Then::Send(10, TOKEN); 100];
    let hailo = Hailo::new(server(&[0, 0], &script), HailoConfig::default());
    let (fault, took) = ask(&hailo, ChatRequest { num_predict: 1, ..request() }).await;
    assert_eq!(fault, Some((Class::Truncated, Phase::Stream)));
    assert_eq!(took, 30);
    let (_, took) = ask(&hailo, ChatRequest { num_predict: 700, ..request() }).await;
    assert!((200..300).contains(&took), "30 s and 700 tokens at half the known rate: {took}");
}

#[tokio::test(start_paused = true)]
async fn the_rates_of_answers_are_learned() {
    let mut script = vec![Then::Send(4, TOKEN)];
    script.extend(vec![Then::Send(1, TOKEN); 8]);
    script.push(Then::Send(0, DONE));
    let hailo = Hailo::new(server(&[20; 30], &script), HailoConfig::default());
    let before = hailo.first_token_estimate(300);
    for _ in 0..30 {
        hailo.learned().unwrap().unloaded();
        assert_eq!(ask(&hailo, request()).await.0, None);
    }
    assert!((hailo.learned().unwrap().tokens_per_s() - 1.0).abs() < 0.05, "8 tokens in 8 s");
    assert!((hailo.learned().unwrap().load_time().as_secs_f64() - 20.0).abs() < 0.1);
    let pace = hailo.learned().unwrap().pace();
    let seconds = |told: Option<Duration>| told.unwrap().as_secs();
    assert_eq!((seconds(pace.head), seconds(pace.first_token)), (20, 24));
    assert_eq!((seconds(pace.gap_p50), seconds(pace.gap_p99)), (1, 1));
    let after = hailo.first_token_estimate(300);
    assert!((3.9..4.1).contains(&after.as_secs_f64()), "4 chunks in 3 s and a token: {after:?}");
    assert!(before > after, "the load counts only before the first answer");
    assert_eq!(hailo.capacity().prefill_tokens_max, 10 * 96, "floor(8 s / 0.75 s) chunks");
}
