//! What the tests of all dialects share: prompts, quick collection of a stream, and a peer that
//! first answers the questions every backend asks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::backend::{Backend, ChatDelta, ChatRequest, ChatStream, Message, Role, Sampling};
use super::fault::Fault;
use crate::net::Http;
use crate::net::client::ReqwestHttp;

/// Long enough for loopback, short enough for a test that runs into it.
pub(crate) const SOON: Duration = Duration::from_millis(250);

/// A limit that must not be what ends a test.
pub(crate) const LATE: Duration = Duration::from_secs(20);

pub(crate) fn http() -> Arc<dyn Http> {
    Arc::new(ReqwestHttp::new())
}

pub(crate) fn message(role: Role, content: &str) -> Message {
    Message { role, content: content.into() }
}

/// A system message and a question.
pub(crate) fn request() -> ChatRequest {
    ChatRequest {
        messages: vec![message(Role::System, "You are terse."), message(Role::User, "Hi")],
        num_predict: 32,
        prompt_tokens: 300,
        sampling: Sampling::default(),
        schema: None,
        tools: vec![],
    }
}

/// Everything a stream gives, and the fault at its end.
pub(crate) async fn drain(stream: ChatStream) -> (Vec<ChatDelta>, Option<Fault>) {
    let items = tokio::time::timeout(LATE, stream.collect::<Vec<_>>()).await.unwrap();
    let mut deltas = Vec::new();
    let mut fault = None;
    for item in items {
        assert!(fault.is_none(), "nothing follows a fault");
        match item {
            Ok(delta) => deltas.push(delta),
            Err(error) => fault = Some(error),
        }
    }
    assert_eq!(
        fault.is_none(),
        matches!(deltas.last(), Some(ChatDelta::Done(_))),
        "ends with done or a fault: {deltas:?}"
    );
    (deltas, fault)
}

/// One prompt through a backend, its setup included.
pub(crate) async fn chat(
    backend: &dyn Backend,
    request: ChatRequest,
) -> (Vec<ChatDelta>, Option<Fault>) {
    match backend.chat(request).await {
        Ok(stream) => drain(stream).await,
        Err(fault) => (vec![], Some(fault)),
    }
}

/// Names of an object's fields, sorted.
pub(crate) fn keys(value: &serde_json::Value) -> Vec<String> {
    let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    keys
}
