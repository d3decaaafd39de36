//! The rules that requests must keep, judged where they arrive.

use serde_json::Value;

use super::book::{End, Facts, Question};
use super::model::said::{Chat, Said, Who};
use super::model::{Kind, Presence, Server};
use crate::limits::CONTEXT_MARGIN_TOKENS;
use crate::net::{HttpRequest, Method};
use crate::provider::Provider;

/// hailo-ollama drops a connection with a longer head.
const HEAD_BYTES_MAX: usize = 4096;

/// Quiet time that the configuration of this world asks for, less what the paths take.
const QUIET_S: f64 = super::world::BACKGROUND_QUIET_S - 1.0;

/// A breaker that opened longer ago than this must have been seen by whoever sends.
const OPEN_LEFT_S: f32 = 2.0;

/// So many failures in a row within a minute open a breaker.
const FAILURES_MAX: usize = 3;

/// Part of a prompt's budget below which there is no reason to leave old turns out.
const MOVES_ABOVE_PERCENT: u32 = 55;

const HAILO_FIELDS: &[&str] = &["model", "messages", "stream", "keep_alive", "options"];
const HAILO_OPTIONS: &[&str] = &["num_predict", "temperature", "top_p", "top_k", "seed"];
const OLLAMA_FIELDS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "keep_alive",
    "options",
    "truncate",
    "shift",
    "think",
    "format",
    "tools",
];
const OLLAMA_OPTIONS: &[&str] = &[
    "num_ctx",
    "num_thread",
    "repeat_penalty",
    "num_predict",
    "temperature",
    "top_p",
    "top_k",
    "seed",
];

const OPENAI_FIELDS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "response_format",
    "tools",
];

/// Judges a request's head.
pub(super) fn head(server: &Server, bytes: usize) {
    if bytes > HEAD_BYTES_MAX {
        server.journal.broken(&format!("a head of {bytes} bytes"));
    }
}

/// Judges a request before it is sent: what the breaker says at that moment.
pub(super) fn outgoing(server: &Server, provider: &Provider, request: &HttpRequest) {
    let chats = request.method == Method::Post
        && ["/api/chat", "/chat/completions"].iter().any(|path| request.url.ends_with(path));
    let Some(chat) = request.body.as_deref().filter(|_| chats).and_then(Chat::read) else { return };
    if chat.messages.is_empty() {
        return;
    }
    let name = server.kind.name();
    let states = provider.states();
    let Some(state) = states.iter().find(|state| state.name == name) else { return };
    let half_open = state.breaker == "half-open";
    let open = state.breaker == "open" && state.retry_in_s.is_some_and(|left| left < OPEN_LEFT_S);
    let wrong = match chat.who {
        Who::Probe => open,
        Who::Owner(_) | Who::Background => half_open || open,
    };
    if wrong {
        let who = chat.who;
        server.journal.broken(&format!("{who:?} to {name}, whose breaker is {}", state.breaker));
    }
}

/// Judges a chat, a load or an unload when it arrives.
pub(super) fn arrival(server: &Server, chat: &Chat) {
    let broken = |rule: &str| server.journal.broken(&format!("{}: {rule}", server.kind.name()));
    fields(server.kind, &chat.body, &broken);
    alone(server, &broken);
    if chat.messages.is_empty() {
        if server.kind == Kind::OpenAi {
            broken("a request without a question");
        }
        return;
    }
    shape(chat, &broken);
    budget(server.kind, chat, &broken);
    dirty(server, chat, &broken);
    match chat.who {
        Who::Owner(question) => owner(server, chat, question, &broken),
        Who::Background => quiet(server, &broken),
        Who::Probe => {}
    }
}

fn fields(kind: Kind, body: &Value, broken: &dyn Fn(&str)) {
    let (fields, options) = match kind {
        Kind::Hailo => (HAILO_FIELDS, HAILO_OPTIONS),
        Kind::Ollama => (OLLAMA_FIELDS, OLLAMA_OPTIONS),
        Kind::OpenAi => (OPENAI_FIELDS, [].as_slice()),
    };
    let unknown = |value: Option<&Value>, known: &[&str]| {
        let keys = value.and_then(Value::as_object).into_iter().flat_map(|object| object.keys());
        keys.filter(|key| !known.contains(&key.as_str())).cloned().collect::<Vec<_>>()
    };
    let mut found = unknown(Some(body), fields);
    found.extend(unknown(body.get("options"), options));
    if !found.is_empty() {
        broken(&format!("forbidden fields {found:?}"));
    }
    if body.pointer("/options/top_k").and_then(Value::as_u64) == Some(0) {
        broken("top_k 0");
    }
    let has_prompt = body.get("messages").and_then(Value::as_array).is_some_and(|m| !m.is_empty());
    if has_prompt && body.get("stream") != Some(&Value::Bool(true)) {
        broken("a chat that is not streamed");
    }
}

/// Never two of our requests inside a server, ghosts included.
fn alone(server: &Server, broken: &dyn Fn(&str)) {
    let state = server.state();
    let (inside, presence) = (state.inside.clone(), state.presence);
    drop(state);
    let known = inside.iter().all(|one| !one.flawed);
    if !inside.is_empty() && presence == Presence::Up && known {
        let busy: Vec<_> = inside.iter().map(|one| (one.who, one.ghost)).collect();
        broken(&format!("a second request while one is inside (true: for nobody): {busy:?}"));
    }
}

