//! The routes: a request in, an answer out. The fields are the seed's where it has them.
//!
//! # Invariants
//! - A client that goes away cancels nothing: its turn goes on into the log.
//! - What the daemon does not have (a mood, vitals) is null, never invented.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::stream::{self, Stream};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderMap};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use super::access::{Access, Wants};
use super::connection::Work;
use super::pages;
use super::reply::{self, Reply};
use super::request::{self, BadRequest, ChatBody, HistoryQuery, LinesQuery};
use super::router::{self, Route};
use super::socket::handshake::{self, BadHandshake};
use crate::agent::frames::Frames;
use crate::agent::visit::Manners;
use crate::agent::{Answer, Converse, Refused, Submission, Turn, TurnEvent};
use crate::limits;
use crate::session::wire::{HistoryLine, ServerFrame, Status};
use crate::snapshot::Reader;

const WELCOME: &str = "\
crayfish

  POST /chat      {\"message\": \"...\"}   answer as JSON; \"stream\": true for words as they come
  POST /cancel    {\"session\": \"...\"}   stops the running answer
  GET  /history   ?limit=20&session=...&before=TURN
  GET  /sessions  the conversations; /sessions/ID/messages what was said in one
  GET  /ws        WebSocket, also on /
  GET  /state     what is true now
  GET  /healthz   whether all is well

In a terminal: crayfish chat
";

/// What the HTTP door needs of the house.
#[derive(Clone)]
pub struct Service {
    /// Takes messages.
    pub converse: Arc<dyn Converse>,
    /// What is true now.
    pub snapshot: Reader,
    /// Whom to let in.
    pub access: Access,
}

/// Answer of `GET /state`: the seed's names, then ours. `()` is what the daemon does not have yet.
#[derive(Serialize)]
struct State<'a> {
    sleeping: (),
    stressed: (),
    vitals_describe: (),
    mood_dominant: Option<&'a str>,
    mood_active_channel: Option<&'a str>,
    mood_active_intensity: Option<f32>,
    brain_online: bool,
    brain_backend: &'a str,
    brain_last_error: Option<&'a str>,
    #[serde(flatten)]
    status: Status,
}

/// Answers one request. Never fails: what goes wrong is an answer.
pub(super) async fn answer<B>(
    service: Arc<Service>,
    work: Work,
    mut request: Request<B>,
) -> Result<Reply, Infallible>
where
    B: Body<Data = Bytes> + Unpin,
{
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let route = router::route(&head.method, head.uri.path());
    let upgrades = handshake::is_wanted(&head.method, &head.headers);
    let page = route == Ok(Route::Welcome) && !upgrades && pages::wants_page(&head.headers);
    let wants = match route {
        Ok(Route::Welcome) if page && head.method == Method::GET => Wants::Page,
        Ok(Route::Welcome) if page => Wants::Open,
        Ok(Route::Health | Route::Alive | Route::Asset) => Wants::Open,
        _ => Wants::Own,
    };
    let allowed = service.access.check(&head.headers, head.uri.authority(), wants);
    let mut reply = match (allowed, route) {
        (Err(denied), _) => reply::closing(denied.into()),
        (Ok(()), Err(none)) => none.into(),
        (Ok(()), Ok(Route::Chat)) => match chat_body(&head.headers, body).await {
            Err(bad) => refused_body(bad),
            Ok(chat) => {
                let _busy = work.begin();
                service.chat(chat).await
            }
        },
        (Ok(()), Ok(Route::Cancel)) => match cancel_body(&head.headers, body).await {
            Err(bad) => refused_body(bad),
            Ok(session) => {
                let stopped = service.converse.cancel(session.as_deref());
                reply::json(StatusCode::OK, &json!({ "cancelled": stopped }))
            }
        },
        (Ok(()), Ok(Route::History)) => match HistoryQuery::parse(head.uri.query()) {
            Err(bad) => bad.into(),
            Ok(query) => service.history(query).await,
        },
        (Ok(()), Ok(Route::Welcome | Route::Socket)) if upgrades => socket(&head, &work, upgrade),
        (Ok(()), Ok(Route::Socket)) => BadHandshake::Required.into(),
        (Ok(()), Ok(Route::Sessions)) => service.sessions().await,
        (Ok(()), Ok(Route::Messages(id))) => service.messages(id, head.uri.query()).await,
        (Ok(()), Ok(Route::Session(id))) if head.method == Method::DELETE => {
            service.delete(id).await
        }
        (Ok(()), Ok(Route::Session(id))) => match json_body(&head.headers, body).await {
            Err(bad) => refused_body(bad),
            Ok(bytes) => service.rename(id, &bytes).await,
        },
        (Ok(()), Ok(Route::Alive)) => {
            let body = json!({ "status": "ok", "service": "crayfish" });
            reply::json(StatusCode::OK, &body)
        }
        (Ok(()), Ok(Route::State)) => service.state(),
        (Ok(()), Ok(Route::Health)) => service.health(),
        (Ok(()), Ok(Route::Asset)) => pages::asset(head.uri.path(), &head.headers),
        (Ok(()), Ok(Route::Welcome)) if page => pages::page(&head.headers),
        (Ok(()), Ok(Route::Welcome)) => reply::text(StatusCode::OK, WELCOME),
    };
    reply.body_mut().hold(work.begin());
    Ok(reply)
}

/// Grants the upgrade or says why not.
fn socket(head: &Parts, work: &Work, upgrade: OnUpgrade) -> Reply {
    let handshake = match handshake::read(head.version, &head.headers) {
        Ok(handshake) => handshake,
        Err(bad) => return reply::closing(bad.into()),
    };
    let manners = if handshake.knows_us { Manners::Browser } else { Manners::CashCode };
    if !work.upgrade(upgrade, manners) {
        return reply::closing(BadHandshake::TooMany.into());
    }
    reply::switching(&handshake)
}

fn refused_body(bad: BadRequest) -> Reply {
    let unread = matches!(bad, BadRequest::TooLong | BadRequest::TooSlow | BadRequest::Broken);
    let reply = bad.into();
    if unread { reply::closing(reply) } else { reply }
}

async fn chat_body<B>(headers: &HeaderMap, body: B) -> Result<ChatBody, BadRequest>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut chat = ChatBody::parse(&json_body(headers, body).await?)?;
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    chat.stream |= accepts.into_iter().any(request::wants_lines);
    Ok(chat)
}

