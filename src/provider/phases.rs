//! An answer as it arrives, with a limit on each phase: head, first token, between tokens, whole.
//!
//! The stream made here is the same for all dialects: a body's bytes go through a decoder, time
//! is watched, and whatever ends an answer early becomes one fault with its class and phase.
//!
//! # Invariants
//! - The stream ends after exactly one `Done` or one fault; what was decoded before a fault is
//!   delivered before it.
//! - Dropping the stream drops the connection, in every phase.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout, timeout_at};

use super::backend::{ChatDelta, ChatStream, Done, DoneReason, Message};
use super::door::{Resolved, collect, unanswered};
use super::fault::{Class, Fault, Field, Phase};
use super::learned::Learned;
use super::parse::{Dialect, detail, refusal};
use crate::limits::ANSWER_BYTES_MAX;
use crate::net::{HttpBody, HttpError, HttpResponse};

/// Bound on reading an error's body after its head. It is one short text, sent at once.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for what may follow a complete answer: one event, which is under way already.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);

/// A loaded hailo-ollama sends its head at once. One that took longer has loaded the model or
/// served somebody else, and has nothing of us in its cache.
const LOADED_HEAD_MAX: Duration = Duration::from_secs(1);

/// Turns a body's bytes into deltas.
pub(crate) trait Decode: Send {
    /// Whether a success of this content type is a stream for this decoder.
    fn takes(&self, content_type: Option<&str>) -> bool;

    /// Decodes a piece. Returns whether anything complete was in it, which counts as a sign of
    /// life even where it holds no text.
    fn piece(&mut self, bytes: &[u8], out: &mut Vec<ChatDelta>) -> Result<bool, Fault>;

    /// Whether the answer is complete but for figures and the end of the body, which some servers
    /// never send.
    fn is_closing(&self) -> bool {
        false
    }

    /// The body has ended, properly or not. Pushes what is complete even so, `Done` included.
    fn end(&mut self, out: &mut Vec<ChatDelta>) -> Result<(), Fault>;
}

/// Limits on the phases of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// From sending to the head.
    pub(crate) head: Duration,
    /// From the head to the first token.
    pub(crate) first_token: Duration,
    /// From token to token.
    pub(crate) between_tokens: Duration,
    /// From the head to the end.
    pub(crate) whole: Duration,
    /// The time after which the server itself gives up on prefill, counted from the head.
    pub(crate) gives_up: Option<Duration>,
}

/// All that one answer needs.
pub(crate) struct Plan {
    pub(crate) sending: BoxFuture<'static, Result<HttpResponse, HttpError>>,
    pub(crate) decode: Box<dyn Decode>,
    pub(crate) dialect: Dialect,
    pub(crate) limits: Limits,
    pub(crate) learned: Arc<Learned>,
    pub(crate) resolved: Arc<Resolved>,
    pub(crate) messages: Vec<Message>,
    pub(crate) prompt_tokens: u32,
    /// The part of the prompt that has to be prefilled.
    pub(crate) fresh_tokens: u32,
    pub(crate) keep_alive_s: i64,
    /// Those of the fields that a model may refuse which the request has.
    pub(crate) fields: Vec<Field>,
    /// Asks the server whether it lives; used once, if its head is late.
    pub(crate) alive: Option<BoxFuture<'static, Result<(), Fault>>>,
}

