//! One generation: lock, load, comparison, head, prefill, decode, record.
//!
//! Waiting is planned on a cursor of simulated time, so that small delays of the machine do not
//! add up and the planned times can be asserted exactly.

use std::{sync::Arc, thread, time::Duration};

use super::{
    dto::Request,
    npu::{Need, Plan},
    openai,
    prompt::Prompt,
    reply::{Done, Shape, line},
    routes::{After, Exchange},
    words,
};
use crate::{
    model::{Model, Release},
    sim::{
        clock::Woke,
        log::{End, Event},
        scenario::{Fault, Phase},
        voice::Said,
    },
};

/// The server's read gives up when no token came for so long.
const READ_TIMEOUT_MS: u64 = 10_000;
/// Longest line the stream's buffer takes.
const LINE_BYTES_MAX: usize = 2048;
/// Tokens of an answer when the request names no limit.
const DEFAULT_LIMIT: u32 = 1024;
/// 5.1.1 waits before it loads.
const LOAD_PAUSE_5_1_1_MS: u64 = 2000;
/// The model that was seen to end 5.1.1 with a segmentation fault, every time.
const CRASHES_5_1_1: &str = "deepseek_r1_distill_qwen:1.5b";
/// Half the width of the jitter of a token, in millionths: a uniform spread of ±693 has the
/// measured coefficient of variation of 0.0004.
const JITTER_PPM: u64 = 693;

/// `Err` ends the generation.
pub(super) type Step = Result<(), After>;

pub(super) struct Generation<'a, 'b> {
    pub(super) exchange: &'a mut Exchange<'b>,
    pub(super) faults: Vec<Fault>,
    pub(super) head_sent: bool,
    /// The prompt has reached the device.
    pub(super) submitted: bool,
    /// Tokens written, or produced when nothing is streamed.
    pub(super) sent: u32,
    /// The simulator's number of resets when this began.
    pub(super) epoch: u64,
    model: &'static Model,
    request: Request,
    shape: Shape,
    random: fastrand::Rng,
    /// Simulated time of the next thing to happen.
    pub(super) cursor: Duration,
}

/// Chat, generate and v1; load and unload too, which are requests without messages.
pub(super) fn run(exchange: &mut Exchange<'_>, request: Request, shape: Shape) -> After {
    let sim = Arc::clone(exchange.sim);
    let Some(model) = sim.store.model(&request.model) else {
        return exchange.not_found(&request.model);
    };
    if request.tools && !has_tools(model) {
        return exchange.refused(400, &no_tools(model));
    }
    let generates = request.messages.is_some();
    let number = if generates { sim.next_generation() } else { 0 };
    let faults = if generates { sim.faults.take(number) } else { Vec::new() };
    exchange.inside = generates.then(|| sim.presence.enter(exchange.conn.witness().ok()));
    if let Some(inside) = &exchange.inside {
        sim.presence.count(|counters| counters.generations += 1);
        if inside.overlaps {
            sim.log.add(exchange.id, Event::Overlap);
        }
    }
    if !exchange.take_lock() {
        sim.log.add(exchange.id, Event::Ended { end: End::Halted, sent: 0 });
        return After::Ended;
    }
    let mut generation = Generation {
        faults,
        head_sent: false,
        submitted: false,
        sent: 0,
        epoch: sim.epoch(),
        model,
        request,
        shape,
        random: fastrand::Rng::with_seed(sim.seed ^ number.rotate_left(32)),
        cursor: sim.clock.now(),
        exchange,
    };
    let after = match generation.request.messages.take() {
        Some(messages) => generation.generate(messages).err().unwrap_or(After::Keep),
        None => generation.load_or_unload(),
    };
    exchange.inside = None;
    exchange.free_lock();
    after
}

impl Generation<'_, '_> {
    fn load_or_unload(&mut self) -> After {
        let reason = if self.request.keep_alive == Some(0) {
            self.exchange.life.npu(super::npu::Npu::unload);
            self.log(Event::Unloaded { why: "asked".into() });
            "unload"
        } else {
            // A poisoned server believes the model is there and says so.
            if self.exchange.life.npu(|npu| npu.need(self.model)) == Need::Load
                && let Err(after) = self.load()
            {
                return after;
            }
            self.keep();
            "load"
        };
        let done = Done { reason, ..Done::default() };
        self.exchange.json(200, &line(self.shape, self.model.name, "", Some(done)))
    }

