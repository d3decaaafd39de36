use serde_json::{Value, json};

use super::*;
use crate::net::peer::{Peer, Step, answer as reply, chunk, end, head, nowhere};
use crate::provider::backend::{Backend, ChatDelta, Done, DoneReason, Role, ToolSpec};
use crate::provider::rig::{LATE, SOON, chat, http, keys, message, request};

const TAGS: &str = r#"{"models":[
    {"name":"qwen2:1.5b","model":"qwen2:1.5b","details":{"format":"hef"}},
    {"name":"qwen2.5:1.5b","details":{"format":"hef"}}
]}"#;
const DONE: &str = "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\
                    \"done_reason\":\"stop\",\"eval_count\":2}\r\n";

fn backend(url: &str) -> Hailo {
    let timeouts = HailoTimeouts {
        head_loaded: SOON,
        head_cold: LATE,
        first_token: LATE,
        between_tokens: LATE,
        ..HailoTimeouts::default()
    };
    Hailo::new(http(), HailoConfig { url: url.into(), timeouts, ..HailoConfig::default() })
}

fn tags() -> Vec<Step> {
    reply("200 OK", "application/json", TAGS)
}

fn token(text: &str) -> Step {
    let line = json!({"message": {"role": "assistant", "content": text}, "done": false});
    chunk(&format!("{line}\r\n"))
}

fn begun() -> Step {
    head("application/x-ndjson")
}

fn page(cause: &str) -> Vec<Step> {
    let body = format!(
        "server=oatpp/1.4.0\ncode=500\ndescription=Internal Server Error\nstacktrace:\n  \
         - {cause}\n"
    );
    reply("500 Internal Server Error", "text/plain", &body)
}

fn deltas(texts: &[&str]) -> Vec<ChatDelta> {
    let texts = texts.iter().map(|text| ChatDelta::Text((*text).into()));
    std::iter::once(ChatDelta::Head).chain(texts).collect()
}

#[tokio::test]
async fn an_answer_streams_and_teaches() {
    let script = vec![begun(), token("Hel"), token("lo 🦞"), chunk(DONE), end()];
    let mut peer = Peer::play(vec![tags(), script]).await;
    let hailo = backend(&peer.url);
    assert!(!hailo.server.learned.is_loaded(Instant::now()));
    let (got, fault) = chat(&hailo, request()).await;
    let done = Done { reason: DoneReason::Stop, tokens: Some(2), prompt_tokens: None };
    let mut want = deltas(&["Hel", "lo 🦞"]);
    want.push(ChatDelta::Done(done));
    assert_eq!((got, fault), (want, None));
    assert!(hailo.server.learned.is_loaded(Instant::now()));
    assert!(peer.seen().await.head.starts_with("GET /api/tags "));
    assert!(peer.seen().await.head.starts_with("POST /api/chat "));
}

#[tokio::test]
async fn only_allowed_fields_are_sent_whatever_is_asked() {
    let mut peer = Peer::play(vec![tags(), vec![begun(), token("a"), chunk(DONE), end()]]).await;
    let mut full = request();
    full.messages = vec![
        message(Role::System, "s\u{0}\u{85}"),
        message(Role::User, "a\r\nb\u{1b}[0m"),
        message(Role::Assistant, "c"),
        message(Role::User, "d"),
    ];
    full.sampling = Sampling {
        temperature: Some(0.7),
        top_p: Some(0.9),
        top_k: Some(40),
        seed: Some(u32::MAX),
    };
    full.schema = Some(json!({"type": "object"}));
    let tool = ToolSpec { name: "t".into(), description: "d".into(), parameters: json!({}) };
    full.tools = vec![tool];
    assert_eq!(chat(&backend(&peer.url), full).await.1, None);
    peer.seen().await;
    let text = peer.seen().await.body;
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(keys(&body), ["keep_alive", "messages", "model", "options", "stream"]);
    assert_eq!(keys(&body["options"]), ["num_predict", "seed", "temperature", "top_k", "top_p"]);
    assert_eq!(body["model"], "qwen2.5:1.5b", "the server's name for the configured model");
    assert_eq!(body["stream"], true);
    assert_eq!(body["keep_alive"], -1);
    assert_eq!(body["options"]["num_predict"], 32);
    assert_eq!(body["options"]["seed"], i32::MAX);
    assert!(text.contains("\"temperature\":0.7"), "{text}");
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "s"}));
    assert_eq!(body["messages"][1], json!({"role": "user", "content": "a\nb[0m"}));
}

