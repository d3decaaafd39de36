//! The scheduler: which models are loaded, who waits for a load, and who waits for a slot.
//!
//! Requests that need the scheduler stand in one bounded queue; its first member is being handled
//! and blocks the others while a model loads. On a loaded runner requests wait for a slot without
//! bound, in order. Whoever leaves while waiting is forgotten: nothing is executed for him.

mod lease;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Mutex,
    time::Duration,
};

pub(super) use self::lease::{Lease, SlotLease};
use super::{keep_alive::KeepAlive, models::Model, options::RunnerOptions, prompt::Slot};
use crate::sim::{
    clock::{Clock, Halt, Woke},
    scenario::Kind,
    server::lock,
};

/// Smallest part of the usual speed that a fault may ask for.
pub(super) const SLOWEST: f64 = 1e-3;

/// What the scheduler may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests that may wait for the scheduler.
    pub(super) max_queue: usize,
    /// Slots of a runner.
    pub(super) num_parallel: usize,
    /// Runners at once (`OLLAMA_MAX_LOADED_MODELS`, 3 on a CPU).
    pub(super) max_loaded: usize,
    /// Memory for runners, in bytes.
    pub(super) ram_bytes: u64,
    /// Speed of the card, in MB/s.
    pub(super) sd_mb_per_s: f64,
    /// Load time when the file is in the page cache.
    pub(super) cached_load: Duration,
}

/// The person behind a request, as far as waiting needs to know him.
pub(super) struct Waiter<'a> {
    /// Simulated time.
    pub(super) clock: &'a Clock,
    /// The life of the process.
    pub(super) halt: &'a Halt,
    /// Whether the client has left.
    pub(super) gone: &'a dyn Fn() -> bool,
    /// What goes wrong half way through a load, if there is one.
    pub(super) load_fault: Option<&'a Kind>,
}

/// Why a request got no runner or no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// The queue is full.
    Busy,
    /// The kernel killed the runner while it loaded.
    OutOfMemory,
    /// The runner died before a slot was free.
    RunnerDied,
    /// The client left.
    Gone,
    /// The process ends.
    Halted,
    /// The waiter's load fault has to act.
    Fault,
}

/// A loaded model as `/api/ps` shows it.
#[derive(Debug, Clone)]
pub(super) struct Resident {
    /// The model.
    pub(super) model: Model,
    /// What its runner was started with.
    pub(super) options: RunnerOptions,
    /// Memory it takes, in bytes.
    pub(super) memory_bytes: u64,
    /// Time left until it is unloaded; none means for ever.
    pub(super) expires_in: Option<Duration>,
    /// Tokens held by each slot.
    pub(super) slots: Vec<usize>,
}

/// Counters of the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Models loaded, first loads included.
    pub(super) loads: u64,
    /// Loads that replaced a runner of the same model with other options.
    pub(super) reloads: u64,
    /// Runners killed for want of memory.
    pub(super) oom_kills: u64,
}

struct Runner {
    id: u64,
    model: Model,
    options: RunnerOptions,
    memory_bytes: u64,
    slots: Vec<Slot>,
    waiting: VecDeque<u64>,
    users: usize,
    keep_alive: KeepAlive,
    /// Simulated time of the unload; only while nobody uses it.
    expires: Option<Duration>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    queue: VecDeque<u64>,
    runners: BTreeMap<String, Runner>,
    page_cache: BTreeSet<String>,
    counts: Counts,
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn expire(&mut self, now: Duration) {
        self.runners.retain(|_, runner| runner.expires.is_none_or(|expires| expires > now));
    }

    fn runner(&mut self, name: &str, id: u64) -> Option<&mut Runner> {
        self.runners.get_mut(name).filter(|runner| runner.id == id)
    }

    /// The idle runner that goes first when room is needed: the one that would expire first.
    fn idle(&self) -> Option<String> {
        let idle = self.runners.iter().filter(|(_, runner)| runner.users == 0);
        idle.min_by_key(|(_, runner)| runner.expires.unwrap_or(Duration::MAX))
            .map(|(name, _)| name.clone())
    }