    fn generate(&mut self, messages: Vec<Said>) -> Step {
        self.act(Phase::BeforeHead)?;
        match self.exchange.life.npu(|npu| npu.need(self.model)) {
            Need::Ready => {}
            Need::Load => self.load()?,
            Need::Poisoned => return Err(self.poisoned()),
        }
        self.keep();
        if self.request.top_k == Some(0) && self.exchange.sim.options.top_k_zero_crashes {
            return Err(self.crash("top_k 0"));
        }
        if self.model.name == CRASHES_5_1_1 && self.exchange.sim.release == Release::V5_1_1 {
            return Err(self.crash("this model does not run in this release"));
        }
        let newest = messages.last().map(|said| said.content.clone()).unwrap_or_default();
        let prompt = Prompt { messages, tools: self.request.tools };
        let plan = self.submit(&prompt)?;
        let began = self.cursor;
        if self.request.stream {
            self.head()?;
        }
        self.act(Phase::AfterHead)?;
        let words = words::start(self.exchange.sim, self.model, prompt.messages, newest);
        self.prefill(plan)?;
        let words = self.spoken(words);
        let decode_from = self.cursor;
        let (content, reason) = self.decode(words)?;
        let decode = self.cursor.saturating_sub(decode_from);
        self.log(Event::Generated {
            tokens: self.sent,
            decode_ms: u64::try_from(decode.as_millis()).unwrap_or(u64::MAX),
            reason: reason.into(),
        });
        self.act(Phase::BeforeDone)?;
        self.exchange.life.npu(|npu| npu.record(&content));
        self.submitted = false;
        let total = self.cursor.saturating_sub(began);
        self.finish(&content, reason, total)
    }

    fn load(&mut self) -> Step {
        let loaded = self.try_load();
        self.exchange.life.npu(|npu| npu.end_load(loaded.is_ok()));
        loaded
    }

    /// Records the path, then tries: a failure leaves the server believing.
    fn try_load(&mut self) -> Step {
        let sim = Arc::clone(self.exchange.sim);
        let switched = self.exchange.life.npu(|npu| {
            let switched = npu.path.is_some();
            npu.begin_load(self.model, sim.release);
            switched
        });
        if switched {
            self.log(Event::Unloaded { why: "switched".into() });
        }
        self.keep();
        if sim.held() {
            self.exchange.life.npu(|npu| npu.end_load(false));
            return Err(self.exchange.failed(&["Failed to create VDevice"]));
        }
        let pause = if sim.release == Release::V5_1_1 { LOAD_PAUSE_5_1_1_MS } else { 0 };
        let load_ms = u64::from(self.model.load_ms) + pause;
        self.wait(Duration::from_millis(load_ms / 2))?;
        self.act(Phase::DuringLoad)?;
        self.wait(Duration::from_millis(load_ms - load_ms / 2))?;
        self.log(Event::Loaded { model: self.model.name.into(), load_ms });
        Ok(())
    }

    /// The keep-alive counts from the start of the request.
    fn keep(&self) {
        let seconds = self.request.keep_alive.unwrap_or(self.exchange.sim.options.keep_alive_s);
        self.exchange.life.npu(|npu| npu.keep(self.exchange.start, seconds));
    }

    fn poisoned(&mut self) -> After {
        if self.exchange.sim.release == Release::V5_1_1 {
            return self.crash("a model that was never loaded");
        }
        if self.request.tools {
            return self.exchange.refused(400, &no_tools(self.model));
        }
        self.exchange.failed(&["LLM not loaded"])
    }

    fn submit(&mut self, prompt: &Prompt) -> Result<Plan, After> {
        let release = self.exchange.sim.release;
        let plan = self.exchange.life.npu(|npu| npu.submit(self.model, prompt, release));
        let Some(plan) = plan else {
            return Err(self.exchange.failed(&["Failed to render the prompt"]));
        };
        self.submitted = true;
        if plan.continuation {
            self.exchange.sim.presence.count(|counters| counters.continuations += 1);
        }
        self.log(Event::Prefill {
            continuation: plan.continuation,
            tokens: plan.tokens,
            cached: plan.cached,
            prefill_ms: self.model.prefill_ms(plan.tokens),
        });
        Ok(plan)
    }

    /// The head leaves before prefill; it says nothing about a token.
    fn head(&mut self) -> Step {
        let headers = [
            ("Content-Type", "application/x-ndjson"),
            ("Connection", "keep-alive"),
            ("Server", "oatpp/1.4.0"),
            ("Transfer-Encoding", "chunked"),
        ];
        if self.exchange.conn.write_head(200, "OK", &headers).is_err() {
            return Err(self.gone());
        }
        self.head_sent = true;
        self.log(Event::HeadSent { status: 200 });
        Ok(())
    }