#[test]
fn options_that_break_the_server_are_left_out() {
    let options = |sampling| serde_json::to_value(Options::new(0, sampling)).unwrap();
    let bad = [(f32::NAN, 0.0), (f32::INFINITY, 2.0), (-1.0, f32::NAN)];
    for (temperature, top_p) in bad {
        let sampling = Sampling {
            temperature: Some(temperature),
            top_p: Some(top_p),
            top_k: Some(0),
            seed: None,
        };
        assert_eq!(options(sampling), json!({"num_predict": 1}));
    }
    let greedy = Sampling { temperature: Some(0.0), ..Sampling::default() };
    assert_eq!(options(greedy)["temperature"], 0.0);
}

#[tokio::test]
async fn prompts_no_server_may_see_are_refused_before_sending() {
    let peer = Peer::play(vec![]).await;
    let hailo = backend(&peer.url);
    let cases = [
        ChatRequest { messages: vec![], ..request() },
        ChatRequest { messages: vec![message(Role::User, "no system")], ..request() },
        ChatRequest { num_predict: 0, ..request() },
        ChatRequest { prompt_tokens: 2048, num_predict: 1, ..request() },
    ];
    for case in cases {
        let fault = chat(&hailo, case).await.1.unwrap();
        assert_eq!(fault.class, Class::OurBug, "{fault}");
    }
}

