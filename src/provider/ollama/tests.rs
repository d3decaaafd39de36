use serde_json::{Value, json};

use super::*;
use crate::event::{Event, Events};
use crate::limits::ANSWER_BYTES_MAX;
use crate::net::peer::{Peer, Step, answer as reply, chunk, end, head, nowhere};
use crate::provider::backend::{Backend, ChatDelta, Done, DoneReason};
use crate::provider::breaker::Policy;
use crate::provider::engine::{Engine, SlotName};
use crate::provider::fault::{Class, Phase};
use crate::provider::lease::Priority;
use crate::provider::prompt::{Fitted, NoRoom, Prompt};
use crate::provider::rig::{LATE, chat, http, keys, request};
use crate::provider::{Job, Provider};

const TAGS: &str = r#"{"models":[
    {"name":"qwen3:1.7b","digest":"x"},
    {"name":"tiny:latest","details":{"format":"gguf"}}
]}"#;
const DONE: &str = "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\
                    \"done_reason\":\"stop\",\"prompt_eval_count\":26,\"eval_count\":2}\n";

fn config(url: &str) -> OllamaConfig {
    let timeouts =
        OllamaTimeouts { first_token: LATE, between_tokens: LATE, ..OllamaTimeouts::default() };
    OllamaConfig {
        url: url.into(),
        model: "qwen3:1.7b".into(),
        timeouts,
        ..OllamaConfig::default()
    }
}

fn backend(url: &str) -> Ollama {
    Ollama::new(http(), config(url))
}

fn json_reply(text: &str) -> Vec<Step> {
    reply("200 OK", "application/json", text)
}

fn tags() -> Vec<Step> {
    json_reply(TAGS)
}

fn show(capabilities: &str) -> Vec<Step> {
    json_reply(&format!("{{\"model_info\":{{}},\"capabilities\":{capabilities}}}"))
}

fn token(text: &str) -> Step {
    chunk(&format!("{}\n", json!({"message": {"content": text}, "done": false})))
}

fn begun() -> Step {
    head("application/x-ndjson")
}

fn whole() -> Vec<Step> {
    vec![begun(), token("Hi"), chunk(DONE), end()]
}

#[tokio::test]
async fn an_answer_streams_with_the_servers_own_counts() {
    let peer = Peer::play(vec![tags(), show("[]"), whole()]).await;
    let (got, fault) = chat(&backend(&peer.url), request()).await;
    let done = Done { reason: DoneReason::Stop, tokens: Some(2), prompt_tokens: Some(26) };
    let want = [ChatDelta::Head, ChatDelta::Text("Hi".into()), ChatDelta::Done(done)];
    assert_eq!((got.as_slice(), fault), (want.as_slice(), None));
}

