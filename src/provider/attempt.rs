//! One job tried on one backend: admission, slot, fitting, streaming, and a clean end.
//!
//! # Invariants
//! - Nothing is sent without a permit, the slot, and the proof that it fits.
//! - Whatever way this ends, dropping included, the slot stays taken for as long as the server is
//!   still busy with what it was sent.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answer::Answer;
use super::backend::{ChatDelta, ChatRequest, ChatStream, Done};
use super::breaker::{Outcome, Rejected};
use super::cache::Reuse;
use super::engine::Engine;
use super::fault::{Class, Fault, Next, Phase, judge};
use super::gate::Permit;
use super::in_flight::InFlight;
use super::lease::{Ask, Slot};
use super::prompt::{Fitted, Prompt, Share, fits};
use super::recovery;
use super::{Completed, Job, Progress, ToolCall};
use crate::event::{Event, Events};
use crate::limits;

/// A wait shorter than this is not announced: the words would flicker.
const ANNOUNCED_WAIT_MIN: Duration = Duration::from_millis(1500);

/// A server that counts less than this share of our estimate, in percent, has dropped part of the
/// prompt. The estimate is pessimistic by a third at most for ordinary text (`budget`), so an uncut
/// prompt counts 65 and more; one cut to half its size counts 35.
const COUNTED_PERCENT_MIN: u32 = 40;

/// How an attempt ended.
pub(super) enum Ended {
    /// The answer is complete.
    Done(Completed),
    /// The breaker is not closed; nothing was sent.
    NotAdmitted(Rejected),
    /// Too many wait for this backend; nothing was sent.
    Overloaded,
    /// Somebody more important wants the slot.
    Preempted,
    /// The job's deadline has passed.
    TooLate,
    /// The server failed.
    Faulted {
        /// How.
        fault: Fault,
        /// Whether the person has seen part of the answer.
        shown: bool,
        /// What to do if not.
        next: Next,
    },
}

/// What varies between the attempts of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variation {
    /// Replaces the job's seed on a retry after a bad answer.
    pub(super) seed: Option<u32>,
    /// Whether this is the one retry on this backend.
    pub(super) retried: bool,
}

/// Tries the job once.
///
/// # Cancel safety
/// Dropping the future cancels the request and frees the slot when the server is done with it.
pub(super) async fn run(
    engine: &Engine,
    job: &Job,
    prompt: &dyn Prompt,
    out: &mpsc::Sender<Progress>,
    variation: Variation,
) -> Ended {
    // Asked before waiting, so that nobody queues for a server that is known to be gone.
    if let Err(rejected) = engine.gate.admit().map(|permit| permit.record(Outcome::Abandoned, None))
    {
        return Ended::NotAdmitted(rejected);
    }
    let slot = match wait_for_slot(engine, job, out).await {
        Ok(slot) => slot,
        Err(ended) => return ended,
    };
    let permit = match engine.gate.admit() {
        Ok(permit) => permit,
        Err(rejected) => return Ended::NotAdmitted(rejected),
    };
    let capacity = engine.backend.capacity();
    let share = Share::of(capacity, job.answer_tokens);
    let fitted = match prompt.fit(share.prompt_tokens_max) {
        Ok(fitted) => fitted,
        Err(no_room) => {
            let fault = Fault::new(Class::OurBug, Phase::Connect, no_room.to_string());
            return settle(engine, permit, fault, false, true).await;
        }
    };
    let request = request(job, &fitted, share, variation);
    if !fits(&request, capacity) {
        debug_assert!(false, "a prompt was fitted beyond its budget");
        let detail = format!(
            "a prompt of {} tokens does not fit {} with an answer of {}",
            request.prompt_tokens, capacity.context_tokens, request.num_predict
        );
        return settle(
            engine,
            permit,
            Fault::new(Class::OurBug, Phase::Connect, detail),
            false,
            true,
        )
        .await;
    }
    let in_flight = InFlight::new(slot, &engine.backend, request.prompt_tokens);
    send(engine, job, out, Sending { permit, in_flight, request, fitted, variation }).await
}

/// Everything a request needs on its way.
struct Sending {
    permit: Permit,
    in_flight: InFlight,
    request: ChatRequest,
    fitted: Fitted,
    variation: Variation,
}