    fn prefill(&mut self, plan: Plan) -> Step {
        let needed_ms = self.model.prefill_ms(plan.tokens);
        // A limit of nothing leaves the reader without a token just as a long prompt does.
        let starved = self.request.num_predict == Some(0);
        if needed_ms <= READ_TIMEOUT_MS && !starved {
            return self.wait(Duration::from_millis(needed_ms));
        }
        self.wait(Duration::from_millis(READ_TIMEOUT_MS))?;
        let after = if self.head_sent {
            self.cut()
        } else {
            self.exchange.life.npu(|npu| npu.dirty = true);
            self.exchange.failed(&["read failed!"])
        };
        // The device finishes its prefill before the lock is free.
        let rest = Duration::from_millis(needed_ms.saturating_sub(READ_TIMEOUT_MS));
        self.cursor += rest;
        let _ =
            self.exchange.sim.clock.sleep_until(self.cursor, self.exchange.conn.halt(), || false);
        Err(after)
    }

    /// The words are ready after prefill, unless a real model is slower than the simulated one.
    fn spoken(&mut self, words: thread::JoinHandle<Vec<String>>) -> Vec<String> {
        let mut words = words.join().unwrap_or_default();
        if self.request.frequency_penalty == Some(0.0) || self.request.top_k == Some(0) {
            words = words::garbage(&mut self.random);
        }
        self.cursor = self.cursor.max(self.exchange.sim.clock.now());
        words
    }

    fn decode(&mut self, mut words: Vec<String>) -> Result<(String, &'static str), After> {
        let limit = self.request.num_predict.unwrap_or(DEFAULT_LIMIT);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let reason = if words.len() >= limit { "length" } else { "stop" };
        words.truncate(limit);
        let mut content = String::new();
        for word in words {
            if self.sent > 0 {
                self.wait_token()?;
            }
            self.exchange.life.npu(|npu| npu.grow(1));
            content.push_str(&word);
            if self.request.stream {
                let line = line(self.shape, self.model.name, &word, None);
                self.write_line(&line)?;
            }
            self.sent += 1;
            if self.sent == 1 {
                self.log(Event::FirstToken);
            }
            self.act(Phase::Token(self.sent))?;
        }
        if reason == "stop" {
            // The end of the sequence is a token too; it is decoded and not shown.
            self.wait_token()?;
        }
        Ok((content, reason))
    }

    fn finish(&mut self, content: &str, reason: &'static str, total: Duration) -> Step {
        let release = self.exchange.sim.release;
        // 5.4 counts the hidden end token when it does not stream.
        let hidden = !self.request.stream && release == Release::V5_4 && reason == "stop";
        let done = Done {
            reason,
            total_ns: u64::try_from(total.as_nanos()).ok(),
            eval_count: Some(self.sent + u32::from(hidden)),
        };
        let name = self.model.name;
        if !self.request.stream {
            let body = match self.shape {
                Shape::OpenAi => openai::body(self.exchange.id, name, content, reason),
                shape => line(shape, name, content, Some(done)),
            };
            return Err(self.exchange.json(200, &body));
        }
        self.exchange.inside = None;
        self.write_line(&line(self.shape, name, "", Some(done)))?;
        if self.exchange.conn.write_last_chunk().is_err() {
            return Err(self.over(End::Gone));
        }
        self.log(Event::Ended { end: End::Done, sent: self.sent });
        Ok(())
    }

    /// One line is one chunk and ends with CR LF.
    pub(super) fn write_line(&mut self, line: &str) -> Step {
        if line.len() + 2 > LINE_BYTES_MAX {
            return Err(self.cut());
        }
        if self.exchange.conn.write_chunk(format!("{line}\r\n").as_bytes()).is_err() {
            return Err(self.gone());
        }
        Ok(())
    }

    /// The client left: the generation is aborted, and its recovery token awaited.
    fn gone(&mut self) -> After {
        let produced = self.sent + 2;
        self.exchange.life.npu(|npu| npu.grow(1));
        let after = self.over(End::Gone);
        let _ = self.wait_token();
        self.log(Event::Generated { tokens: produced, decode_ms: 0, reason: "aborted".into() });
        after
    }

    fn wait_token(&mut self) -> Step {
        let us = self.exchange.sim.token_us(self.model.token_us());
        let ppm = 1_000_000 - JITTER_PPM + self.random.u64(0..=2 * JITTER_PPM);
        self.wait(Duration::from_micros(us * ppm / 1_000_000))
    }

    pub(super) fn wait(&mut self, simulated: Duration) -> Step {
        self.cursor += simulated;
        let halt = self.exchange.conn.halt();
        match self.exchange.sim.clock.sleep_until(self.cursor, halt, || false) {
            Woke::Halted => Err(self.over(End::Halted)),
            Woke::Due | Woke::Asked => Ok(()),
        }
    }

    fn log(&self, event: Event) {
        self.exchange.sim.log.add(self.exchange.id, event);
    }
}

/// Whether the model's template knows tools.
fn has_tools(model: &Model) -> bool {
    !model.name.starts_with("qwen2:") && !model.name.starts_with("deepseek")
}

fn no_tools(model: &Model) -> String {
    format!("\"{}\" does not support tools", model.name)
}