#[tokio::test]
async fn every_request_carries_the_constant_options_and_no_more_than_is_allowed() {
    let scripts = vec![
        tags(),
        show(r#"["completion","thinking"]"#),
        whole(),
        whole(),
        json_reply(r#"{"done":true}"#),
    ];
    let mut peer = Peer::play(scripts).await;
    let ollama = Ollama::new(
        http(),
        OllamaConfig { threads: Some(4), repeat_penalty: Some(1.1), ..config(&peer.url) },
    );
    assert_eq!(chat(&ollama, request()).await.1, None);
    let tool = ToolSpec {
        name: "light".into(),
        description: "Switches the light.".into(),
        parameters: json!({"type": "object"}),
    };
    let full = ChatRequest {
        sampling: Sampling {
            temperature: Some(0.7),
            top_p: Some(0.9),
            top_k: Some(0),
            seed: Some(7),
        },
        schema: Some(json!({"type": "object"})),
        tools: vec![tool.clone(), tool],
        ..request()
    };
    assert_eq!(chat(&ollama, full).await.1, None);
    ollama.load().await.unwrap();

    assert!(peer.seen().await.head.starts_with("GET /api/tags"));
    assert_eq!(peer.seen().await.body, r#"{"model":"qwen3:1.7b"}"#);
    let mut next = Vec::new();
    for _ in 0..3 {
        next.push(serde_json::from_str::<Value>(&peer.seen().await.body).unwrap());
    }
    let [plain, full, load] = next.as_slice() else { panic!("three requests") };
    let always =
        ["keep_alive", "messages", "model", "options", "shift", "stream", "think", "truncate"];
    assert_eq!(keys(plain), always);
    assert_eq!(
        plain["options"],
        json!({"num_ctx": 4096, "num_thread": 4, "repeat_penalty": 1.1, "num_predict": 32})
    );
    assert_eq!((&plain["truncate"], &plain["shift"]), (&json!(false), &json!(false)));
    assert_eq!((&plain["stream"], &plain["think"]), (&json!(true), &json!(false)));
    assert_eq!(plain["keep_alive"], 600);
    let mut all = [&always[..], &["format", "tools"]].concat();
    all.sort_unstable();
    assert_eq!(keys(full), all);
    assert_eq!(
        keys(&full["options"]),
        ["num_ctx", "num_predict", "num_thread", "repeat_penalty", "seed", "temperature", "top_p"]
    );
    assert_eq!(full["tools"].as_array().unwrap().len(), 2, "as many as were given");
    assert_eq!(full["tools"][0]["function"]["name"], "light");
    assert_eq!(full["format"], json!({"type": "object"}));
    assert_eq!(keys(load), ["keep_alive", "messages", "model", "options"]);
    assert_eq!(load["messages"], json!([]));
    assert_eq!(
        load["options"],
        json!({"num_ctx": 4096, "num_thread": 4, "repeat_penalty": 1.1, "num_predict": 1})
    );
}

#[tokio::test]
async fn think_is_left_out_where_the_model_cannot_or_the_server_does_not_tell() {
    for shown in [show(r#"["completion"]"#), reply("500 Oops", "text/plain", ""), vec![Step::Reset]]
    {
        let mut peer = Peer::play(vec![tags(), shown, whole()]).await;
        assert_eq!(chat(&backend(&peer.url), request()).await.1, None);
        peer.seen().await;
        peer.seen().await;
        let body: Value = serde_json::from_str(&peer.seen().await.body).unwrap();
        assert_eq!(body.get("think"), None);
    }
}

#[tokio::test]
async fn each_fault_has_its_class() {
    let json = |status, body: &str| reply(status, "application/json", body);
    let error = || chunk("{\"error\":\"runner died\"}\n");
    let unavailable =
        r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#;
    let table: Vec<(Vec<Step>, Class, Phase)> = vec![
        (vec![], Class::Crashed, Phase::Head),
        (vec![Step::Reset], Class::Crashed, Phase::Head),
        (json("503 Service Unavailable", unavailable), Class::Busy, Phase::Head),
        (
            json("404 Not Found", r#"{"error":"model 'x' not found"}"#),
            Class::ModelMissing,
            Phase::Head,
        ),
        (json("400 Bad Request", r#"{"error":"prompt too long"}"#), Class::OurBug, Phase::Head),
        (
            json("500 Oops", r#"{"error":"llama runner process has terminated"}"#),
            Class::ServerError,
            Phase::Head,
        ),
        (vec![begun()], Class::Truncated, Phase::FirstToken),
        (vec![begun(), end()], Class::Truncated, Phase::FirstToken),
        (vec![begun(), error(), end()], Class::ServerError, Phase::FirstToken),
        (vec![begun(), token("a"), Step::Reset], Class::Truncated, Phase::Stream),
        // Ollama ends a repeating answer like this, without `done` and without an error.
        (vec![begun(), token("a"), end()], Class::Truncated, Phase::Stream),
        (vec![begun(), token("a"), error(), end()], Class::ServerError, Phase::Stream),
        (vec![begun(), chunk(DONE), end()], Class::EmptyAnswer, Phase::Stream),
        (
            vec![
                begun(),
                chunk("{\"message\":{\"thinking\":\"hm\"}}\n"),
                chunk("{\"done\":true,\"done_reason\":\"length\"}\n"),
                end(),
            ],
            Class::ThinkOverrun,
            Phase::Stream,
        ),
    ];
    for (script, class, phase) in table {
        let peer = Peer::play(vec![tags(), show("[]"), script.clone()]).await;
        let fault = chat(&backend(&peer.url), request()).await.1.unwrap();
        assert_eq!((fault.class, fault.phase), (class, phase), "{script:?} {fault}");
    }
    let fault = chat(&backend(&nowhere().await), request()).await.1.unwrap();
    assert_eq!((fault.class, fault.phase), (Class::Down, Phase::Connect));
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let mut script = vec![begun()];
    script.extend(std::iter::repeat_n(token(&"x".repeat(4096)), ANSWER_BYTES_MAX / 4096 + 2));
    script.push(Step::AwaitClose);
    let mut peer = Peer::play(vec![tags(), show("[]"), script]).await;
    let fault = chat(&backend(&peer.url), request()).await.1.unwrap();
    assert_eq!(fault.class, Class::BadOutput);
    peer.closed().await;
}

#[tokio::test]
async fn presence_tells_the_version_and_notices_the_wrong_server() {
    let root = |text: &str| reply("200 OK", "text/plain", text);
    let version = json_reply(r#"{"version":"0.33.0"}"#);
    let peer = Peer::play(vec![root("Ollama is running"), tags(), version]).await;
    let presence = backend(&peer.url).presence().await.unwrap();
    assert_eq!(presence.server, "Ollama 0.33.0");
    assert_eq!(presence.model.as_deref(), Some("qwen3:1.7b"));
    assert_eq!(presence.offered, ["qwen3:1.7b", "tiny:latest"]);

    let untagged = OllamaConfig { model: "tiny".into(), ..config(&peer.url) };
    let offered = presence.offered;
    let ollama = Ollama::new(http(), untagged);
    let found = ollama.server.find(&ollama.accepted(&ollama.latest()), &offered);
    assert_eq!(found.as_deref(), Some("tiny:latest"));

    let hef = json_reply(r#"{"models":[{"name":"m","details":{"format":"hef"}}]}"#);
    for scripts in [vec![root("hailo-ollama is running")], vec![root("proxy"), hef]] {
        let peer = Peer::play(scripts).await;
        let fault = backend(&peer.url).presence().await.unwrap_err();
        assert!(fault.detail.contains("answers as hailo-ollama, not as Ollama"), "{fault}");
    }
}

#[tokio::test]
async fn unload_sends_an_empty_list_and_no_keep_alive() {
    let mut peer =
        Peer::play(vec![tags(), json_reply(r#"{"done":true,"done_reason":"unload"}"#)]).await;
    backend(&peer.url).unload().await.unwrap();
    peer.seen().await;
    let body: Value = serde_json::from_str(&peer.seen().await.body).unwrap();
    assert_eq!(body["keep_alive"], 0);
    assert_eq!(body["messages"], json!([]));
}

#[tokio::test]
async fn a_load_is_read_whether_it_comes_as_one_object_or_as_a_stream() {
    let line = r#"{"message":{"content":"A"},"done":false}"#;
    let pretty = "{\n \"done\": true\n}";
    let table = [
        (r#"{"done":true,"done_reason":"load"}"#.to_owned(), Ok(())),
        (pretty.to_owned(), Ok(())),
        (format!("{line}\n{{\"done\":true}}\n"), Ok(())),
        (format!("{line}\n{{\"error\":\"model 'x' not found\"}}\n"), Err(Class::ModelMissing)),
        (r#"{"error":"out of memory"}"#.to_owned(), Err(Class::ServerError)),
        ("<html>\n</html>".to_owned(), Err(Class::ServerError)),
        (String::new(), Err(Class::ServerError)),
    ];
    for (body, want) in table {
        let peer = Peer::play(vec![tags(), json_reply(&body)]).await;
        let ollama = backend(&peer.url);
        assert_eq!(ollama.load().await.map_err(|fault| fault.class), want, "{body}");
        assert_eq!(ollama.server.learned.is_loaded(Instant::now()), want.is_ok());
    }
}

#[test]
fn neither_configuration_nor_backend_prints_the_key() {
    let config = OllamaConfig {
        api_key: Some("sk-secret".into()),
        ..config("http://me:secret@127.0.0.1:1")
    };
    let printed = format!("{config:?} {:?}", Ollama::new(http(), config.clone()));
    assert!(!printed.contains("secret"), "{printed}");
}

struct Question;

impl Prompt for Question {
    fn fit(&self, _prompt_tokens_max: u32) -> Result<Fitted, NoRoom> {
        Ok(Fitted { messages: request().messages, clipped: None, voices: Vec::new() })
    }
}

/// The tools of each prompt that a peer saw.
async fn tools_sent(peer: &mut Peer, prompts: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    while counts.len() < prompts {
        let seen = peer.seen().await;
        if seen.head.starts_with("POST /api/chat ") {
            let body: Value = serde_json::from_str(&seen.body).unwrap();
            counts.push(body.get("tools").map_or(0, |tools| tools.as_array().unwrap().len()));
        }
    }
    counts
}

#[tokio::test]
async fn a_model_without_tools_is_asked_without_them_in_the_same_turn_and_from_then_on() {
    let refusals = [
        reply("400 Bad Request", "application/json", r#"{"error":"\"m\" does not support tools"}"#),
        reply("500 Oops", "application/json", r#"{"error":"EOF"}"#),
        vec![begun(), chunk("{\"error\":\"XML syntax error on line 1: unexpected EOF\"}\n"), end()],
    ];
    for refusal in refusals {
        let scripts = vec![tags(), show("[]"), refusal.clone(), whole(), whole()];
        let mut peer = Peer::play(scripts).await;
        let events = Events::default();
        let mut heard = events.listen();
        let policy = Policy::default();
        let backend: Arc<dyn Backend> = Arc::new(backend(&peer.url));
        let engine = Engine::new(SlotName::Primary, backend, policy, LATE, events.clone());
        let provider = Provider::new(vec![engine], events.clone());
        let tool = ToolSpec { name: "t".into(), description: "d".into(), parameters: json!({}) };
        let job = Job {
            priority: Priority::Owner,
            conversation: "main".into(),
            route: None,
            deadline: Instant::now() + LATE,
            answer_tokens: 64,
            answer_tokens_max: None,
            sampling: Sampling::default(),
            schema: None,
            tools: vec![tool],
            events,
        };
        let (out, _shown) = tokio::sync::mpsc::channel(64);
        for _ in 0..2 {
            let answer = provider.chat(&job, &Question, &out).await.unwrap();
            assert_eq!(answer.shown, "Hi", "{refusal:?}");
        }
        assert_eq!(tools_sent(&mut peer, 3).await, [1, 0, 0], "{refusal:?}");
        let told = std::iter::from_fn(|| heard.try_recv().ok())
            .filter(|event| matches!(event, Event::FieldRefused { field: "tools", .. }));
        assert_eq!(told.count(), 1);
        assert_eq!(provider.states()[0].breaker, "closed");
    }
}

#[tokio::test]
async fn thinking_that_is_refused_is_left_out_and_a_complaint_without_cause_is_the_servers() {
    let refusal =
        |what| reply("400 No", "application/json", &format!("{{\"error\":\"\\\"m\\\" {what}\"}}"));
    let no_think = refusal("does not support thinking");
    let no_tools = refusal("does not support tools");
    let scripts = vec![tags(), show(r#"["thinking"]"#), no_think, whole(), no_tools];
    let mut peer = Peer::play(scripts).await;
    let ollama = backend(&peer.url);
    let classes = [Some(Class::Unsupported(Field::Think)), None, Some(Class::ServerError)];
    for class in classes {
        assert_eq!(chat(&ollama, request()).await.1.map(|fault| fault.class), class);
    }
    peer.seen().await;
    peer.seen().await;
    for think in [true, false, false] {
        let body: Value = serde_json::from_str(&peer.seen().await.body).unwrap();
        assert_eq!(body.get("think").is_some(), think);
    }
}

#[tokio::test]
async fn a_version_that_counts_cached_tokens_is_known_by_its_number() {
    for (version, counts) in [
        ("0.12.6", false),
        ("0.29.9", false),
        ("0.30.0-rc1", true),
        ("0.33.0", true),
        ("1.0.0", true),
        ("0", false),
        ("new", false),
    ] {
        let root = reply("200 OK", "text/plain", "Ollama is running");
        let told = json_reply(&format!("{{\"version\":\"{version}\"}}"));
        let peer = Peer::play(vec![root, tags(), told]).await;
        let ollama = backend(&peer.url);
        assert!(!ollama.counts_cached_tokens(), "not asked yet");
        ollama.presence().await.unwrap();
        assert_eq!(ollama.counts_cached_tokens(), counts, "{version}");
    }
}

#[tokio::test]
async fn a_model_that_somebody_else_has_loaded_is_held() {
    for (loaded, held) in [
        (r#"{"models":[{"name":"qwen3:1.7b","size":1}]}"#, true),
        (r#"{"models":[{"name":"other:1b"}]}"#, false),
        (r#"{"models":null}"#, false),
        ("<html>", false),
    ] {
        let mut peer = Peer::play(vec![tags(), json_reply(loaded)]).await;
        let ollama = backend(&peer.url);
        assert!(!ollama.holds_model().await, "its name is not known yet");
        ollama.resolve().await.unwrap();
        assert_eq!(ollama.holds_model().await, held, "{loaded}");
        ollama.server.learned.loaded(Instant::now(), -1);
        assert!(ollama.holds_model().await, "without asking");
        peer.seen().await;
        assert!(peer.seen().await.head.starts_with("GET /api/ps "));
    }
    let far = OllamaConfig { url: "http://10.0.0.9:11434".into(), ..OllamaConfig::default() };
    assert_eq!(Ollama::new(http(), far).memory_to_load(), None, "its memory is not ours");
    let near = Ollama::new(http(), OllamaConfig::default());
    assert_eq!(near.memory_to_load(), Some(PRELOAD_MEMORY_MIN));
}
