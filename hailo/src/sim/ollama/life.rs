//! The life of one generation: scheduler, truncation, slot, prefill, tokens, last line; with the
//! faults of the scenario at each phase, and an end as soon as the client has left.

use std::{io, time::Duration};

use super::{
    answers::{End, Metrics},
    engine::Sim,
    models::Model,
    out::Out,
    prompt::{self, Fitted, content_tokens},
    request::{Refusal, Request},
    runners::{Denied, Lease, SlotLease, Waiter},
    words::{self, Words},
};
use crate::sim::{
    clock::{Halt, Woke},
    log::{self, Event},
    scenario::{Fault, Phase},
    wire::Witness,
};

/// Equal tokens in a row that Ollama bears; one more ends the stream without its last line.
const REPEATS_MAX: u32 = 30;

/// Tokens a generation without a limit may have, in contexts.
const UNBOUNDED_CONTEXTS: usize = 10;

/// The 503's text, with its two spaces.
const BUSY: &str = "server busy, please try again.  maximum pending requests exceeded";

/// The 500's text when a runner vanished under its requests.
const RUNNER_STOPPED: &str = "model runner has unexpectedly stopped, this may be due to resource \
                              limitations or an internal error, check ollama server logs for \
                              details";

/// The text for a prompt that leaves no room when the context may not slide.
const NO_ROOM: &str = "the prompt is longer than the context length currently available to the \
                       model; shorten it or raise num_ctx";

/// How a generation ended, for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The next request may come.
    Keep,
    /// FIN.
    Close,
    /// RST.
    Reset,
}

/// Why a generation did not reach its last line.
pub(super) enum Stop {
    /// It ends with an error.
    Refused(Refusal),
    /// FIN in the middle.
    Close,
    /// RST in the middle.
    Reset,
    /// The body ends, its last line missing.
    Short,
    /// The client has left.
    Gone,
    /// The process ends.
    Halted,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What is known of a request when it is accepted for execution.
pub(super) struct Accepted<'a> {
    /// Number of the request in the log.
    pub(super) number: u64,
    /// What was asked.
    pub(super) request: &'a Request,
    /// The model it names.
    pub(super) model: &'a Model,
    /// What shall go wrong.
    pub(super) faults: Vec<Fault>,
    /// The client's socket.
    pub(super) witness: &'a Witness,
    /// The life of the process.
    pub(super) halt: Halt,
}

/// Runs a generation to its end and says what becomes of the connection.
pub(super) fn run(sim: &Sim, accepted: Accepted<'_>, out: &mut Out<'_>) -> After {
    let number = accepted.number;
    let stop = Life { sim, accepted, out }.run().err();
    let (after, end) = match stop {
        None => (After::Keep, log::End::Done),
        Some(Stop::Refused(refusal)) => match out.refuse(&refusal) {
            Ok(()) => (After::Keep, log::End::Error),
            Err(_) => (After::Close, log::End::Gone),
        },
        Some(Stop::Short) => match out.finish(None) {
            Ok(()) => (After::Keep, log::End::Cut),
            Err(_) => (After::Close, log::End::Gone),
        },
        Some(Stop::Close) => (After::Close, log::End::Cut),
        Some(Stop::Reset) => (After::Reset, log::End::Reset),
        Some(Stop::Gone) => (After::Close, log::End::Gone),
        Some(Stop::Halted) => (After::Reset, log::End::Halted),
    };
    sim.log.add(number, Event::Ended { end, sent: out.sent });
    after
}

/// Loads a model without generating; answers how long it took. An error without a refusal means
/// that nobody is there to be answered.
pub(super) fn load(sim: &Sim, accepted: &Accepted<'_>) -> Result<Duration, Option<Refusal>> {
    let options = accepted.request.runner.clone().resolved(sim.num_ctx);
    let gone = || accepted.witness.peer_gone();
    let waiter = Waiter { clock: &sim.clock, halt: &accepted.halt, gone: &gone, load_fault: None };
    let keep_alive = accepted.request.keep_alive;
    match sim.scheduler.acquire(accepted.model, &options, keep_alive, &waiter) {
        Ok(lease) => {
            if lease.loaded {
                let model = accepted.model.name.clone();
                let load_ms = millis(lease.load);
                sim.log.add(accepted.number, Event::Loaded { model, load_ms });
            }
            Ok(lease.load)
        }
        Err(denied) => match denial(sim, denied) {
            Stop::Refused(refusal) => Err(Some(refusal)),
            _ => Err(None),
        },
    }
}