async fn wait_for_slot(
    engine: &Engine,
    job: &Job,
    out: &mpsc::Sender<Progress>,
) -> Result<Slot, Ended> {
    let ask = Ask {
        priority: job.priority,
        conversation: conversation(&job.conversation),
        expected: expected(engine, job),
    };
    let announce = |about: Duration| {
        // A full queue means that the person has newer things to read.
        let _ = out.try_send(Progress::Waiting { about });
    };
    match tokio::time::timeout_at(job.deadline, engine.lease.acquire(ask, announce)).await {
        Ok(Ok(slot)) => Ok(slot),
        Ok(Err(super::lease::Overloaded)) => Err(Ended::Overloaded),
        Err(_) => Err(Ended::TooLate),
    }
}

/// Sends the request and relays the answer.
async fn send(
    engine: &Engine,
    job: &Job,
    out: &mpsc::Sender<Progress>,
    mut sending: Sending,
) -> Ended {
    let name = engine.backend.name();
    let relayed = sending.fitted.voices.iter().any(|voice| **voice != *name);
    let reuse = engine.cache().compare(&sending.request.messages, relayed);
    let fresh_tokens = match reuse {
        Reuse::Continues { fresh_tokens } => fresh_tokens,
        Reuse::Shares { fresh_tokens } if !engine.backend.record_outlives_failure() => fresh_tokens,
        Reuse::Shares { .. } => sending.request.prompt_tokens,
        Reuse::ExtendsAborted => sending.request.prompt_tokens,
    };
    if reuse == Reuse::ExtendsAborted && engine.backend.record_outlives_failure() {
        // The owner of the conversation should have marked the aborted turn; this is the second
        // lock on the same door.
        let cleared = recovery::command(&mut sending.in_flight, engine.backend.unload()).await;
        match cleared {
            Ok(()) => engine.cache().forget(),
            Err(fault) => return failed(engine, sending, fault, false).await,
        }
    }
    let about = engine.backend.first_token_estimate(fresh_tokens);
    if about >= ANNOUNCED_WAIT_MIN {
        let _ = out.try_send(Progress::Waiting { about });
    }
    engine.cache().started(&sending.request.messages);
    sending.in_flight.sent();
    let share = sending.request.num_predict;
    let sent_at = Instant::now();
    let result = match engine.backend.chat(sending.request.clone()).await {
        Ok(stream) => {
            let mut answer = Answer::new(engine.backend.think_mode(), share);
            let ended = relay(stream, job, out, &mut sending.in_flight, &mut answer).await;
            ended.map(|done| (done, answer))
        }
        Err(fault) => Err((Stop::Fault(fault), false)),
    };
    match result {
        Ok((done, answer)) => {
            sending.in_flight.complete = true;
            engine.cache().finished(answer.raw());
            let fresh = matches!(reuse, Reuse::Shares { .. })
                && fresh_tokens == sending.request.prompt_tokens;
            check_count(engine, &job.events, &sending.request, fresh, done);
            sending.permit.record(Outcome::Success, None);
            Ended::Done(answer.complete(engine, done, sending.fitted.clipped, sent_at))
        }
        Err((Stop::Preempted, _)) => Ended::Preempted,
        Err((Stop::Deadline, _)) => Ended::TooLate,
        Err((Stop::Fault(fault), shown)) => failed(engine, sending, fault, shown).await,
    }
}

/// The end of a request that its server failed.
async fn failed(engine: &Engine, mut sending: Sending, fault: Fault, shown: bool) -> Ended {
    sending.in_flight.complete |= !fault.leaves_server_busy();
    let ended = settle(engine, sending.permit, fault, shown, sending.variation.retried).await;
    // Only now: the cure above must not meet another request.
    drop(sending.in_flight);
    ended
}

/// Why a relay stopped before the answer was complete.
enum Stop {
    Preempted,
    Deadline,
    Fault(Fault),
}

