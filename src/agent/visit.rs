//! One client's connection, whatever carries it: frames in, frames out.
//!
//! Terminal socket and WebSocket differ in bytes and in their [`Manners`]; what a frame means is
//! here, once.
//!
//! # Invariants
//! - Every frame of a client has an answer, but for a message that was taken on: its turn is the
//!   answer.
//! - A turn that was heard of is told to its end, and its end is told once.

use std::sync::Arc;

use jiff::Timestamp;

use super::audience::{Happening, Said, Seat, Snap};
use super::{Converse, Submission, Turn, TurnEvent, frames};
use crate::limits;
use crate::session::wire::{
    self, BadFrame, ClientFrame, HistoryLine, Metadata, ServerFrame, SessionInfo, Status,
};
use crate::snapshot::Reader;

/// How a door's clients behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manners {
    /// Follows a session only when told to `attach`; hears of its own turns in any case.
    Terminal,
    /// Follows whatever it touches, and has a session of its own from the start.
    Browser,
    /// As `Browser`, and knows CashCode's frames only: it ends its wait at `done` or `error`.
    CashCode,
}

/// See the module.
pub struct Visit {
    converse: Arc<dyn Converse>,
    snapshot: Reader,
    manners: Manners,
    seat: Seat,
    /// The conversation that frames without a name mean; absent is the main one.
    chat_id: Option<String>,
}

/// The client is so far behind that it has to come anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too far behind; connect again and attach")]
pub struct TooFarBehind;

impl Visit {
    /// A client has come.
    #[must_use]
    pub fn new(converse: Arc<dyn Converse>, snapshot: Reader, manners: Manners) -> Self {
        let seat = converse.audience().seat();
        let mut visit = Self { converse, snapshot, manners, seat, chat_id: None };
        if manners != Manners::Terminal {
            visit.settle_in(fresh_chat_id());
        }
        visit
    }

    /// The first frame. `assets` names the page's files where the door serves a page.
    #[must_use]
    pub fn greeting(&self, assets: Option<&str>) -> ServerFrame {
        ServerFrame::Ready {
            v: wire::VERSION,
            client_id: format!("client-{:012x}", fastrand::u64(..1 << 48)),
            designation: self.snapshot.load().designation.clone(),
            chat_id: self.chat_id.clone(),
            assets: assets.map(str::to_owned).filter(|_| self.manners == Manners::Browser),
        }
    }

