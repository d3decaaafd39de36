//! The provider without an agent: tool calls and JSON schemas, as far as each dialect has them,
//! and a conversation whose owner does not mark what broke off.

use std::sync::Arc;

use crayfish::event::Events;
use crayfish::provider::backend::{Backend, Message, Role, Sampling, ToolSpec};
use crayfish::provider::breaker::Policy;
use crayfish::provider::engine::{Engine, SlotName};
use crayfish::provider::lease::Priority;
use crayfish::provider::prompt::{Fitted, NoRoom, Prompt};
use crayfish::provider::{Completed, Job, Progress, Provider};
use hailo::model::Release;
use hailo::sim::log::Event;
use hailo::sim::scenario::{Kind, Phase, Reply, Scenario};
use serde_json::{Value, json};

use super::house::{LATE, Recorder, until};
use super::openai_peer::OpenAiPeer;
use super::servers::{HailoSim, OllamaSim, always, instant, instant_ollama, next};

/// A conversation, whatever the budget: question, answer, question, in turn.
struct Talk(Vec<String>);

impl Prompt for Talk {
    fn fit(&self, _prompt_tokens_max: u32) -> Result<Fitted, NoRoom> {
        let mut messages = vec![Message { role: Role::System, content: "Be brief.".into() }];
        for (content, role) in self.0.iter().zip([Role::User, Role::Assistant].iter().cycle()) {
            messages.push(Message { role: *role, content: content.clone() });
        }
        Ok(Fitted { messages, clipped: None, voices: Vec::new() })
    }
}

/// A provider over one backend, and a person's job for it.
fn alone(backend: Arc<dyn Backend>) -> (Arc<Provider>, Job) {
    let events = Events::default();
    let policy = Policy::default();
    let engine = Engine::new(SlotName::Primary, backend, policy, LATE, events.clone());
    let job = Job {
        priority: Priority::Owner,
        conversation: "main".into(),
        route: None,
        deadline: tokio::time::Instant::now() + LATE,
        answer_tokens: 100,
        answer_tokens_max: None,
        sampling: Sampling::default(),
        schema: None,
        tools: Vec::new(),
        events: events.clone(),
    };
    (Provider::new(vec![engine], events), job)
}

fn tools() -> Vec<ToolSpec> {
    ["look_up", "set_alarm", "read_file"]
        .map(|name| ToolSpec {
            name: name.into(),
            description: format!("does {name}"),
            parameters: json!({"type": "object", "properties": {"what": {"type": "string"}}}),
        })
        .to_vec()
}

async fn ask(backend: Arc<dyn Backend>, tools: Vec<ToolSpec>, schema: Option<Value>) -> Completed {
    let events = Events::default();
    let policy = Policy::default();
    let engine = Engine::new(SlotName::Primary, backend, policy, LATE, events.clone());
    let provider = Provider::new(vec![engine], events.clone());
    let job = Job {
        priority: Priority::Owner,
        conversation: "main".into(),
        route: None,
        deadline: tokio::time::Instant::now() + LATE,
        answer_tokens: 100,
        answer_tokens_max: None,
        sampling: Sampling::default(),
        schema,
        tools,
        events,
    };
    let (out, mut progress) = tokio::sync::mpsc::channel(256);
    let talk = Talk(vec!["When does the sun set?".into()]);
    let done = provider.chat(&job, &talk, &out).await.unwrap();
    drop(out);
    while progress.recv().await.is_some() {}
    done
}

