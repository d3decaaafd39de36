//! Bringing backends up at start and back after a fault, beside everybody's work.
//!
//! A probe is the proof that a server can answer, in the order of what it costs: is it there and
//! has it the model, then a real answer of two tokens. "Load" is no proof: hailo-ollama confirms
//! it after a load that failed (specification 1.7).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backend::{ChatDelta, ChatRequest, Message, Presence, Role, Sampling};
use super::breaker::{Outcome, State};
use super::engine::Engine;
use super::fault::{Class, Fault, Phase, judge};
use super::gate::Gate;
use super::in_flight::InFlight;
use super::lease::{Ask, Priority};
use super::{Job, Provider, kept};

/// A server that starts beside us is looked for this often and this long before the breaker's
/// own rhythm takes over (specification 5A.9).
const START_POLL: Duration = Duration::from_millis(500);
const START_POLL_MAX: Duration = Duration::from_secs(60);

/// No model loads faster than this; the fastest published load takes 3.5 s (specification 1.11).
const LOAD_MIN: Duration = Duration::from_secs(1);

/// When no backend is usable and a person waits, all probes are hurried and given this long. A
/// server that is back answers a probe within about a second; one that refuses ends the wait at
/// once.
pub(super) const RECOVERY_WAIT: Duration = Duration::from_secs(3);

/// A probe as a whole, loading included: a first boot was seen to take 30 s on the NPU, and a
/// cold load from a card longer on the CPU (specification 5A.6).
const PROBE_MAX: Duration = Duration::from_secs(150);

/// How often a model that is missing is looked for: whoever has just fetched it may wait so long
/// for the status to say it. Questions are tried at any time.
const MISSING_LOOK: Duration = Duration::from_secs(10);

/// Tokens of a probe's answer: one would do, two show that decoding goes on.
const PROBE_TOKENS: u32 = 2;

/// Resolves when the gate has closed (true) or its probe has failed (false).
pub(super) async fn settled(gate: &Arc<Gate>) -> bool {
    let mut probed = false;
    loop {
        let changed = gate.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match gate.health().state {
            State::Closed => return true,
            State::HalfOpen { .. } => probed = true,
            State::Open { until } if probed || until > Instant::now() => return false,
            State::Open { .. } => {}
        }
        changed.await;
    }
}

impl Provider {
    /// Makes all due probes run now and waits for one to pass. False at once if all have failed.
    pub(super) async fn hurried(&self, order: &[Arc<Engine>], job: &Job) -> bool {
        if job.priority != Priority::Owner {
            return false;
        }
        let open: Vec<_> =
            order.iter().filter(|engine| engine.gate.health().state != State::Closed).collect();
        if open.is_empty() {
            return false;
        }
        let waits = open.iter().map(|engine| {
            engine.gate.hurry();
            Box::pin(settled(&engine.gate))
        });
        let mut waits: Vec<_> = waits.collect();
        let until = (Instant::now() + RECOVERY_WAIT).min(job.deadline);
        while !waits.is_empty() {
            let next = tokio::time::timeout_at(until, futures_util::future::select_all(waits));
            match next.await {
                Ok((true, _, _)) => return true,
                Ok((false, _, rest)) => waits = rest,
                Err(_) => return false,
            }
        }
        false
    }

    /// Warms up the first backend that is there, then probes those that have failed until `stop`.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn recover(self: Arc<Self>, stop: CancellationToken) {
        let work = async {
            let probing = join_all(self.engines.iter().map(|engine| keep_probing(engine)));
            let start = async {
                self.warm_up().await;
                self.ready_the_stand_in().await;
            };
            let watching = async {
                tokio::join!(self.watch_for_hangs(), self.look_for_missing(), self.keep_notes())
            };
            tokio::join!(start, probing, watching, self.give_way());
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
        self.write_notes();
    }

