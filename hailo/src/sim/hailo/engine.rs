//! The simulated machine: what outlives the process ([`Sim`]) and what dies with it ([`Life`]).

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use super::{Options, State, device_lock::DeviceLock, npu::Npu, store::Store};
use crate::{
    model::Release,
    sim::{
        clock::{Clock, Halt},
        control::Controlled,
        log::{Entry, Event, Log},
        presence::Presence,
        scenario::{Fault, Faults, Replies},
        server::{Handle, lock},
        voice::Voice,
    },
};

/// The process is never back at once, even when waiting takes no time.
const RESTART_REAL_MIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Sim {
    pub(super) release: Release,
    pub(super) options: Options,
    pub(super) clock: Clock,
    pub(super) log: Log,
    pub(super) presence: Presence,
    pub(super) replies: Replies,
    pub(super) faults: Faults,
    pub(super) voice: Option<Voice>,
    pub(super) store: Store,
    pub(super) device_held: AtomicBool,
    pub(super) seed: u64,
    ps_while_busy: AtomicU64,
    crashes: AtomicU64,
    requests: AtomicU64,
    generations: AtomicU64,
    /// Raised by a reset; a hang that began under another number ends.
    epoch: AtomicU64,
    /// Part of the published decoding rate, in millionths.
    rate_ppm: AtomicU64,
    life: Mutex<Arc<Life>>,
}

/// The process between two deaths.
#[derive(Debug)]
pub(super) struct Life {
    halt: Halt,
    pub(super) lock: DeviceLock,
    npu: Mutex<Npu>,
}

impl Life {
    fn new(halt: Halt, seed: u64) -> Arc<Self> {
        Arc::new(Self { halt, lock: DeviceLock::new(seed), npu: Mutex::default() })
    }

    /// Reads or changes what server and device remember.
    pub(super) fn npu<T>(&self, act: impl FnOnce(&mut Npu) -> T) -> T {
        act(&mut lock(&self.npu))
    }
}

impl Sim {
    pub(super) fn new(options: Options) -> io::Result<Self> {
        let clock = Clock::new(options.pace);
        let seed = options.seed.or(options.scenario.seed).unwrap_or(1);
        let invalid = |text| io::Error::new(io::ErrorKind::InvalidInput, text);
        let voice = options.voice.as_deref().map(Voice::new).transpose().map_err(invalid)?;
        let store = Store::new(options.release, options.models.as_deref()).map_err(invalid)?;
        Ok(Self {
            release: options.release,
            log: Log::open(clock.clone(), options.log.as_deref())?,
            clock,
            presence: Presence::default(),
            replies: Replies::new(&options.scenario, seed),
            faults: Faults::new(options.scenario.faults.clone()),
            voice,
            store,
            device_held: AtomicBool::new(options.device_held),
            seed,
            ps_while_busy: AtomicU64::new(0),
            crashes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            generations: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            rate_ppm: AtomicU64::new(1_000_000),
            life: Mutex::new(Life::new(Halt::default(), seed)),
            options,
        })
    }

    /// The life a connection belongs to. The first connection of a new process begins it.
    pub(super) fn life(&self, halt: &Halt) -> Arc<Life> {
        let mut life = lock(&self.life);
        if !life.halt.same(halt) {
            *life = Life::new(halt.clone(), self.seed);
        }
        Arc::clone(&life)
    }

    pub(super) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn count_ps_while_busy(&self) {
        if self.presence.busy() {
            self.ps_while_busy.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(super) fn held(&self) -> bool {
        self.device_held.load(Ordering::SeqCst)
    }

    /// Decoding runs at this part of its rate from now on.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
    pub(super) fn slow_down(&self, part: f64) {
        let ppm = if part.is_finite() { (part * 1e6).clamp(1.0, 1e9) } else { 1e6 };
        self.rate_ppm.store(ppm as u64, Ordering::SeqCst);
    }

    /// `published` µs for a token at the present rate.
    pub(super) fn token_us(&self, published: u64) -> u64 {
        published.saturating_mul(1_000_000) / self.rate_ppm.load(Ordering::SeqCst).max(1)
    }

    /// The process dies: every socket is reset, nothing it remembered is left.
    pub(super) fn crash(&self, server: &Handle, request: u64, why: &str) {
        self.crashes.fetch_add(1, Ordering::SeqCst);
        self.log.add(request, Event::Crashed { why: why.into() });
        let down = Duration::try_from_secs_f64(self.options.restart_s).unwrap_or_default();
        server.crash(self.clock.real_of(down).max(RESTART_REAL_MIN));
    }

    pub(super) fn state(&self) -> State {
        let life = Arc::clone(&lock(&self.life));
        let (lock_held, lock_waiting) = life.lock.look();
        let npu = life.npu(|npu| {
            if !lock_held && npu.expire(self.clock.now()) {
                self.log.add(0, Event::Unloaded { why: "expired".into() });
            }
            npu.clone()
        });
        // A dead process remembers nothing, even before its successor's first connection.
        let npu = if life.halt.is_set() { Npu::default() } else { npu };
        State {
            profile: self.release.name().into(),
            loaded_model: npu.path.map(str::to_owned),
            poisoned: npu.path.is_some() && !npu.loaded && !npu.loading,
            kv_tokens: npu.kv_tokens,
            dirty: npu.dirty,
            last_continuation: npu.last_continuation,
            system_in_window: npu.system_in_window,
            prefilled_tokens: npu.prefilled_tokens,
            lock_held,
            lock_waiting,
            device_held: self.held(),
            ps_while_busy: self.ps_while_busy.load(Ordering::SeqCst),
            crashes: self.crashes.load(Ordering::SeqCst),
            counters: self.presence.counters(),
        }
    }
}

impl Controlled for Sim {
    fn state_json(&self) -> Value {
        serde_json::to_value(self.state()).unwrap_or_default()
    }

    fn entries(&self) -> Vec<Entry> {
        self.log.entries()
    }

    fn add_fault(&self, fault: Fault) {
        self.faults.add(fault);
    }

    fn reset(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.faults.clear();
        self.slow_down(1.0);
        self.replies.reset();
        self.presence.reset();
        for counter in [&self.ps_while_busy, &self.crashes, &self.requests, &self.generations] {
            counter.store(0, Ordering::SeqCst);
        }
        self.log.clear();
    }
}