fn names(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_openai_body_carries_exactly_the_tools_and_the_calls_come_back() {
    let peer = OpenAiPeer::start(&["no", " tools"]).await;
    peer.call("look_up", r#"{"what": "sunset"}"#);
    peer.call("set_alarm", r#"{"what": "20:14 🌇"}"#);
    peer.finish("tool_calls");
    let recorder = Arc::<Recorder>::default();
    let done = ask(peer.backend(&recorder).0, tools(), None).await;
    let body = peer.bodies().pop().unwrap();
    assert_eq!(names(&body), ["look_up", "set_alarm", "read_file"]);
    assert_eq!(body["tools"][0]["function"]["parameters"]["type"], "object");
    let calls: Vec<(&str, Value)> = done
        .tool_calls
        .iter()
        .map(|call| (call.name.as_str(), serde_json::from_str(&call.arguments).unwrap()))
        .collect();
    let want = [("look_up", json!({"what": "sunset"})), ("set_alarm", json!({"what": "20:14 🌇"}))];
    assert_eq!(calls, want);
    assert_eq!(done.shown, "");
    let done = ask(peer.backend(&recorder).0, Vec::new(), None).await;
    assert_eq!(done.shown, "no tools");
    assert!(peer.bodies().pop().unwrap().get("tools").is_none(), "none offered, no field");
}

#[tokio::test]
async fn an_ollama_body_carries_exactly_the_tools_and_the_call_comes_back() {
    let call = json!({"name": "set_alarm", "arguments": {"what": "20:14"}});
    let reply = Reply { call: Some(call), ..Reply::default() };
    let scenario = Scenario { cycle: true, replies: vec![reply], ..Scenario::default() };
    let mut sim = OllamaSim::start(instant_ollama(scenario));
    sim.allowed = &["tools"];
    let recorder = Arc::<Recorder>::default();
    let done = ask(sim.backend(&recorder).0, tools(), None).await;
    let body = recorder.chats().pop().unwrap().body;
    assert_eq!(names(&body), ["look_up", "set_alarm", "read_file"]);
    assert_eq!(done.tool_calls.len(), 1);
    assert_eq!(done.tool_calls[0].name, "set_alarm");
    let arguments: Value = serde_json::from_str(&done.tool_calls[0].arguments).unwrap();
    assert_eq!(arguments, json!({"what": "20:14"}));
}

#[tokio::test]
async fn a_schema_goes_where_the_dialect_has_it_and_the_answer_follows_it() {
    let schema = json!({
        "type": "object",
        "properties": {"verb": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["verb", "times"],
    });
    let sim = OllamaSim::start(instant_ollama(Scenario::default()));
    let recorder = Arc::<Recorder>::default();
    let done = ask(sim.backend(&recorder).0, Vec::new(), Some(schema.clone())).await;
    let value: Value = serde_json::from_str(&done.shown).unwrap();
    assert!(value["verb"].is_string() && value["times"].is_i64(), "{value}");
    assert_eq!(recorder.chats().pop().unwrap().body["format"], schema);
    let peer = OpenAiPeer::start(&["{}"]).await;
    ask(peer.backend(&recorder).0, Vec::new(), Some(schema.clone())).await;
    let body = peer.bodies().pop().unwrap();
    assert_eq!(body["response_format"]["json_schema"]["schema"], schema);
}

/// The drop of the simulator checks that none of it was on the wire.
#[tokio::test]
async fn hailo_ollama_never_sees_tools_or_a_schema() {
    for release in Release::ALL {
        let sim = HailoSim::start(instant(release, always(&["Fine", "."])));
        let recorder = Arc::<Recorder>::default();
        let backend = sim.backend(&recorder).0;
        let done = ask(backend, tools(), Some(json!({"type": "object"}))).await;
        assert_eq!(done.shown, "Fine.");
        let body = recorder.chats().pop().unwrap().body;
        for field in ["tools", "format", "think", "truncate", "shift", "images"] {
            assert!(body.get(field).is_none(), "{field}");
        }
    }
}

/// The second lock on that door: a prompt that literally extends an aborted one would be decoded
/// on a cache with half an answer, so the model is released first.
#[tokio::test]
async fn a_prompt_that_extends_an_aborted_one_is_never_decoded_on_its_cache() {
    let words = ["One", " two", " three", " four"];
    for release in [Release::V5_1_1, Release::V5_3] {
        let sim = HailoSim::start(instant(release, always(&words)));
        let (provider, job) = alone(sim.backend(&Arc::<Recorder>::default()).0);
        sim.fault(next(Phase::Token(2), Kind::Hang));
        let (out, mut progress) = tokio::sync::mpsc::channel(256);
        let question = Talk(vec!["Count.".into()]);
        let mut shown = String::new();
        let heard = async {
            while shown != "One two" {
                match progress.recv().await {
                    Some(Progress::Text(text)) => shown.push_str(&text),
                    Some(Progress::Waiting { .. }) => {}
                    None => panic!("ended after {shown:?}"),
                }
            }
        };
        tokio::select! {
            biased;
            _ = provider.chat(&job, &question, &out) => panic!("it hangs after two words"),
            () = heard => {}
        }
        until("the server noticed", || !sim.state().lock_held).await;
        assert!(sim.state().dirty);
        let extended = Talk(vec!["Count.".into(), shown, "Go on.".into()]);
        let (out, _progress) = tokio::sync::mpsc::channel(256);
        let done = provider.chat(&job, &extended, &out).await.unwrap();
        assert_eq!(done.shown, words.concat());
        let state = sim.state();
        assert!(!state.last_continuation && !state.dirty, "{release:?}: {state:?}");
        let asked = |event: &Event| matches!(event, Event::Unloaded { why } if why == "asked");
        assert_eq!(sim.count(asked), 1, "{release:?}");
    }
}