/// Reads the stream to its end and passes on what the person may see.
async fn relay(
    mut stream: ChatStream,
    job: &Job,
    out: &mpsc::Sender<Progress>,
    in_flight: &mut InFlight,
    answer: &mut Answer,
) -> Result<Done, (Stop, bool)> {
    let preempted = in_flight.preempted();
    loop {
        let item = tokio::select! {
            biased;
            () = preempted.cancelled() => return Err((Stop::Preempted, answer.was_shown())),
            () = tokio::time::sleep_until(job.deadline) => {
                return Err((Stop::Deadline, answer.was_shown()));
            }
            item = stream.next() => item,
        };
        let text = match item {
            Some(Ok(ChatDelta::Head)) => {
                continue;
            }
            Some(Ok(ChatDelta::Text(text))) => {
                in_flight.token_seen = true;
                answer.take(&text)
            }
            Some(Ok(ChatDelta::Thinking(_))) => {
                in_flight.token_seen = true;
                answer.thought().map(|()| String::new())
            }
            Some(Ok(ChatDelta::ToolCall { id, name, arguments })) => {
                in_flight.token_seen = true;
                answer.call(ToolCall { id, name, arguments });
                Ok(String::new())
            }
            Some(Ok(ChatDelta::Done(done))) => {
                let rest = answer.finish();
                answer.show(rest, out).await;
                return if answer.says_something() {
                    Ok(done)
                } else {
                    let detail = "the answer was complete and had no words";
                    let fault = Fault::new(Class::EmptyAnswer, Phase::Stream, detail);
                    // The server is done with it: nothing lingers.
                    in_flight.complete = true;
                    Err((Stop::Fault(fault), false))
                };
            }
            Some(Err(fault)) => Err(fault),
            None => Err(Fault::new(Class::Truncated, Phase::Stream, "the stream just ended")),
        };
        match text {
            Ok(text) => answer.show(text, out).await,
            Err(fault) => return Err((Stop::Fault(fault), answer.was_shown())),
        }
    }
}

/// Tells the breaker, heals the server if that is known to help, and says what comes next.
async fn settle(
    engine: &Engine,
    permit: Permit,
    fault: Fault,
    shown: bool,
    retried: bool,
) -> Ended {
    let verdict = judge(&fault, retried);
    let fault = engine.explained(fault);
    permit.record(verdict.breaker, Some(&fault));
    if verdict.unload {
        // If it did not help, that shows at the next request.
        if engine.backend.unload().await.is_ok() {
            engine.cache().forget();
        }
    }
    if matches!(fault.class, Class::Down | Class::Crashed) {
        engine.cache().forget();
    }
    Ended::Faulted { fault, shown, next: verdict.next }
}

fn request(job: &Job, fitted: &Fitted, share: Share, variation: Variation) -> ChatRequest {
    let mut sampling = job.sampling;
    if variation.seed.is_some() {
        sampling.seed = variation.seed;
    }
    ChatRequest {
        messages: fitted.messages.clone(),
        num_predict: share.num_predict.min(job.answer_tokens_max.unwrap_or(u32::MAX)).max(1),
        prompt_tokens: super::budget::prompt_tokens(&fitted.messages),
        sampling,
        schema: job.schema.clone(),
        tools: job.tools.clone(),
    }
}

/// How long a job will hold the slot: time to the first token, then decoding at the known rate.
fn expected(engine: &Engine, job: &Job) -> Duration {
    // 7.5 tokens a second is the middle of what the NPU reaches (specification 1.11).
    let rate = engine.backend.tokens_per_s().unwrap_or(7.5).max(0.1);
    // A typical answer uses about half of what it may.
    let tokens = f32::from(u16::try_from(job.answer_tokens / 2).unwrap_or(u16::MAX));
    engine.backend.first_token_estimate(limits::IDENTITY_TOKENS_MAX)
        + Duration::from_secs_f32(tokens / rate)
}

fn conversation(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Compares the server's own count with the least the prompt can have: a server that cuts the
/// prompt in silence must not go unnoticed. Counts of cached prompts mean nothing, because some
/// servers leave the cached part out.
fn check_count(engine: &Engine, events: &Events, request: &ChatRequest, fresh: bool, done: Done) {
    let expected = request.prompt_tokens.saturating_mul(COUNTED_PERCENT_MIN) / 100;
    if let Some(counted) = done.prompt_tokens
        && (fresh || engine.backend.counts_cached_tokens())
        && counted > 0
        && counted < expected
    {
        events.tell(Event::PromptTruncated {
            backend: engine.backend.name().to_owned(),
            counted,
            expected,
        });
    }
}