    /// Finds out which backends are there, and loads the model of the first one so that the first
    /// answer does not wait for it, and of those before it that appear while the machine still
    /// starts. No other: a CPU model held beside a healthy NPU costs 1.9 GB.
    async fn warm_up(&self) {
        let until = Instant::now() + START_POLL_MAX;
        let mut candidates = self.engines.as_slice();
        // All of them once, so that the status of those that are not needed is the truth too.
        join_all(candidates.iter().map(|engine| look(engine))).await;
        while !candidates.is_empty() && Instant::now() < until {
            for (index, engine) in candidates.iter().enumerate() {
                if look(engine).await && load(engine).await {
                    candidates = &candidates[..index];
                    break;
                }
            }
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// Finds out that a model which was missing has come.
    async fn look_for_missing(&self) {
        loop {
            tokio::time::sleep(MISSING_LOOK).await;
            for engine in &self.engines {
                if engine.gate.misses_model() {
                    look(engine).await;
                }
            }
        }
    }
}

/// Whether the server is there and has the model. A closed breaker of a server that is not there
/// is opened, so that the status is the truth before anybody asks; an open one whose server has
/// come up is hurried.
pub(super) async fn look(engine: &Engine) -> bool {
    let closed = engine.gate.health().state == State::Closed;
    match engine.backend.presence().await {
        Ok(presence) if presence.model.is_some() => {
            kept::recognise(engine, &presence).await;
            engine.gate.note_found();
            engine.gate.hurry();
            closed
        }
        Ok(presence) => {
            engine.gate.note_missing(missing(engine, &presence));
            false
        }
        Err(fault) if fault.class == Class::ModelMissing => {
            engine.gate.note_missing(fault.detail);
            false
        }
        Err(fault) => {
            if closed {
                engine.gate.found_gone(&engine.explained(fault));
            }
            false
        }
    }
}

fn missing(engine: &Engine, presence: &Presence) -> String {
    let offered = match presence.offered.as_slice() {
        [] => "no models at all".to_owned(),
        names => names.join(", "),
    };
    format!("{} does not have {}; it has {offered}", presence.server, engine.backend.model())
}

/// Loads the model and tries it. A person who comes meanwhile waits for the load: it cannot be
/// called back, and theirs would only queue behind it inside the server.
pub(super) async fn load(engine: &Engine) -> bool {
    let Some(mut in_flight) = in_flight(engine, Priority::OwnersJob).await else { return false };
    // A person was answered while this waited for the slot: the model is warm, and another prompt
    // would drop their conversation from the server's cache.
    if engine.cache().holds_exchange() {
        return true;
    }
    // A breaker that opened meanwhile has a prober of its own, which loads as well.
    let is_open = || engine.gate.health().state != State::Closed;
    if is_open() {
        return false;
    }
    let preempted = in_flight.preempted();
    let warm = async {
        let began = Instant::now();
        command(&mut in_flight, engine.backend.load()).await?;
        if is_open() {
            return Ok(());
        }
        if began.elapsed() < LOAD_MIN {
            // It was loaded already, and its cache may hold the person's conversation.
            return Ok(());
        }
        tokio::select! {
            biased;
            // The model is loaded, which is what helps them.
            () = preempted.cancelled() => Ok(()),
            answered = answer(engine, &mut in_flight) => answered,
        }
    };
    match tokio::time::timeout(PROBE_MAX, warm).await {
        Ok(Ok(())) => true,
        Ok(Err(fault)) => {
            let backend = engine.backend.name();
            tracing::warn!(backend, detail = fault.detail, "warm-up failed");
            if judge(&fault, true).breaker == Outcome::Trip {
                engine.gate.found_gone(&engine.explained(fault));
            }
            false
        }
        Err(_) => false,
    }
}

async fn keep_probing(engine: &Engine) {
    loop {
        let changed = engine.gate.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match engine.gate.health().state {
            State::Closed => changed.await,
            State::Open { until } if until > Instant::now() => {
                tokio::select! {
                    biased;
                    () = &mut changed => {}
                    () = tokio::time::sleep_until(until) => {}
                }
            }
            State::Open { .. } | State::HalfOpen { .. } => {
                if !probe(engine).await {
                    changed.await;
                }
            }
        }
    }
}

/// Runs one probe. False if none was due.
async fn probe(engine: &Engine) -> bool {
    let Some(permit) = engine.gate.admit_probe() else { return false };
    let result = tokio::time::timeout(PROBE_MAX, prove(engine)).await;
    let result = result.unwrap_or_else(|_| {
        Err(Fault::new(Class::Wedged, Phase::Head, "the probe was not answered"))
    });
    match result {
        Ok(()) => permit.record(Ok(())),
        Err(fault) => {
            let fault = engine.explained(fault);
            let backend = engine.backend.name();
            tracing::debug!(backend, detail = fault.detail, "a probe failed");
            permit.record(Err(&fault));
        }
    }
    true
}

async fn prove(engine: &Engine) -> Result<(), Fault> {
    let presence = engine.backend.presence().await?;
    if presence.model.is_none() {
        return Err(Fault::new(Class::ModelMissing, Phase::Head, missing(engine, &presence)));
    }
    kept::recognise(engine, &presence).await;
    let Some(mut in_flight) = in_flight(engine, Priority::Owner).await else {
        return Err(Fault::new(Class::Busy, Phase::Connect, "the slot is taken"));
    };
    engine.cache().forget();
    if engine.backend.record_outlives_failure() && !engine.gate.has_passed_a_probe() {
        command(&mut in_flight, engine.backend.unload()).await?;
    }
    answer(engine, &mut in_flight).await?;
    // A warm model is part of being well: the next person should not pay for the load.
    command(&mut in_flight, engine.backend.load()).await
}

pub(super) async fn in_flight(engine: &Engine, priority: Priority) -> Option<InFlight> {
    let ask = Ask { priority, conversation: 0, expected: Duration::from_secs(10) };
    let slot = engine.lease.acquire(ask, |_| {}).await.ok()?;
    Some(InFlight::new(slot, &engine.backend, super::budget::prompt_tokens(&ping())))
}

/// A load or an unload. If it is dropped or not answered, the slot stays taken for its ghost.
pub(super) async fn command(
    in_flight: &mut InFlight,
    work: BoxFuture<'_, Result<(), Fault>>,
) -> Result<(), Fault> {
    in_flight.sent();
    let ended = work.await;
    in_flight.complete = ended.as_ref().err().is_none_or(|fault| !fault.leaves_server_busy());
    ended
}

fn ping() -> Vec<Message> {
    let message = |role, text: &str| Message { role, content: text.to_owned() };
    vec![message(Role::System, "Reply OK"), message(Role::User, "ping")]
}

/// A real answer of two tokens: success is at least one token and a proper end.
async fn answer(engine: &Engine, in_flight: &mut InFlight) -> Result<(), Fault> {
    let messages = ping();
    let request = ChatRequest {
        prompt_tokens: super::budget::prompt_tokens(&messages),
        messages,
        num_predict: PROBE_TOKENS,
        sampling: Sampling { temperature: Some(0.0), ..Sampling::default() },
        schema: None,
        tools: Vec::new(),
    };
    engine.cache().started(&request.messages);
    in_flight.sent();
    let ended = listen(engine, request, in_flight).await;
    in_flight.complete |= ended.as_ref().err().is_none_or(|fault| !fault.leaves_server_busy());
    if ended.is_ok() {
        // The server's cache holds this and nothing of before, and nobody goes on from here.
        engine.cache().forget();
    }
    ended
}

async fn listen(
    engine: &Engine,
    request: ChatRequest,
    in_flight: &mut InFlight,
) -> Result<(), Fault> {
    let mut stream = engine.backend.chat(request).await?;
    let mut tokens = 0_u32;
    while let Some(item) = stream.next().await {
        match item? {
            ChatDelta::Text(_) | ChatDelta::Thinking(_) | ChatDelta::ToolCall { .. } => {
                in_flight.token_seen = true;
                tokens += 1;
            }
            ChatDelta::Head => {}
            ChatDelta::Done(_) if tokens > 0 => return Ok(()),
            ChatDelta::Done(_) => {
                in_flight.complete = true;
                let detail = "the probe's answer had no token";
                return Err(Fault::new(Class::EmptyAnswer, Phase::Stream, detail));
            }
        }
    }
    Err(Fault::new(Class::Truncated, Phase::Stream, "the probe's answer just ended"))
}
