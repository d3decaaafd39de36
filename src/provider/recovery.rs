//! Bringing backends up at start and back after a fault, beside everybody's work.
//!
//! A probe is the proof that a server can answer, in the order of what it costs: is it there and
//! has it the model, then a real answer of two tokens. "Load" is no proof: hailo-ollama confirms
//! it after a load that failed (specification 1.7).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Provider;
use super::backend::{ChatDelta, ChatRequest, Message, Presence, Role, Sampling};
use super::breaker::State;
use super::engine::Engine;
use super::fault::{Class, Fault, Phase};
use super::gate::Gate;
use super::lease::{Ask, Priority};

/// A server that starts beside us is looked for this often and this long before the breaker's
/// own rhythm takes over (specification 5A.9).
const START_POLL: Duration = Duration::from_millis(500);
const START_POLL_MAX: Duration = Duration::from_secs(60);

/// A probe as a whole, loading included: a first boot was seen to take 30 s on the NPU, and a
/// cold load from a card longer on the CPU (specification 5A.6).
const PROBE_MAX: Duration = Duration::from_secs(150);

/// How often it is looked whether a stand-in may let go of its model: it waits for minutes.
const GIVE_WAY_LOOK: Duration = Duration::from_secs(10);

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
    /// Warms up the first backend that is there, then probes those that have failed until `stop`.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn recover(self: Arc<Self>, stop: CancellationToken) {
        let work = async {
            let probing = join_all(self.engines.iter().map(|engine| keep_probing(engine)));
            tokio::join!(self.warm_up(), probing, self.give_way());
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Finds out which backends are there, and loads the model of the first one so that the first
    /// answer does not wait for it, and of those before it that appear while the machine still
    /// starts. No other: a CPU model held beside a healthy NPU costs 1.9 GB.
    async fn warm_up(&self) {
        let until = Instant::now() + START_POLL_MAX;
        let mut candidates = self.engines.as_slice();
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

    /// Lets stand-ins go when a backend before them has been usable for as long as they want: a
    /// model beside a healthy server is memory for nothing.
    async fn give_way(&self) {
        let mut usable_since = vec![None; self.engines.len()];
        loop {
            tokio::time::sleep(GIVE_WAY_LOOK).await;
            let now = Instant::now();
            let mut earliest: Option<Instant> = None;
            for (engine, since) in self.engines.iter().zip(&mut usable_since) {
                if let (Some(after), Some(earlier)) = (engine.backend.gives_way_after(), earliest)
                    && now.saturating_duration_since(earlier) >= after
                    && let Some(_slot) = slot(engine, Priority::OwnersJob).await
                {
                    let backend = engine.backend.name();
                    let result = engine.backend.unload().await;
                    engine.cache().forget();
                    tracing::info!(backend, well = result.is_ok(), "gave way");
                }
                *since = engine.gate.health().usable.then(|| since.unwrap_or(now));
                earliest = match (earliest, *since) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }
}

/// Whether the server is there and has the model. A closed breaker of a server that is not there
/// is opened, so that the status is the truth before anybody asks; an open one whose server has
/// come up is hurried.
async fn look(engine: &Engine) -> bool {
    let closed = engine.gate.health().state == State::Closed;
    match engine.backend.presence().await {
        Ok(presence) if presence.model.is_some() => {
            engine.gate.hurry();
            closed
        }
        Ok(presence) => {
            engine.gate.note_missing(missing(engine, &presence));
            false
        }
        Err(fault) => {
            if closed {
                engine.gate.found_gone(&fault.detail);
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

async fn load(engine: &Engine) -> bool {
    let Some(slot) = slot(engine, Priority::OwnersJob).await else { return false };
    let preempted = slot.preempted().clone();
    let warm = async {
        engine.backend.load().await?;
        answer(engine).await
    };
    tokio::select! {
        biased;
        // A person waits: whatever is loaded by now helps them, the rest they load themselves.
        () = preempted.cancelled() => true,
        result = tokio::time::timeout(PROBE_MAX, warm) => match result {
            Ok(Ok(())) => true,
            Ok(Err(fault)) => {
                let backend = engine.backend.name();
                tracing::warn!(backend, detail = fault.detail, "warm-up failed");
                false
            }
            Err(_) => false,
        },
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
            tracing::debug!(
                backend = engine.backend.name(),
                detail = fault.detail,
                "a probe failed"
            );
            permit.record(Err(&fault.detail));
        }
    }
    true
}

async fn prove(engine: &Engine) -> Result<(), Fault> {
    let presence = engine.backend.presence().await?;
    if presence.model.is_none() {
        return Err(Fault::new(Class::ModelMissing, Phase::Head, missing(engine, &presence)));
    }
    let Some(_slot) = slot(engine, Priority::Owner).await else {
        return Err(Fault::new(Class::Busy, Phase::Connect, "the slot is taken"));
    };
    engine.cache().forget();
    if engine.backend.record_outlives_failure() && !engine.gate.has_passed_a_probe() {
        engine.backend.unload().await?;
    }
    answer(engine).await?;
    // A warm model is part of being well: the next person should not pay for the load.
    engine.backend.load().await
}

async fn slot(engine: &Engine, priority: Priority) -> Option<super::lease::Slot> {
    let ask = Ask { priority, conversation: 0, expected: Duration::from_secs(10) };
    engine.lease.acquire(ask, |_| {}).await.ok()
}

/// A real answer of two tokens: success is at least one token and a proper end.
async fn answer(engine: &Engine) -> Result<(), Fault> {
    let message = |role, text: &str| Message { role, content: text.to_owned() };
    let messages = vec![message(Role::System, "Reply OK"), message(Role::User, "ping")];
    let request = ChatRequest {
        prompt_tokens: super::budget::prompt_tokens(&messages),
        messages,
        num_predict: PROBE_TOKENS,
        sampling: Sampling { temperature: Some(0.0), ..Sampling::default() },
        schema: None,
        tools: Vec::new(),
    };
    engine.cache().started(&request.messages);
    let mut stream = engine.backend.chat(request).await?;
    let mut tokens = 0_u32;
    while let Some(item) = stream.next().await {
        match item? {
            ChatDelta::Text(_) | ChatDelta::Thinking(_) | ChatDelta::ToolCall { .. } => tokens += 1,
            ChatDelta::Head => {}
            ChatDelta::Done(_) if tokens > 0 => return Ok(()),
            ChatDelta::Done(_) => {
                let detail = "the probe's answer had no token";
                return Err(Fault::new(Class::EmptyAnswer, Phase::Stream, detail));
            }
        }
    }
    Err(Fault::new(Class::Truncated, Phase::Stream, "the probe's answer just ended"))
}