    /// Whether every turn that was heard of has been told to its end.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.seat.is_idle()
    }

    /// What is to be told next.
    ///
    /// # Errors
    /// `TooFarBehind`: nothing more will be told, and the connection is to be closed.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn next(&mut self) -> Result<Vec<ServerFrame>, TooFarBehind> {
        let frame = match self.seat.next().await {
            Happening::Behind => return Err(TooFarBehind),
            Happening::Turn { session, turn, event } => {
                return Ok(self.manners.of_event(&session, turn, event));
            }
            Happening::Said { session, turn, said } => {
                ServerFrame::User { chat_id: session, turn, content: said.text, id: said.id }
            }
            Happening::Titled { session, title, updated_ms } => {
                let at = Timestamp::from_millisecond(updated_ms).unwrap_or(Timestamp::UNIX_EPOCH);
                let updated_at = at.to_string();
                ServerFrame::SessionUpdated(SessionInfo { chat_id: session, title, updated_at })
            }
            Happening::Deleted { session } => ServerFrame::SessionDeleted { chat_id: session },
        };
        Ok(vec![frame])
    }

    /// Does what a frame asks for, and gives the answer.
    ///
    /// # Cancel safety
    /// Dropping it may lose the frame and its answer.
    pub async fn hear(&mut self, bytes: &[u8]) -> Vec<ServerFrame> {
        match ClientFrame::parse(bytes) {
            Ok(frame) => self.act(frame).await,
            Err(bad) => vec![complaint(bad, "bad_frame")],
        }
    }

    async fn act(&mut self, frame: ClientFrame) -> Vec<ServerFrame> {
        let reply = match frame {
            ClientFrame::Ping => ServerFrame::Pong,
            ClientFrame::NewChat => {
                let chat_id = fresh_chat_id();
                self.settle_in(chat_id.clone());
                ServerFrame::Attached { chat_id }
            }
            ClientFrame::Attach { chat_id, after_turn, history } => {
                return self.attach(chat_id, after_turn, history).await;
            }
            ClientFrame::Cancel { chat_id } => {
                let chat_id = chat_id.or_else(|| self.chat_id.clone());
                let stopped = self.converse.cancel(chat_id.as_deref());
                ServerFrame::StopAck { chat_id, stopped }
            }
            ClientFrame::Status => {
                let status = Box::new(Status::from(&*self.snapshot.load()));
                ServerFrame::Status { status }
            }
            ClientFrame::Sessions => match self.converse.sessions().await {
                Ok(sessions) => ServerFrame::Sessions { sessions },
                Err(refused) => refused.frame(None),
            },
            ClientFrame::History { chat_id, limit, before } => {
                let chat_id = chat_id.or_else(|| self.chat_id.clone());
                let lines = match before {
                    None => self.converse.history(chat_id.as_deref(), limit).await,
                    Some(turn) => self.converse.earlier(chat_id.as_deref(), turn, limit).await,
                };
                match lines {
                    Ok(lines) => {
                        let turns = lines.into_iter().map(HistoryLine::from).collect();
                        ServerFrame::History { chat_id, turns }
                    }
                    Err(refused) => refused.frame(chat_id),
                }
            }
            ClientFrame::Message { chat_id, content, metadata, id } => {
                let session = chat_id.or_else(|| self.chat_id.clone());
                return self.submit(session, Said { text: content, id }, metadata).await;
            }
        };
        vec![reply]
    }

    /// Makes a conversation the connection's.
    fn settle_in(&mut self, chat_id: String) {
        if self.manners != Manners::Terminal {
            self.seat.follow(&chat_id);
        }
        self.chat_id = Some(chat_id);
    }

    async fn attach(
        &mut self,
        chat_id: String,
        after_turn: Option<u64>,
        history: Option<usize>,
    ) -> Vec<ServerFrame> {
        let snaps = self.seat.follow(&chat_id);
        self.chat_id = Some(chat_id.clone());
        let mut told = vec![ServerFrame::Attached { chat_id: chat_id.clone() }];
        if after_turn.is_some() || history.is_some() {
            let limit = history.unwrap_or(limits::HISTORY_LINES_MAX);
            match self.converse.history(Some(&chat_id), limit).await {
                Ok(lines) => {
                    // Nothing was told since the session was followed, so what is told from now
                    // on and what was said before meet here without a gap and without an overlap.
                    let told_live = self.seat.untold_from(&chat_id).unwrap_or(u64::MAX);
                    let missed = after_turn.map_or(0, |turn| turn.saturating_add(1))..told_live;
                    let lines = lines.into_iter().filter(|line| missed.contains(&line.turn));
                    let turns = lines.map(HistoryLine::from).collect();
                    told.push(ServerFrame::History { chat_id: Some(chat_id.clone()), turns });
                }
                Err(refused) => told.push(refused.frame(Some(chat_id.clone()))),
            }
        }
        told.extend(snaps.into_iter().map(|snap| snapshot(&chat_id, snap)));
        told
    }

    async fn submit(
        &mut self,
        session: Option<String>,
        said: Said,
        metadata: Metadata,
    ) -> Vec<ServerFrame> {
        let backend = match self.backend(metadata) {
            Ok(backend) => backend,
            Err(detail) => {
                return vec![complaint(BadFrame { detail, chat_id: session }, "bad_frame")];
            }
        };
        let mut told = Vec::new();
        if let Some(chat_id) = &session
            && self.manners != Manners::Terminal
            && !self.seat.follows(chat_id)
        {
            let snaps = self.seat.follow(chat_id);
            told.extend(snaps.into_iter().map(|snap| snapshot(chat_id, snap)));
        }
        let chat_id = session.clone();
        let seat = Some(self.seat.number());
        let Said { text, id } = said;
        let named = id.clone();
        let submission = Submission { session, text, backend, answer_tokens_max: None, id, seat };
        match self.converse.submit(submission).await {
            Ok(turn) => told.extend(self.taken(turn, named).await),
            Err(refused) => told.push(refused.frame(chat_id)),
        }
        told
    }

    /// A message was taken on: what its client is told of that now, and is to hear later.
    async fn taken(&mut self, turn: Turn, id: Option<String>) -> Vec<ServerFrame> {
        let Turn { session: chat_id, turn, mut events, again } = turn;
        let mut told = Vec::new();
        if let Some(id) = id {
            told.push(ServerFrame::Taken { chat_id: chat_id.clone(), turn, id, again });
        }
        if again && events.is_over() {
            while let Some(event) = events.recv().await {
                told.extend(self.manners.of_event(&chat_id, turn, event));
            }
        } else {
            self.seat.adopt(events);
        }
        told
    }

    /// Which backend a message's metadata means; `None` is the configured order.
    fn backend(&self, metadata: Metadata) -> Result<Option<String>, String> {
        if let Some(name) = metadata.selections.first() {
            return Err(format!("Unable to load @{name}: there are no skills or connectors yet"));
        }
        let (None, Some(llm)) = (&metadata.backend, &metadata.llm) else {
            return Ok(metadata.backend);
        };
        let snapshot = self.snapshot.load();
        let known = snapshot.backends.iter();
        let named = known.clone().find(|backend| backend.name == llm.provider);
        let found = named.or_else(|| known.clone().find(|backend| backend.model == llm.model));
        match found {
            Some(backend) => Ok(Some(backend.name.clone())),
            // A client that must choose among its two dialects did not choose a backend of ours.
            None if llm.is_dialect() => Ok(None),
            None => Err("llm.provider is invalid".to_owned()),
        }
    }
}