async fn json_body<B>(headers: &HeaderMap, body: B) -> Result<Vec<u8>, BadRequest>
where
    B: Body<Data = Bytes> + Unpin,
{
    if !request::is_json(headers.get(CONTENT_TYPE).map(AsRef::as_ref)) {
        return Err(BadRequest::NotJsonType);
    }
    read(headers, body).await
}

async fn cancel_body<B>(headers: &HeaderMap, body: B) -> Result<Option<String>, BadRequest>
where
    B: Body<Data = Bytes> + Unpin,
{
    let kind = headers.get(CONTENT_TYPE).map(AsRef::as_ref);
    if kind.is_some() && !request::is_json(kind) {
        return Err(BadRequest::NotJsonType);
    }
    let bytes = read(headers, body).await?;
    if kind.is_none() && !bytes.is_empty() {
        return Err(BadRequest::NotJsonType);
    }
    request::cancel_session(&bytes)
}

/// Reads a whole body within its bounds. What is too long is read on and thrown away for a while,
/// because a client that still sends would see a reset instead of the answer.
async fn read<B>(headers: &HeaderMap, mut body: B) -> Result<Vec<u8>, BadRequest>
where
    B: Body<Data = Bytes> + Unpin,
{
    let told = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let told: usize = told.unwrap_or_default();
    if told > limits::BODY_BYTES_MAX
        && (headers.contains_key(EXPECT) || told > limits::HTTP_DISCARD_BYTES_MAX)
    {
        return Err(BadRequest::TooLong);
    }
    let collect = async {
        let mut kept = Vec::with_capacity(told.min(limits::BODY_BYTES_MAX));
        let mut seen = 0_usize;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| BadRequest::Broken)?;
            let Some(data) = frame.data_ref() else { continue };
            seen = seen.saturating_add(data.len());
            if seen <= limits::BODY_BYTES_MAX {
                kept.extend_from_slice(data);
            } else if seen > limits::HTTP_DISCARD_BYTES_MAX {
                break;
            } else {
                kept = Vec::new();
            }
        }
        if seen > limits::BODY_BYTES_MAX { Err(BadRequest::TooLong) } else { Ok(kept) }
    };
    let read = tokio::time::timeout(limits::HTTP_BODY_TIMEOUT, collect).await;
    read.unwrap_or(Err(BadRequest::TooSlow))
}

impl Service {
    async fn chat(&self, chat: ChatBody) -> Reply {
        let submission = Submission {
            session: chat.session,
            text: chat.message,
            backend: chat.backend,
            answer_tokens_max: None,
            id: chat.id,
            seat: None,
        };
        match self.converse.submit(submission).await {
            Err(refused) => refused.into(),
            Ok(turn) if chat.stream => reply::lines(pieces(turn)),
            Ok(turn) => whole(turn, &self.snapshot).await,
        }
    }

    async fn history(&self, query: HistoryQuery) -> Reply {
        match self.lines(query.session.as_deref(), query.lines).await {
            Err(refused) => refused.into(),
            Ok(turns) => reply::json(StatusCode::OK, &json!({ "turns": turns })),
        }
    }

