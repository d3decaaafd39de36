use serde_json::{Value, json};

use super::*;
use crate::net::peer::{Peer, Step, answer as reply, chunk, end, head, nowhere};
use crate::provider::backend::{Backend, ChatDelta, Done, DoneReason, Sampling, ToolSpec};
use crate::provider::fault::{Class, Phase};
use crate::provider::rig::{SOON, chat, http, keys, request};

fn config(url: &str) -> OpenAiConfig {
    OpenAiConfig {
        url: url.into(),
        model: "m".into(),
        api_key: Some("sk-secret".into()),
        ..OpenAiConfig::default()
    }
}

fn backend(url: &str) -> OpenAi {
    OpenAi::new(http(), config(url))
}

fn begun() -> Step {
    head("text/event-stream; charset=utf-8")
}

fn event(data: &Value) -> Step {
    chunk(&format!("data: {data}\n\n"))
}

fn token(text: &str) -> Step {
    event(&json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

fn finish(reason: &str) -> Step {
    event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

fn usage() -> Step {
    event(&json!({"choices": [], "usage": {"prompt_tokens": 26, "completion_tokens": 2}}))
}

fn done() -> Step {
    chunk("data: [DONE]\n\n")
}

fn whole() -> Vec<Step> {
    vec![begun(), token("Hi"), finish("stop"), usage(), done(), end()]
}

#[tokio::test]
async fn an_answer_streams_to_the_right_path_with_the_key() {
    for suffix in ["", "/", "/v1", "/v1/"] {
        let mut peer = Peer::play(vec![whole()]).await;
        let (got, fault) = chat(&backend(&format!("{}{suffix}", peer.url)), request()).await;
        let done = Done { reason: DoneReason::Stop, tokens: Some(2), prompt_tokens: Some(26) };
        let want = [ChatDelta::Head, ChatDelta::Text("Hi".into()), ChatDelta::Done(done)];
        assert_eq!((got.as_slice(), fault), (want.as_slice(), None));
        let head = peer.seen().await.head;
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1"), "{suffix:?}: {head}");
        assert!(head.contains("Bearer sk-secret"), "{head}");
    }
}

#[tokio::test]
async fn the_path_that_answers_is_kept() {
    let not_here = reply("404 Not Found", "text/plain", "");
    let models = reply("200 OK", "application/json", r#"{"data":[{"id":"m"}]}"#);
    let mut peer = Peer::play(vec![not_here, models, whole()]).await;
    let openai = backend(&format!("{}/openai", peer.url));
    assert_eq!(openai.presence().await.unwrap().model.as_deref(), Some("m"));
    assert_eq!(chat(&openai, request()).await.1, None);
    for path in
        ["GET /openai/models ", "GET /openai/v1/models ", "POST /openai/v1/chat/completions "]
    {
        let head = peer.seen().await.head;
        assert!(head.starts_with(path), "{head}");
    }
}

#[tokio::test]
async fn only_allowed_fields_are_sent() {
    let mut peer = Peer::play(vec![whole(), whole()]).await;
    let openai = backend(&peer.url);
    assert_eq!(chat(&openai, request()).await.1, None);
    let tool = ToolSpec { name: "t".into(), description: "d".into(), parameters: json!({}) };
    let full = ChatRequest {
        sampling: Sampling {
            temperature: Some(0.5),
            top_p: Some(0.9),
            top_k: Some(40),
            seed: Some(7),
        },
        schema: Some(json!({"type": "object"})),
        tools: vec![tool],
        ..request()
    };
    assert_eq!(chat(&openai, full).await.1, None);
    let plain: Value = serde_json::from_str(&peer.seen().await.body).unwrap();
    let full: Value = serde_json::from_str(&peer.seen().await.body).unwrap();
    assert_eq!(keys(&plain), ["max_tokens", "messages", "model", "stream", "stream_options"]);
    assert_eq!(plain["max_tokens"], 32);
    assert_eq!(plain["stream"], true);
    assert_eq!(plain["stream_options"], json!({"include_usage": true}));
    assert_eq!(
        keys(&full),
        [
            "max_tokens",
            "messages",
            "model",
            "response_format",
            "seed",
            "stream",
            "stream_options",
            "temperature",
            "tools",
            "top_p"
        ]
    );
    assert_eq!(full["response_format"]["json_schema"]["schema"], json!({"type": "object"}));
    assert_eq!(full["tools"][0]["type"], "function");
}

#[tokio::test]
async fn each_fault_has_its_class() {
    let json = |status, body: &str| reply(status, "application/json", body);
    let error = || event(&json!({"error": {"message": "out of memory", "code": 500}}));
    let table: Vec<(Vec<Step>, Class, Phase)> = vec![
        (vec![], Class::Crashed, Phase::Head),
        (vec![Step::Reset], Class::Crashed, Phase::Head),
        (
            json("401 Unauthorized", r#"{"error":{"message":"no"}}"#),
            Class::Unauthorised,
            Phase::Head,
        ),
        (json("403 Forbidden", "{}"), Class::Unauthorised, Phase::Head),
        (json("429 Too Many Requests", "{}"), Class::Busy, Phase::Head),
        (json("503 Service Unavailable", "{}"), Class::Busy, Phase::Head),
        (
            json("404 Not Found", r#"{"error":{"message":"The model does not exist"}}"#),
            Class::ModelMissing,
            Phase::Head,
        ),
        (json("400 Bad Request", r#"{"error":"bad"}"#), Class::OurBug, Phase::Head),
        (json("500 Oops", r#"{"error":"bad"}"#), Class::ServerError, Phase::Head),
        // An error, or something else than events, under a success.
        (json("200 OK", r#"{"error":{"message":"bad"}}"#), Class::ServerError, Phase::Head),
        (reply("200 OK", "text/html", "<html>"), Class::ServerError, Phase::Head),
        (vec![begun()], Class::Truncated, Phase::FirstToken),
        (vec![begun(), error(), end()], Class::ServerError, Phase::FirstToken),
        (vec![begun(), token("a"), Step::Reset], Class::Truncated, Phase::Stream),
        (vec![begun(), token("a"), end()], Class::Truncated, Phase::Stream),
        (vec![begun(), token("a"), error(), end()], Class::ServerError, Phase::Stream),
        (vec![begun(), finish("stop"), done(), end()], Class::EmptyAnswer, Phase::Stream),
    ];
    for (script, class, phase) in table {
        let peer = Peer::play(vec![script.clone()]).await;
        let fault = chat(&backend(&peer.url), request()).await.1.unwrap();
        assert_eq!((fault.class, fault.phase), (class, phase), "{script:?} {fault}");
    }
    let fault = chat(&backend(&nowhere().await), request()).await.1.unwrap();
    assert_eq!((fault.class, fault.phase), (Class::Down, Phase::Connect));
}

#[tokio::test]
async fn a_busy_servers_wish_is_passed_on() {
    let text = "HTTP/1.1 429 Slow Down\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n";
    let peer = Peer::play(vec![vec![Step::Send(text.into())]]).await;
    let fault = chat(&backend(&peer.url), request()).await.1.unwrap();
    assert_eq!((fault.class, fault.retry_after), (Class::Busy, Some(Duration::from_secs(9))));
}

#[tokio::test]
async fn silence_is_cut_by_the_limit_of_its_phase() {
    let table: Vec<(Vec<Step>, Class, Phase)> = vec![
        (vec![], Class::Wedged, Phase::Head),
        // Comments keep a connection open and are no sign of a token.
        (vec![begun(), chunk(": working\n\n")], Class::Wedged, Phase::FirstToken),
        (vec![begun(), token("a")], Class::Truncated, Phase::Stream),
    ];
    for (mut script, class, phase) in table {
        script.push(Step::AwaitClose);
        let mut peer = Peer::play(vec![script]).await;
        let timeouts = OpenAiTimeouts {
            head: SOON,
            first_token: SOON,
            between_tokens: SOON,
            prefill_tokens_per_s: 1000,
            ..OpenAiTimeouts::default()
        };
        let openai = OpenAi::new(http(), OpenAiConfig { timeouts, ..config(&peer.url) });
        let fault = chat(&openai, request()).await.1.unwrap();
        assert_eq!((fault.class, fault.phase), (class, phase), "{fault}");
        peer.closed().await;
    }
}

#[tokio::test]
async fn an_answer_with_its_reason_is_complete_however_the_connection_ends() {
    let said = || vec![begun(), token("Hi"), finish("length")];
    for rest in [vec![end()], vec![], vec![Step::Reset], vec![Step::AwaitClose]] {
        let mut script = said();
        script.extend(rest);
        let peer = Peer::play(vec![script.clone()]).await;
        let (got, fault) = chat(&backend(&peer.url), request()).await;
        assert_eq!(fault, None, "{script:?}");
        let done = Done { reason: DoneReason::Length, tokens: None, prompt_tokens: None };
        assert_eq!(got.last(), Some(&ChatDelta::Done(done)));
    }
}

#[tokio::test]
async fn presence_asks_for_the_models() {
    let table = [
        (r#"{"data":[{"id":"m","owned_by":"vllm"},{"id":"n"}]}"#, Some("m")),
        (r#"{"data":[{"id":"/models/file.gguf","owned_by":"llamacpp"}]}"#, Some("m")),
        (r#"{"data":[{"id":"n"}]}"#, None),
        (r#"{"object":"list","data":[]}"#, None),
    ];
    for (body, model) in table {
        let models = || reply("200 OK", "application/json", body);
        let peer = Peer::play(vec![models(), models()]).await;
        let openai = backend(&peer.url);
        assert_eq!(openai.presence().await.unwrap().model.as_deref(), model, "{body}");
        let loaded = openai.load().await.map_err(|fault| fault.class);
        assert_eq!(loaded, if model.is_some() { Ok(()) } else { Err(Class::ModelMissing) });
    }
    let page = reply("200 OK", "text/html", "<!doctype html>");
    let peer = Peer::play(vec![page]).await;
    let fault = backend(&peer.url).presence().await.unwrap_err();
    assert!(fault.detail.contains("answers as a web page"), "{fault}");
    let refused = reply("401 Unauthorized", "application/json", "{}");
    let peer = Peer::play(vec![refused]).await;
    assert_eq!(backend(&peer.url).presence().await.unwrap_err().class, Class::Unauthorised);
}

#[test]
fn neither_configuration_nor_backend_prints_the_key() {
    let config = config("http://me:secret@127.0.0.1:1");
    let printed = format!("{config:?} {:?}", OpenAi::new(http(), config.clone()));
    assert!(!printed.contains("secret"), "{printed}");
}
