//! Answers under a JSON schema, which the conversation itself does not ask for.

use std::sync::Arc;

use crayfish::net::client::ReqwestHttp;
use crayfish::provider::backend::{
    Backend, ChatDelta, ChatRequest, DoneReason, Message, Role, Sampling,
};
use crayfish::provider::openai::{OpenAi, OpenAiConfig};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::rig::{MODEL, llama};

fn request() -> ChatRequest {
    let message = |role, content: &str| Message { role, content: content.to_owned() };
    ChatRequest {
        messages: vec![
            message(Role::System, "You answer with a verdict and a query."),
            message(Role::User, "Everest is 8849 m high. Is its height known?"),
        ],
        num_predict: 64,
        prompt_tokens: 60,
        sampling: Sampling { temperature: Some(0.0), ..Sampling::default() },
        schema: Some(json!({
            "type": "object",
            "properties": {
                "verdict": { "type": "string", "enum": ["KNOWN", "UNKNOWN"] },
                "query": { "type": "string", "maxLength": 30 },
            },
            "required": ["verdict", "query"],
            "additionalProperties": false,
        })),
        tools: Vec::new(),
    }
}

#[tokio::test]
async fn an_answer_under_a_schema_follows_it_to_the_letter() {
    let url = format!("http://{}/v1", llama());
    let config = OpenAiConfig { url, model: MODEL.to_owned(), ..OpenAiConfig::default() };
    let backend = OpenAi::new(Arc::new(ReqwestHttp::new()), config);
    let presence = backend.presence().await.unwrap();
    assert_eq!(presence.model.as_deref(), Some(MODEL), "{presence:?}");

    let mut stream = backend.chat(request()).await.unwrap();
    let (mut text, mut pieces, mut end) = (String::new(), 0, None);
    while let Some(delta) = stream.next().await {
        match delta.unwrap() {
            ChatDelta::Text(piece) => {
                text.push_str(&piece);
                pieces += 1;
            }
            ChatDelta::Done(done) => end = Some(done),
            ChatDelta::Head | ChatDelta::Thinking(_) | ChatDelta::ToolCall { .. } => {}
        }
    }
    let end = end.unwrap();
    assert_eq!(end.reason, DoneReason::Stop, "{text}");
    assert!(pieces > 3 && end.tokens.is_some() && end.prompt_tokens.is_some(), "{end:?}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let verdict = answer["verdict"].as_str().unwrap();
    assert!(["KNOWN", "UNKNOWN"].contains(&verdict), "{answer}");
    assert!(answer["query"].as_str().unwrap().chars().count() <= 30, "{answer}");
    assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
}