    fn memory(&self) -> u64 {
        self.runners.values().map(|runner| runner.memory_bytes).sum()
    }
}

/// The scheduler of one process.
pub(super) struct Scheduler {
    limits: Mutex<Limits>,
    inner: Mutex<Inner>,
}

/// What one look at the state found for the first in the queue.
enum Step {
    Use(u64),
    Load { id: u64, takes: Duration, fits: bool },
    Wait,
}

impl Scheduler {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits: Mutex::new(limits), inner: Mutex::default() }
    }

    /// Other programs took or gave back memory.
    pub(super) fn set_ram(&self, ram_bytes: u64) {
        lock(&self.limits).ram_bytes = ram_bytes;
    }

    pub(super) fn counts(&self) -> Counts {
        lock(&self.inner).counts
    }

    pub(super) fn reset_counts(&self) {
        lock(&self.inner).counts = Counts::default();
    }

    /// Requests waiting for the scheduler, the one being handled included.
    pub(super) fn queued(&self) -> usize {
        lock(&self.inner).queue.len()
    }

    /// Requests waiting for a slot.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.inner).runners.values().map(|runner| runner.waiting.len()).sum()
    }

    /// Loaded models, in the order of their names. Never waits.
    pub(super) fn residents(&self, now: Duration) -> Vec<Resident> {
        let mut inner = lock(&self.inner);
        inner.expire(now);
        let resident = |runner: &Runner| Resident {
            model: runner.model.clone(),
            options: runner.options.clone(),
            memory_bytes: runner.memory_bytes,
            expires_in: match (runner.expires, runner.keep_alive) {
                (Some(expires), _) => Some(expires.saturating_sub(now)),
                (None, KeepAlive::For(time)) => Some(time),
                (None, KeepAlive::Forever) => None,
            },
            slots: runner.slots.iter().map(Slot::resident).collect(),
        };
        inner.runners.values().map(resident).collect()
    }

    /// Unloads a model; at once if it is idle, else when its users are done.
    pub(super) fn unload(&self, name: &str) {
        let mut inner = lock(&self.inner);
        match inner.runners.get_mut(name) {
            Some(runner) if runner.users == 0 => drop(inner.runners.remove(name)),
            Some(runner) => runner.keep_alive = KeepAlive::For(Duration::ZERO),
            None => {}
        }
    }

    /// The runner's process dies; all who use it will find out.
    pub(super) fn kill(&self, name: &str) {
        lock(&self.inner).runners.remove(name);
    }

    /// All runners die with their parent, and nobody waits any more.
    pub(super) fn clear(&self) {
        let mut inner = lock(&self.inner);
        inner.runners.clear();
        inner.queue.clear();
    }

    /// Waits for a runner of `model` with exactly `options`, loading it if need be.
    pub(super) fn acquire(
        &self,
        model: &Model,
        options: &RunnerOptions,
        keep_alive: Option<KeepAlive>,
        waiter: &Waiter<'_>,
    ) -> Result<Lease<'_>, Denied> {
        let ticket = {
            let max_queue = lock(&self.limits).max_queue;
            let mut inner = lock(&self.inner);
            // The first is in the scheduler's hands and no longer in its queue.
            if inner.queue.len() > max_queue {
                return Err(Denied::Busy);
            }
            let ticket = inner.number();
            inner.queue.push_back(ticket);
            ticket
        };
        let _queued = Queued { scheduler: self, ticket };
        let started = waiter.clock.now();
        self.wait(waiter, || lock(&self.inner).queue.front() == Some(&ticket))?;
        let mut found = Step::Wait;
        self.wait(waiter, || {
            found = self.step(model, options, keep_alive, waiter.clock.now());
            !matches!(found, Step::Wait)
        })?;
        let (id, loaded) = match found {
            Step::Use(id) => (id, false),
            Step::Load { id, takes, fits } => {
                self.load(model, id, takes, fits, waiter)?;
                (id, true)
            }
            Step::Wait => return Err(Denied::Halted),
        };
        Ok(Lease {
            scheduler: self,
            clock: waiter.clock.clone(),
            name: model.name.clone(),
            id,
            load: waiter.clock.now().saturating_sub(started),
            loaded,
        })
    }

    fn step(
        &self,
        model: &Model,
        options: &RunnerOptions,
        keep_alive: Option<KeepAlive>,
        now: Duration,
    ) -> Step {
        let limits = *lock(&self.limits);
        let mut inner = lock(&self.inner);
        inner.expire(now);
        let mut reload = false;
        if let Some(runner) = inner.runners.get_mut(&model.name) {
            if runner.options == *options {
                runner.users += 1;
                runner.expires = None;
                runner.keep_alive = keep_alive.unwrap_or(runner.keep_alive);
                return Step::Use(runner.id);
            }
            if runner.users > 0 {
                return Step::Wait;
            }
            inner.runners.remove(&model.name);
            reload = true;
        }
        let memory_bytes = model.memory_bytes(options.num_ctx() * limits.num_parallel);
        while inner.runners.len() >= limits.max_loaded
            || inner.memory() + memory_bytes > limits.ram_bytes
        {
            match inner.idle() {
                Some(name) => drop(inner.runners.remove(&name)),
                None if inner.runners.is_empty() => break,
                None => return Step::Wait,
            }
        }
        let id = inner.number();
        inner.counts.loads += 1;
        inner.counts.reloads += u64::from(reload);
        let cached = inner.page_cache.contains(&model.name);
        let takes = if cached { limits.cached_load } else { model.cold_load(limits.sd_mb_per_s) };
        let runner = Runner {
            id,
            model: model.clone(),
            options: options.clone(),
            memory_bytes,
            slots: vec![Slot::default(); limits.num_parallel],
            waiting: VecDeque::new(),
            users: 1,
            keep_alive: keep_alive.unwrap_or(KeepAlive::DEFAULT),
            expires: None,
        };
        inner.runners.insert(model.name.clone(), runner);
        Step::Load { id, takes, fits: memory_bytes <= limits.ram_bytes }
    }

    /// The time of a load. A client that leaves aborts it; too little memory ends it.
    fn load(
        &self,
        model: &Model,
        id: u64,
        takes: Duration,
        fits: bool,
        waiter: &Waiter<'_>,
    ) -> Result<(), Denied> {
        let (takes, broken) = match waiter.load_fault {
            None => (takes, false),
            Some(Kind::Stall(ms)) => (takes + Duration::from_millis(*ms), false),
            Some(Kind::Slow(part)) => (takes.div_f64(part.max(SLOWEST)), false),
            Some(_) => (takes / 2, true),
        };
        let until = waiter.clock.now() + takes;
        let outcome = match waiter.clock.sleep_until(until, waiter.halt, waiter.gone) {
            Woke::Due if broken => Err(Denied::Fault),
            Woke::Due if fits => Ok(()),
            Woke::Due => Err(Denied::OutOfMemory),
            Woke::Asked => Err(Denied::Gone),
            Woke::Halted => Err(Denied::Halted),
        };
        let mut inner = lock(&self.inner);
        if outcome.is_ok() {
            inner.page_cache.insert(model.name.clone());
            return inner.runner(&model.name, id).map(|_| ()).ok_or(Denied::RunnerDied);
        }
        inner.counts.oom_kills += u64::from(outcome == Err(Denied::OutOfMemory));
        if inner.runner(&model.name, id).is_some() {
            inner.runners.remove(&model.name);
        }
        outcome
    }

    /// Waits in real time until `ready`, unless the client leaves or the process ends.
    fn wait(&self, waiter: &Waiter<'_>, mut ready: impl FnMut() -> bool) -> Result<(), Denied> {
        let mut is_ready = false;
        let woke = waiter.clock.hang(waiter.halt, || {
            is_ready = ready();
            is_ready || (waiter.gone)()
        });
        match woke {
            Woke::Halted => Err(Denied::Halted),
            _ if is_ready => Ok(()),
            _ => Err(Denied::Gone),
        }
    }
}

/// A place in the scheduler's queue, given up when dropped.
struct Queued<'a> {
    scheduler: &'a Scheduler,
    ticket: u64,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        lock(&self.scheduler.inner).queue.retain(|ticket| *ticket != self.ticket);
    }
}
