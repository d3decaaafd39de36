//! `POST /v1/chat/completions`: no streaming, and a creation time in nanoseconds.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{
    dto::Request,
    generation,
    reply::{Shape, json},
    routes::{After, Exchange},
};

const NO_STREAM: &str = "streaming not supported on this endpoint. Use /api/chat endpoint instead.";

#[derive(Serialize)]
struct Completion<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice<'a>; 1],
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    message: Message<'a>,
    finish_reason: &'a str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

pub(super) fn run(exchange: &mut Exchange<'_>, request: Request) -> After {
    if request.stream {
        return exchange.refused(400, NO_STREAM);
    }
    if request.n.is_some_and(|n| n != 1) {
        return exchange.refused(400, "n must be 1");
    }
    generation::run(exchange, request, Shape::OpenAi)
}

/// The one body of an answer; no usage.
pub(super) fn body(request: u64, model: &str, content: &str, reason: &str) -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = format!("chatcmpl-{}", request.wrapping_mul(2_654_435_761) % 1_000_000);
    json(&Completion {
        id,
        object: "chat.completion",
        created: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
        model,
        choices: [Choice {
            index: 0,
            message: Message { role: "assistant", content },
            finish_reason: reason,
        }],
    })
}