fn shape(chat: &Chat, broken: &dyn Fn(&str)) {
    let roles: Vec<&str> = chat.messages.iter().map(|one| one.role.as_str()).collect();
    let expected = |at: usize| match at {
        0 => "system",
        at if at % 2 == 1 => "user",
        _ => "assistant",
    };
    let alternate = roles.iter().enumerate().all(|(at, role)| *role == expected(at));
    if !alternate || roles.len() % 2 == 1 {
        broken(&format!("roles {roles:?}"));
    }
    if chat.messages.iter().any(|one| one.content.is_empty()) {
        broken("an empty message");
    }
}

fn budget(kind: Kind, chat: &Chat, broken: &dyn Fn(&str)) {
    let estimate: u32 = chat.messages.iter().map(Said::estimate).sum();
    let room = kind.context_tokens() - CONTEXT_MARGIN_TOKENS;
    if estimate + chat.num_predict > room {
        broken(&format!("a prompt of {estimate} and an answer of {} tokens", chat.num_predict));
    }
    if chat.num_predict == 0 {
        broken("no tokens for the answer");
    }
    if chat.tokens() + chat.num_predict > kind.context_tokens() {
        broken("the context overflows");
    }
}

/// hailo-ollama decodes on a cache that holds half an answer if a prompt extends it.
fn dirty(server: &Server, chat: &Chat, broken: &dyn Fn(&str)) {
    if server.kind == Kind::Hailo && server.would_extend_dirty(&chat.messages) {
        broken("a prompt that extends an aborted one");
    }
}

fn quiet(server: &Server, broken: &dyn Fn(&str)) {
    let owner_at = server.state().owner_at;
    let since = owner_at.map(|at| (server.journal.now().saturating_sub(at)).as_secs_f64());
    if let Some(since) = since
        && since < QUIET_S
    {
        broken(&format!("background work {since:.1} s after a person's"));
    }
}

fn owner(server: &Server, chat: &Chat, id: u32, broken: &dyn Fn(&str)) {
    let now = server.journal.now();
    server.state().owner_at = Some(now);
    if server.failures_lately() >= FAILURES_MAX {
        broken(&format!("q{id}: failures in a row and the breaker is closed"));
    }
    let mut facts = server.book.open();
    let system = chat.messages.first().map(|one| one.content.clone()).unwrap_or_default();
    match &facts.system {
        Some(known) if *known != system => broken("another system block"),
        Some(_) => {}
        None => facts.system = Some(system),
    }
    let Some(question) = facts.questions.get(&id) else {
        return broken(&format!("a question nobody asked: q{id}"));
    };
    if !question.shown.is_empty() && question.life == facts.life {
        broken(&format!("q{id} is asked again although words of its answer were shown"));
    }
    if question.refused || (question.end.is_some() && question.life == facts.life) {
        broken(&format!("q{id} is asked although it is over"));
    }
    if question.cancelled_at.is_some_and(|at| (now - at).as_secs_f32() > 1.0) {
        broken(&format!("q{id} is asked although it was stopped"));
    }
    if let Some(wrong) = continuation(server.kind, &facts, question, chat) {
        broken(&format!("q{id}: {wrong}"));
    }
}

/// The prompt continues the conversation literally, but for turns that left the window.
fn continuation(kind: Kind, facts: &Facts, question: &Question, chat: &Chat) -> Option<String> {
    if question.accepted_at.is_none()
        || question.turn.is_multiple_of(crate::limits::WINDOW_EPOCH_TURNS)
    {
        return None;
    }
    let (before_id, before) = facts.before(question)?;
    let Some(End::Done { backend, .. }) = &before.end else { return None };
    if before.loose && before.life != facts.life {
        return None;
    }
    if backend != kind.name() {
        return None;
    }
    let last = facts.answer_from(before_id, backend)?;
    let mut expected: Vec<Said> = last.messages.iter().skip(1).cloned().collect();
    // Control characters are never sent to hailo-ollama: it garbles them.
    let kept = |c: &char| kind != Kind::Hailo || !c.is_control() || matches!(c, '\n' | '\t');
    let answer = last.raw.chars().filter(kept).collect();
    expected.push(Said { role: "assistant".into(), content: answer });
    let got = &chat.messages[1..chat.messages.len().saturating_sub(1).max(1)];
    let moved = expected.len().checked_sub(got.len());
    let cut = facts.pace_changed.contains(kind.name());
    let Some(moved) = moved else {
        return (!cut).then(|| "old turns came back into the window".to_owned());
    };
    if expected.get(moved..) != Some(got) {
        let pair = expected[moved..].iter().zip(got).find(|(one, other)| one != other);
        return Some(format!("the window does not repeat what was said: {pair:?}"));
    }
    let newest = chat.messages.last().map_or(0, Said::estimate);
    let system = chat.messages.first().map_or(0, Said::estimate);
    let whole: u32 = expected.iter().map(Said::estimate).sum::<u32>() + newest + system;
    let budget = kind.context_tokens() * MOVES_ABOVE_PERCENT / 100;
    let turns = expected.len() / 2;
    let pressed = whole > budget || turns > super::world::TURNS_MAX;
    (moved > 0 && !pressed && !cut)
        .then(|| format!("{moved} messages left the window although {whole} tokens fit"))
}