/// What a request without a runner or a slot is told.
fn denial(sim: &Sim, denied: Denied) -> Stop {
    match denied {
        Denied::Busy => Refusal::new(503, BUSY).into(),
        Denied::OutOfMemory => Refusal::new(500, sim.version.runner_died("signal: killed")).into(),
        Denied::RunnerDied => Refusal::new(500, RUNNER_STOPPED).into(),
        Denied::Gone => Stop::Gone,
        Denied::Halted | Denied::Fault => Stop::Halted,
    }
}

/// A generation under way.
pub(super) struct Life<'s, 'a, 'o, 'c> {
    pub(super) sim: &'s Sim,
    pub(super) accepted: Accepted<'a>,
    pub(super) out: &'o mut Out<'c>,
}

impl<'s> Life<'s, '_, '_, '_> {
    fn run(mut self) -> Result<(), Stop> {
        let sim = self.sim;
        let started = sim.clock.now();
        self.act(Phase::BeforeHead)?;
        let lease = self.runner()?;
        let fitted = self.fitted()?;
        let witness = self.accepted.witness;
        let gone = || witness.peer_gone();
        let halt = self.accepted.halt.clone();
        let waiter = Waiter { clock: &sim.clock, halt: &halt, gone: &gone, load_fault: None };
        let asked = sim.clock.now();
        let slot =
            lease.slot(&fitted.tokens, &waiter).map_err(|denied| denial(self.sim, denied))?;
        let waited_ms = millis(sim.clock.now().saturating_sub(asked));
        self.log(Event::LockTaken { waited_ms, ghost: false });
        let began = sim.clock.now();
        // Before the wait for prefill, so that a real model's slowness hides in it.
        let words =
            words::choose(sim, self.accepted.number, self.accepted.request, self.accepted.model);
        let prefill = self.prefill(&lease, &slot, &fitted, began)?;
        let decoded = self.decode(&lease, &words, fitted.tokens.len());
        self.settle(&slot);
        let (reason, count) = decoded?;
        let eval = self.token_time().saturating_mul(count);
        let decode_ms = millis(eval);
        self.log(Event::Generated { tokens: count, decode_ms, reason: reason.to_owned() });
        self.act(Phase::BeforeDone)?;
        let evaluated = if sim.version.counts_cached() { fitted.tokens.len() } else { slot.fresh };
        let metrics = Metrics {
            total_duration: nanos(sim.clock.now().saturating_sub(started)),
            load_duration: nanos(lease.load),
            prompt_eval_count: evaluated as u64,
            prompt_eval_duration: nanos(prefill),
            eval_count: u64::from(count),
            eval_duration: nanos(eval),
        };
        drop(slot);
        drop(lease);
        self.out.finish(Some(End { reason, metrics }))?;
        Ok(())
    }

    pub(super) fn log(&self, event: Event) {
        self.sim.log.add(self.accepted.number, event);
    }

    fn runner(&mut self) -> Result<Lease<'s>, Stop> {
        let sim = self.sim;
        let options = self.accepted.request.runner.clone().resolved(sim.num_ctx);
        let witness = self.accepted.witness;
        let gone = || witness.peer_gone();
        let halt = self.accepted.halt.clone();
        let planned = self.accepted.faults.iter().find(|fault| fault.phase == Phase::DuringLoad);
        let load_fault = planned.map(|fault| fault.kind.clone());
        let waiter =
            Waiter { clock: &sim.clock, halt: &halt, gone: &gone, load_fault: load_fault.as_ref() };
        let keep_alive = self.accepted.request.keep_alive;
        let lease = sim.scheduler.acquire(self.accepted.model, &options, keep_alive, &waiter);
        match lease {
            Ok(lease) => {
                if lease.loaded {
                    let model = self.accepted.model.name.clone();
                    self.log(Event::Loaded { model, load_ms: millis(lease.load) });
                }
                Ok(lease)
            }
            Err(Denied::Fault) => Err(self.act(Phase::DuringLoad).err().unwrap_or(Stop::Halted)),
            Err(denied) => Err(denial(self.sim, denied)),
        }
    }

    fn fitted(&self) -> Result<Fitted, Stop> {
        let request = self.accepted.request;
        let num_ctx = request.runner.clone().resolved(self.sim.num_ctx).num_ctx();
        let tools: String = request.tools.iter().map(|tool| format!("{tool} ")).collect();
        let version = &self.sim.version;
        let fitted = prompt::fit(version, &tools, &request.messages, num_ctx, request.truncate)
            .map_err(|long| Refusal::new(400, version.overflow_error(long.tokens, num_ctx)))?;
        if fitted.cut && !request.shift && version.knows_truncate() {
            return Err(Refusal::new(400, NO_ROOM).into());
        }
        self.sim.facts(|facts| {
            facts.prompt_tokens = count(fitted.tokens.len());
            facts.truncated += u64::from(fitted.cut || fitted.dropped > 0);
        });
        Ok(fitted)
    }

    /// The time for the part of the prompt that the slot does not hold.
    fn prefill(
        &mut self,
        lease: &Lease<'_>,
        slot: &SlotLease<'_, '_>,
        fitted: &Fitted,
        began: Duration,
    ) -> Result<Duration, Stop> {
        let sim = self.sim;
        let total = fitted.tokens.len();
        let cached = total - slot.fresh;
        sim.facts(|facts| facts.prefilled_tokens = count(slot.fresh));
        let takes = Duration::try_from_secs_f64(slot.fresh as f64 / sim.prefill_tps);
        let takes = takes.unwrap_or_default();
        self.log(Event::Prefill {
            continuation: slot.continues,
            tokens: count(slot.fresh),
            cached: count(cached),
            prefill_ms: millis(takes),
        });
        sim.presence.count(|counters| counters.continuations += u64::from(slot.continues));
        if let Err(stop) = self.sleep_until(began.saturating_add(takes)) {
            let done = sim.clock.now().saturating_sub(began).as_secs_f64() * sim.prefill_tps;
            slot.keep(cached + (done as usize).min(slot.fresh));
            return Err(stop);
        }
        if !lease.alive() {
            return Err(denial(self.sim, Denied::RunnerDied));
        }
        if self.accepted.faults.iter().any(|fault| fault.phase == Phase::AfterHead) {
            self.head()?;
            self.act(Phase::AfterHead)?;
        }
        Ok(takes)
    }

    /// The tokens; answers why they ended and how many they were.
    fn decode(
        &mut self,
        lease: &Lease<'_>,
        words: &Words,
        prompt: usize,
    ) -> Result<(&'static str, u32), Stop> {
        let request = self.accepted.request;
        let num_ctx = request.runner.clone().resolved(self.sim.num_ctx).num_ctx();
        let limit = request.sampling.num_predict.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.filter(|limit| *limit > 0).unwrap_or(UNBOUNDED_CONTEXTS * num_ctx);
        let room = if request.shift { usize::MAX } else { num_ctx.saturating_sub(prompt) };
        let thinking = words.thinking.iter().map(|token| (token, true));
        let answer = words.tokens.iter().map(|token| (token, false));
        let mut last = String::new();
        let mut repeats = 0;
        let mut made = 0;
        for (token, is_thinking) in thinking.chain(answer) {
            if made as usize >= limit.min(room) {
                return Ok(("length", made));
            }
            self.sleep(self.token_time())?;
            if !lease.alive() {
                return Err(denial(self.sim, Denied::RunnerDied));
            }
            repeats = if token.trim() == last { repeats + 1 } else { 0 };
            if repeats > REPEATS_MAX {
                return Err(Stop::Short);
            }
            token.trim().clone_into(&mut last);
            made += 1;
            if words.call.is_none() || is_thinking {
                self.head()?;
                self.out.token(token, is_thinking)?;
            }
            self.act(Phase::Token(made))?;
        }
        if let Some((name, arguments)) = &words.call {
            self.head()?;
            self.out.call(name, arguments)?;
        }
        Ok(("stop", made))
    }

    /// Leaves in the slot what was decoded. A thought is not in the next prompt, so that the next
    /// prompt differs from where it began.
    fn settle(&self, slot: &SlotLease<'_, '_>) {
        if self.out.has_thought() {
            slot.decoded(&content_tokens("<think>"));
        }
        slot.decoded(&content_tokens(self.out.content()));
        slot.decoded(&[prompt::end_token()]);
    }

    fn head(&mut self) -> Result<(), Stop> {
        if self.out.head()? {
            self.log(Event::HeadSent { status: 200 });
            self.log(Event::FirstToken);
        }
        Ok(())
    }

    fn token_time(&self) -> Duration {
        let rate = self.sim.decode_tps * self.sim.rate();
        Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX)
    }

    pub(super) fn sleep(&self, simulated: Duration) -> Result<(), Stop> {
        self.sleep_until(self.sim.clock.now().saturating_add(simulated))
    }

    fn sleep_until(&self, until: Duration) -> Result<(), Stop> {
        let witness = self.accepted.witness;
        match self.sim.clock.sleep_until(until, &self.accepted.halt, || witness.peer_gone()) {
            Woke::Due => Ok(()),
            Woke::Asked => Err(Stop::Gone),
            Woke::Halted => Err(Stop::Halted),
        }
    }
}

/// Milliseconds for the log.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Nanoseconds for the metrics.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Tokens for the log and the state.
fn count(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