/// The answer to bytes that are no frame.
#[must_use]
pub fn complaint(bad: BadFrame, code: &str) -> ServerFrame {
    let BadFrame { detail, chat_id } = bad;
    ServerFrame::Error { detail, code: code.to_owned(), chat_id, turn: None }
}

fn fresh_chat_id() -> String {
    format!("chat-{:016x}", fastrand::u64(..))
}

fn snapshot(chat_id: &str, snap: Snap) -> ServerFrame {
    ServerFrame::Snapshot {
        chat_id: chat_id.to_owned(),
        turn: snap.turn,
        content: snap.said.text,
        id: snap.said.id,
        text: snap.text,
        about_s: snap.about_s,
    }
}

impl Manners {
    /// What happened in a turn, as such a client is told it.
    fn of_event(self, chat_id: &str, turn: u64, event: TurnEvent) -> Vec<ServerFrame> {
        let told = frames::of_event(chat_id, turn, event);
        match self {
            Self::CashCode => for_cashcode(told),
            Self::Terminal | Self::Browser => told,
        }
    }
}

/// CashCode's client closes the bubble of words at `stream_end` only, and ends its wait at `done`
/// or `error` only; a `cancelled` it does not know. An `error` without a turn ends none of ours.
fn for_cashcode(mut told: Vec<ServerFrame>) -> Vec<ServerFrame> {
    let (chat_id, turn, stopped) = match told.last() {
        Some(ServerFrame::Cancelled { chat_id, turn }) => (chat_id.clone(), *turn, true),
        Some(ServerFrame::Error { chat_id: Some(chat_id), turn: Some(turn), .. }) => {
            (chat_id.clone(), *turn, false)
        }
        _ => return told,
    };
    told.insert(0, ServerFrame::StreamEnd { chat_id: chat_id.clone(), stream_id: turn });
    if stopped {
        let bad = BadFrame { detail: "stopped".to_owned(), chat_id: Some(chat_id) };
        told.push(complaint(bad, "cancelled"));
    }
    told
}

#[cfg(test)]
mod tests;