enum Source {
    Sending(BoxFuture<'static, Result<HttpResponse, HttpError>>),
    Body(HttpBody),
    Over,
}

struct Answer {
    plan: Plan,
    source: Source,
    ready: VecDeque<ChatDelta>,
    fault: Option<Fault>,
    sent_at: Instant,
    head_at: Instant,
    /// First and last sign of a token.
    tokens_at: Option<(Instant, Instant)>,
    /// When the last sign of life came, for the limit between tokens.
    alive_at: Instant,
    tokens: u32,
    bytes: usize,
    /// Something was thought; something other than white space was said or called.
    thought: bool,
    spoke: bool,
    was_loaded: bool,
}

/// The stream of an answer. Sending begins when it is first polled.
pub(crate) fn answer(mut plan: Plan) -> ChatStream {
    let never: BoxFuture<'static, _> = Box::pin(std::future::pending());
    let sending = std::mem::replace(&mut plan.sending, never);
    let now = Instant::now();
    let was_loaded = plan.learned.is_loaded(now);
    let answer = Answer {
        plan,
        source: Source::Sending(sending),
        ready: VecDeque::new(),
        fault: None,
        sent_at: now,
        head_at: now,
        tokens_at: None,
        alive_at: now,
        tokens: 0,
        bytes: 0,
        thought: false,
        spoke: false,
        was_loaded,
    };
    stream::unfold(answer, Answer::next).boxed()
}

// === impl Answer ===

impl Answer {
    async fn next(mut self) -> Option<(Result<ChatDelta, Fault>, Self)> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Some((Ok(delta), self));
            }
            if let Some(fault) = self.fault.take() {
                self.source = Source::Over;
                return Some((Err(self.note(fault)), self));
            }
            let step = match std::mem::replace(&mut self.source, Source::Over) {
                Source::Over => return None,
                Source::Sending(sending) => self.await_head(sending).await,
                Source::Body(body) => self.await_piece(body).await,
            };
            self.fault = step.err();
        }
    }

    async fn await_head(
        &mut self,
        sending: BoxFuture<'static, Result<HttpResponse, HttpError>>,
    ) -> Result<(), Fault> {
        let limit = self.plan.limits.head;
        let alive = self.plan.alive.take();
        let response = timeout(limit, head(sending, alive))
            .await
            .map_err(|_| {
                let text = format!("no answer within {} s", limit.as_secs_f32());
                Fault::new(Class::Wedged, Phase::Head, text)
            })??
            .map_err(|error| unanswered(&error))?;
        let status = response.status;
        let success = (200..300).contains(&status);
        if !success || !self.plan.decode.takes(response.content_type.as_deref()) {
            let wish = response.retry_after;
            let body = timeout(ERROR_BODY_TIMEOUT, collect(response.body)).await;
            let text = body.unwrap_or_else(|_| Ok(String::new()))?;
            return Err(refusal(self.plan.dialect, status, wish, &text));
        }
        self.head_at = Instant::now();
        self.alive_at = self.head_at;
        self.plan.learned.arrives(|pace| pace.head(self.head_at - self.sent_at));
        // hailo-ollama loads the model before its head; elsewhere the load cannot be told apart.
        if self.plan.dialect == Dialect::Hailo {
            if !self.was_loaded {
                self.plan.learned.load_took(self.head_at - self.sent_at);
            }
            self.plan.learned.loaded(self.sent_at, self.plan.keep_alive_s);
            if self.head_at - self.sent_at > LOADED_HEAD_MAX {
                self.plan.fresh_tokens = self.plan.prompt_tokens;
            }
        }
        self.ready.push_back(ChatDelta::Head);
        self.source = Source::Body(response.body);
        Ok(())
    }

    async fn await_piece(&mut self, mut body: HttpBody) -> Result<(), Fault> {
        let limits = self.plan.limits;
        let patience = match self.tokens_at {
            _ if self.plan.decode.is_closing() => Instant::now() + CLOSING_TIMEOUT,
            None => self.head_at + limits.first_token,
            Some(_) => self.alive_at + limits.between_tokens,
        };
        let whole = self.head_at + limits.whole;
        let mut out = Vec::new();
        match timeout_at(patience.min(whole), body.next()).await {
            Ok(Some(Ok(bytes))) => {
                let decoded = self.plan.decode.piece(&bytes, &mut out);
                let alive = *decoded.as_ref().unwrap_or(&false);
                let finished = self.accept(out, alive)?;
                decoded.map_err(|fault| self.placed(fault))?;
                if !finished {
                    self.source = Source::Body(body);
                }
                Ok(())
            }
            Ok(None) => self.cut("the stream ended without its last line"),
            Ok(Some(Err(error))) => self.cut(&error.to_string()),
            Err(_) => self.silence(Instant::now() >= whole),
        }
    }

    /// Takes decoded deltas on. True if the answer is complete.
    fn accept(&mut self, deltas: Vec<ChatDelta>, alive: bool) -> Result<bool, Fault> {
        let now = Instant::now();
        if alive {
            self.alive_at = now;
        }
        for delta in deltas {
            match &delta {
                ChatDelta::Head => {}
                ChatDelta::Text(text) => {
                    self.spoke |= !text.trim().is_empty();
                    self.token(text.len(), now);
                }
                ChatDelta::Thinking(text) => {
                    self.thought = true;
                    self.token(text.len(), now);
                }
                ChatDelta::ToolCall { arguments, .. } => {
                    self.spoke = true;
                    self.token(arguments.len(), now);
                }
                ChatDelta::Done(done) => {
                    let done = *done;
                    self.complete(done)?;
                    self.ready.push_back(delta);
                    return Ok(true);
                }
            }
            if self.bytes > ANSWER_BYTES_MAX {
                let text = format!("more than {ANSWER_BYTES_MAX} bytes");
                return Err(Fault::new(Class::BadOutput, Phase::Stream, text));
            }
            self.ready.push_back(delta);
        }
        Ok(false)
    }

    fn token(&mut self, bytes: usize, now: Instant) {
        self.tokens = self.tokens.saturating_add(1);
        self.bytes += bytes;
        if let Some((_, last)) = &mut self.tokens_at {
            let gap = now - std::mem::replace(last, now);
            self.plan.learned.arrives(|pace| pace.gap(gap));
            return;
        }
        self.tokens_at = Some((now, now));
        self.plan.learned.arrives(|pace| pace.first_token(now - self.sent_at));
        // hailo-ollama sends its head when prefill begins, the others when it is over.
        let began = match self.plan.dialect {
            Dialect::Hailo => Some(self.head_at),
            _ => self.was_loaded.then_some(self.sent_at),
        };
        if let Some(began) = began {
            self.plan.learned.first_token(self.plan.fresh_tokens, now - began);
        }
        self.plan.learned.loaded(self.sent_at, self.plan.keep_alive_s);
    }

    fn complete(&mut self, done: Done) -> Result<(), Fault> {
        if !self.spoke {
            let (class, text) = match (self.thought, done.reason) {
                (true, DoneReason::Length) => (Class::ThinkOverrun, "thought to the token bound"),
                _ => (Class::EmptyAnswer, "complete and empty"),
            };
            return Err(Fault::new(class, Phase::Stream, text));
        }
        let (first, last) = self.tokens_at.unwrap_or((self.head_at, self.head_at));
        // Hardly a token is without a byte; who tells more has not counted.
        let most = u32::try_from(self.bytes).unwrap_or(u32::MAX).saturating_add(self.tokens);
        let tokens = done.tokens.filter(|told| *told <= most).unwrap_or(self.tokens);
        self.plan.learned.answered(&self.plan.messages, tokens, last - first);
        Ok(())
    }

    /// The connection ended before the answer did.
    fn cut(&mut self, why: &str) -> Result<(), Fault> {
        let mut out = Vec::new();
        let ended = self.plan.decode.end(&mut out);
        if self.accept(out, false)? {
            return Ok(());
        }
        ended.map_err(|fault| self.placed(fault))?;
        let waited = self.head_at.elapsed();
        let phase = self.phase();
        // The server gives up at its own limit; jitter and a late head may make it seem earlier.
        let gave_up = self.plan.limits.gives_up.is_some_and(|limit| waited >= limit.mul_f32(0.9));
        let (class, text) = if phase == Phase::FirstToken && gave_up {
            let text = format!("closed {:.1} s after the head: {why}", waited.as_secs_f32());
            (Class::PrefillTimeout, text)
        } else {
            (Class::Truncated, format!("after {} tokens: {why}", self.tokens))
        };
        Err(Fault::new(class, phase, detail(&text)))
    }

    /// A limit passed.
    fn silence(&mut self, whole: bool) -> Result<(), Fault> {
        let mut out = Vec::new();
        let ended = self.plan.decode.end(&mut out);
        if self.accept(out, false)? {
            return Ok(());
        }
        ended.map_err(|fault| self.placed(fault))?;
        let limits = self.plan.limits;
        let (class, phase) = match self.phase() {
            Phase::FirstToken => (Class::Wedged, Phase::FirstToken),
            phase => (Class::Truncated, phase),
        };
        let text = match (whole, phase) {
            (true, _) => format!("not complete within {} s", limits.whole.as_secs_f32()),
            (_, Phase::FirstToken) => {
                format!("no token within {} s of the head", limits.first_token.as_secs_f32())
            }
            _ => format!("silent for {} s", limits.between_tokens.as_secs_f32()),
        };
        Err(Fault::new(class, phase, text))
    }

    fn phase(&self) -> Phase {
        if self.tokens_at.is_some() { Phase::Stream } else { Phase::FirstToken }
    }

    /// A decoder does not know in which phase it is.
    fn placed(&self, fault: Fault) -> Fault {
        Fault { phase: self.phase(), ..fault }
    }

    /// Learns from a fault on its way out.
    fn note(&self, mut fault: Fault) -> Fault {
        let learned = &self.plan.learned;
        if fault.class == Class::PrefillTimeout {
            fault.class = learned.prefill_timed_out(self.plan.prompt_tokens);
        }
        match fault.class {
            Class::ModelMissing => {
                self.plan.resolved.set(None);
                learned.model_gone();
            }
            Class::Unsupported(field) if self.plan.fields.contains(&field) => {
                learned.refuses(field);
            }
            // It complains of what was not sent: its words mean something else.
            Class::Unsupported(_) => fault.class = Class::ServerError,
            Class::Down
            | Class::Crashed
            | Class::DeviceBusy
            | Class::DeviceFault
            | Class::Poisoned
            | Class::ServerError => learned.unloaded(),
            // A server that was restarted has lost its model and is loading it again.
            Class::Wedged if fault.phase == Phase::Head => learned.unloaded(),
            _ => {}
        }
        fault
    }
}

/// The head, or the fault of a server that does not live while it is waited for.
async fn head(
    mut sending: BoxFuture<'static, Result<HttpResponse, HttpError>>,
    alive: Option<BoxFuture<'static, Result<(), Fault>>>,
) -> Result<Result<HttpResponse, HttpError>, Fault> {
    let Some(alive) = alive else { return Ok(sending.await) };
    let late = async {
        tokio::time::sleep(LOADED_HEAD_MAX).await;
        alive.await
    };
    tokio::select! {
        biased;
        head = &mut sending => return Ok(head),
        lives = late => lives?,
    }
    Ok(sending.await)
}

#[cfg(test)]
mod tests;