    /// The lines of a session that a query means.
    pub(super) async fn lines(
        &self,
        session: Option<&str>,
        query: LinesQuery,
    ) -> Result<Vec<HistoryLine>, Refused> {
        let lines = match query.before {
            None => self.converse.history(session, query.limit).await,
            Some(turn) => self.converse.earlier(session, turn, query.limit).await,
        };
        Ok(lines?.into_iter().map(HistoryLine::from).collect())
    }

    fn state(&self) -> Reply {
        let snapshot = self.snapshot.load();
        let mood = snapshot.mood.as_ref();
        let state = State {
            sleeping: (),
            stressed: (),
            vitals_describe: (),
            mood_dominant: mood.map(|mood| mood.dominant.as_str()),
            mood_active_channel: mood.map(|mood| mood.active_channel.as_str()),
            mood_active_intensity: mood.map(|mood| mood.active_intensity),
            brain_online: snapshot.online,
            brain_backend: &snapshot.active_backend,
            brain_last_error: snapshot.last_error.as_deref(),
            status: Status::from(&*snapshot),
        };
        reply::json(StatusCode::OK, &state)
    }

    /// A model that is away is the daemon's daily bread; a database that cannot be written is not.
    fn health(&self) -> Reply {
        let snapshot = self.snapshot.load();
        if !snapshot.store_ok {
            let body = json!({
                "error": "the database cannot be written",
                "reasons": snapshot.notices,
            });
            return reply::json(StatusCode::SERVICE_UNAVAILABLE, &body);
        }
        let mut text = if snapshot.online { "ok" } else { "ok, inference offline" }.to_owned();
        for hung in snapshot.backends.iter().filter_map(|backend| backend.hung.as_ref()) {
            text.push_str("; ");
            text.push_str(hung);
        }
        reply::text(StatusCode::OK, &text)
    }
}

/// A turn's frames as lines, as they come.
fn pieces(turn: Turn) -> impl Stream<Item = Bytes> + Send + 'static {
    let frames = Frames::of(&turn);
    stream::unfold((turn.events, frames), |(mut events, mut frames)| async move {
        if frames.ended() {
            return None;
        }
        let lines: String =
            frames.next(events.recv().await).iter().map(ServerFrame::to_line).collect();
        Some((Bytes::from(lines), (events, frames)))
    })
}

/// A turn's whole answer. A turn that failed is an answer too, in words: the seed's clients show
/// `reply` and know nothing of errors.
async fn whole(mut turn: Turn, now: &Reader) -> Reply {
    let mut shown = String::new();
    loop {
        match turn.events.recv().await {
            Some(TurnEvent::Waiting { .. }) => {}
            Some(TurnEvent::Delta(text)) => shown.push_str(&text),
            Some(TurnEvent::Done(answer)) => return done(&turn, &answer, now),
            Some(TurnEvent::Failed { words, code }) => {
                return failed(&turn, &shown, (&words, code), now);
            }
            Some(TurnEvent::Cancelled) => {
                return failed(&turn, &shown, ("", "cancelled"), now);
            }
            None => {
                let body = json!({ "error": "the turn ended without an answer", "reply": shown });
                return reply::json(StatusCode::INTERNAL_SERVER_ERROR, &body);
            }
        }
    }
}

fn done(turn: &Turn, answer: &Answer, now: &Reader) -> Reply {
    let now = now.load();
    let mood = now.mood.as_ref();
    let body = json!({
        "reply": answer.text,
        "backend": answer.backend,
        "stressed": null,
        "elapsed_ms": answer.elapsed_ms,
        "mood_dominant": mood.map(|mood| &mood.dominant),
        "mood_active_channel": mood.map(|mood| &mood.active_channel),
        "mood_active_intensity": mood.map(|mood| mood.active_intensity),
        "session": turn.session,
        "turn": turn.turn,
        "model": answer.model,
        "cut": answer.cut,
        "clipped": answer.clipped,
        "tokens": answer.tokens,
        "first_word_ms": answer.first_word_ms,
    });
    reply::json(StatusCode::OK, &body)
}

fn failed(turn: &Turn, shown: &str, (words, code): (&str, &str), now: &Reader) -> Reply {
    let now = now.load();
    let mood = now.mood.as_ref();
    let between = if shown.is_empty() || words.is_empty() { "" } else { "\n\n" };
    // Who spoke before the fault is not told with it; that nobody did is known.
    let backend = if shown.is_empty() { json!("offline") } else { Value::Null };
    let body = json!({
        "reply": format!("{shown}{between}{words}"),
        "backend": backend,
        "stressed": null,
        "elapsed_ms": null,
        "mood_dominant": mood.map(|mood| &mood.dominant),
        "mood_active_channel": mood.map(|mood| &mood.active_channel),
        "mood_active_intensity": mood.map(|mood| mood.active_intensity),
        "session": turn.session,
        "turn": turn.turn,
        "error": code,
    });
    reply::json(StatusCode::OK, &body)
}