#[tokio::test]
async fn each_fault_before_the_head_has_its_class() {
    let json = |status, body: &str| reply(status, "application/json", body);
    let table: Vec<(Vec<Step>, Class, Phase)> = vec![
        (vec![], Class::Crashed, Phase::Head),
        (vec![Step::Reset], Class::Crashed, Phase::Head),
        (vec![Step::Send(b"nonsense\r\n\r\n".to_vec())], Class::ServerError, Phase::Head),
        (page("Failed to create VDevice"), Class::DeviceBusy, Phase::Head),
        (page("Failed to create LLM"), Class::DeviceFault, Phase::Head),
        (page("LLM not loaded"), Class::Poisoned, Phase::Head),
        (page("read failed!"), Class::PrefillTimeout, Phase::Head),
        (page("No suitable mapper found to deserialize"), Class::OurBug, Phase::Head),
        (
            json("404 Not Found", r#"{"error":"model 'x' not found"}"#),
            Class::ModelMissing,
            Phase::Head,
        ),
        (
            json("200 OK", r#"{"error":"model 'x' not found"}"#),
            Class::ModelMissing,
            Phase::FirstToken,
        ),
        (
            json("400 Bad Request", r#"{"error":"\"m\" does not support tools"}"#),
            Class::Poisoned,
            Phase::Head,
        ),
        (json("503 Service Unavailable", "{}"), Class::Busy, Phase::Head),
    ];
    for (script, class, phase) in table {
        let peer = Peer::play(vec![tags(), script.clone()]).await;
        let hailo = backend(&peer.url);
        let fault = chat(&hailo, request()).await.1.unwrap();
        assert_eq!((fault.class, fault.phase), (class, phase), "{script:?}");
        let forgotten = hailo.server.resolved.get().is_none();
        assert_eq!(forgotten, class == Class::ModelMissing, "the name is looked up again");
        assert!(!hailo.server.learned.is_loaded(Instant::now()));
    }
}

#[tokio::test]
async fn each_fault_after_the_head_has_its_class_and_keeps_the_text() {
    let error = || chunk("{\"error\":\"unexpected\"}\n");
    let table: Vec<(Vec<Step>, &[&str], Class, Phase)> = vec![
        (vec![], &[], Class::Truncated, Phase::FirstToken),
        (vec![Step::Reset], &[], Class::Truncated, Phase::FirstToken),
        (vec![end()], &[], Class::Truncated, Phase::FirstToken),
        (vec![error(), end()], &[], Class::ServerError, Phase::FirstToken),
        (vec![token("a")], &["a"], Class::Truncated, Phase::Stream),
        (vec![token("a"), Step::Reset], &["a"], Class::Truncated, Phase::Stream),
        (vec![token("a"), token("b"), end()], &["a", "b"], Class::Truncated, Phase::Stream),
        (vec![token("a"), error(), end()], &["a"], Class::ServerError, Phase::Stream),
        (vec![token("a"), chunk("<html>\n")], &["a"], Class::ServerError, Phase::Stream),
        (vec![token(""), chunk(DONE), end()], &[], Class::EmptyAnswer, Phase::Stream),
        (vec![token("\n"), chunk(DONE), end()], &["\n"], Class::EmptyAnswer, Phase::Stream),
    ];
    for (rest, texts, class, phase) in table {
        let mut script = vec![begun()];
        script.extend(rest);
        let peer = Peer::play(vec![tags(), script.clone()]).await;
        let (got, fault) = chat(&backend(&peer.url), request()).await;
        let fault = fault.unwrap();
        assert_eq!((fault.class, fault.phase), (class, phase), "{script:?} {fault}");
        assert_eq!(got, deltas(texts), "{script:?}");
    }
}

#[tokio::test]
async fn silence_is_cut_by_the_limit_of_its_phase() {
    let quick = |url: &str| {
        let mut hailo = backend(url);
        hailo.config.timeouts.head_cold = SOON;
        hailo.config.timeouts.first_token = SOON;
        hailo.config.timeouts.between_tokens = SOON;
        hailo
    };
    let table: Vec<(Vec<Step>, Class, Phase)> = vec![
        (vec![], Class::Wedged, Phase::Head),
        (vec![begun()], Class::Wedged, Phase::FirstToken),
        (vec![begun(), token("a")], Class::Truncated, Phase::Stream),
        (vec![begun(), token("a"), chunk("{\"mess")], Class::Truncated, Phase::Stream),
    ];
    for (mut script, class, phase) in table {
        script.push(Step::AwaitClose);
        let mut peer = Peer::play(vec![tags(), script]).await;
        let fault = chat(&quick(&peer.url), request()).await.1.unwrap();
        assert_eq!((fault.class, fault.phase), (class, phase), "{fault}");
        peer.closed().await;
    }
    // The whole answer has a limit too, although each token comes in time.
    let mut script = vec![begun()];
    for _ in 0..200 {
        script.extend([token("a"), Step::Pause(Duration::from_millis(5))]);
    }
    let peer = Peer::play(vec![tags(), script]).await;
    let mut hailo = backend(&peer.url);
    hailo.config.timeouts.whole_extra = Duration::ZERO;
    let short = ChatRequest { num_predict: 1, ..request() };
    let fault = chat(&hailo, short).await.1.unwrap();
    assert_eq!((fault.class, fault.phase), (Class::Truncated, Phase::Stream), "{fault}");
}

#[tokio::test]
async fn a_close_at_the_servers_own_limit_is_a_prefill_timeout_and_shrinks_the_prompt() {
    let late = || vec![begun(), Step::Pause(Duration::from_millis(300))];
    let peer = Peer::play(vec![tags(), late(), late(), late(), late()]).await;
    let mut hailo = backend(&peer.url);
    hailo.config.timeouts.gives_up = Duration::from_millis(300);
    let long = ChatRequest { prompt_tokens: 1000, ..request() };
    let fault = chat(&hailo, long).await.1.unwrap();
    assert_eq!((fault.class, fault.phase), (Class::PrefillTimeout, Phase::FirstToken));
    assert_eq!(hailo.capacity().prefill_tokens_max, 750, "three quarters of what failed");
    for class in [Class::PrefillTimeout, Class::PrefillTimeout, Class::DeviceFault] {
        let short = ChatRequest { prompt_tokens: 120, ..request() };
        assert_eq!(chat(&hailo, short).await.1.unwrap().class, class);
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_down() {
    let hailo = backend(&nowhere().await);
    for fault in [
        chat(&hailo, request()).await.1.unwrap(),
        hailo.presence().await.unwrap_err(),
        hailo.load().await.unwrap_err(),
    ] {
        assert_eq!((fault.class, fault.phase), (Class::Down, Phase::Connect));
    }
}

#[tokio::test]
async fn presence_tells_who_answers_and_what_it_offers() {
    let root = |text: &str| reply("200 OK", "text/plain", text);
    let peer = Peer::play(vec![root("hailo-ollama is running"), tags()]).await;
    let presence = backend(&peer.url).presence().await.unwrap();
    assert_eq!(presence.server, "hailo-ollama");
    assert_eq!(presence.model.as_deref(), Some("qwen2.5:1.5b"));
    assert_eq!(presence.offered, ["qwen2:1.5b", "qwen2.5:1.5b"]);

    // An unknown greeting, but only hailo-ollama has such models.
    let peer = Peer::play(vec![root("something new"), tags()]).await;
    assert!(backend(&peer.url).presence().await.is_ok());

    let other = r#"{"models":[{"name":"m","details":{"format":"gguf"}}]}"#;
    let others = reply("200 OK", "application/json", other);
    let peer = Peer::play(vec![root("Ollama is running"), others]).await;
    let fault = backend(&peer.url).presence().await.unwrap_err();
    assert!(fault.detail.contains("answers as Ollama, not as hailo-ollama"), "{fault}");

    let page = reply("404 Not Found", "text/html", "<html>");
    let peer = Peer::play(vec![root("nginx"), page]).await;
    let fault = backend(&peer.url).presence().await.unwrap_err();
    assert!(fault.detail.contains("answers as nginx"), "{fault}");
}

#[tokio::test]
async fn a_missing_model_is_told_with_what_is_offered_and_looked_up_again() {
    let empty = reply("200 OK", "application/json", r#"{"models":[]}"#);
    let root = reply("200 OK", "text/plain", "hailo-ollama is running");
    let answer = vec![begun(), token("a"), chunk(DONE), end()];
    let other = r#"{"models":[{"name":"qwen2:1.5b"}]}"#;
    let other = reply("200 OK", "application/json", other);
    let peer = Peer::play(vec![empty, root, other, tags(), answer]).await;
    let hailo = backend(&peer.url);
    let fault = chat(&hailo, request()).await.1.unwrap();
    assert_eq!(fault.class, Class::ModelMissing);
    assert!(fault.detail.contains("no model at all"), "{fault}");
    assert_eq!(hailo.presence().await.unwrap().model, None);
    assert_eq!(chat(&hailo, request()).await.1, None);
}

#[tokio::test]
async fn load_and_unload_send_two_fields_and_no_messages() {
    let ok = || reply("200 OK", "application/json", r#"{"done":true,"done_reason":"load"}"#);
    let mut peer = Peer::play(vec![tags(), ok(), ok(), page("Failed to create VDevice")]).await;
    let hailo = backend(&peer.url);
    hailo.load().await.unwrap();
    assert!(hailo.server.learned.is_loaded(Instant::now()));
    hailo.unload().await.unwrap();
    assert!(!hailo.server.learned.is_loaded(Instant::now()));
    assert_eq!(hailo.load().await.unwrap_err().class, Class::DeviceBusy);
    peer.seen().await;
    for keep_alive in [-1, 0] {
        let body: Value = serde_json::from_str(&peer.seen().await.body).unwrap();
        assert_eq!(body, json!({"model": "qwen2.5:1.5b", "keep_alive": keep_alive}));
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection_in_every_phase() {
    use futures_util::StreamExt;
    for sent in [vec![], vec![begun()], vec![begun(), token("a")]] {
        let items = sent.len();
        let mut script = sent;
        script.push(Step::AwaitClose);
        let mut peer = Peer::play(vec![tags(), script]).await;
        let hailo = backend(&peer.url);
        let mut stream = hailo.chat(request()).await.unwrap();
        peer.seen().await;
        for _ in 0..items {
            stream.next().await.unwrap().unwrap();
        }
        tokio::select! {
            biased;
            _ = stream.next() => panic!("nothing more was sent"),
            () = async { if items == 0 { peer.seen().await; } } => {}
        }
        drop(stream);
        peer.closed().await;
    }
}

#[tokio::test]
async fn a_ghost_costs_load_and_prefill_only_before_the_first_token() {
    let hailo = backend("http://127.0.0.1:1");
    let cold = hailo.ghost(true, 300);
    hailo.server.learned.loaded(Instant::now(), -1);
    let warm = hailo.ghost(true, 300);
    let streaming = hailo.ghost(false, 300);
    assert!(cold > warm + Duration::from_secs(8), "{cold:?} {warm:?}");
    assert!(warm > streaming + Duration::from_secs(1), "{warm:?} {streaming:?}");
    assert_eq!(streaming, GHOST_MIN);
}

#[test]
fn a_missing_device_is_looked_for_on_this_machine_only() {
    let root = tempfile::tempdir().unwrap();
    let at = |url: &str| {
        let config = HailoConfig {
            url: url.into(),
            machine: root.path().to_owned(),
            ..HailoConfig::default()
        };
        let hailo = Hailo::new(http(), config);
        (hailo.hint(), hailo.service().map(str::to_owned))
    };
    let service = Some("hailo-ollama".to_owned());
    for here in ["http://127.0.0.1:8000", "http://[::1]:8000/", "http://localhost"] {
        let (hint, found) = at(here);
        assert!(hint.is_some_and(|hint| hint.contains("/dev/h1x-*")), "{here}");
        assert_eq!(found, service, "{here}");
    }
    for there in ["http://192.168.1.7:8000", "http://pi.local:8000/127.0.0.1"] {
        assert_eq!(at(there), (None, None), "{there}");
    }
    std::fs::create_dir(root.path().join("dev")).unwrap();
    std::fs::File::create(root.path().join("dev/h1x-0")).unwrap();
    assert_eq!(at("http://127.0.0.1:8000"), (None, service));
}
