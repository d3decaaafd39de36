//! The use of a runner and of one of its slots, given back when dropped.

use std::time::Duration;

use super::{Denied, Scheduler, Waiter};
use crate::sim::{
    clock::Clock,
    ollama::{
        keep_alive::KeepAlive,
        prompt::{self, Slot, Token},
    },
    server::lock,
};

/// The use of a runner. While one exists the runner is not unloaded; the keep-alive counts from
/// its end.
pub(in crate::sim::ollama) struct Lease<'a> {
    pub(super) scheduler: &'a Scheduler,
    pub(super) clock: Clock,
    pub(super) name: String,
    pub(super) id: u64,
    /// Time from asking for the runner to having it.
    pub(in crate::sim::ollama) load: Duration,
    /// The model was loaded for this.
    pub(in crate::sim::ollama) loaded: bool,
}

impl<'a> Lease<'a> {
    /// Whether the runner's process still lives.
    pub(in crate::sim::ollama) fn alive(&self) -> bool {
        lock(&self.scheduler.inner).runner(&self.name, self.id).is_some()
    }

    /// Waits for a slot and gives the prompt to the free one that holds most of it.
    pub(in crate::sim::ollama) fn slot(
        &self,
        prompt: &[Token],
        waiter: &Waiter<'_>,
    ) -> Result<SlotLease<'_, 'a>, Denied> {
        let ticket = {
            let mut inner = lock(&self.scheduler.inner);
            let ticket = inner.number();
            let runner = inner.runner(&self.name, self.id).ok_or(Denied::RunnerDied)?;
            runner.waiting.push_back(ticket);
            ticket
        };
        let mut found = None;
        let waited = self.scheduler.wait(waiter, || {
            let mut inner = lock(&self.scheduler.inner);
            let Some(runner) = inner.runner(&self.name, self.id) else { return true };
            if runner.waiting.front() != Some(&ticket) {
                return false;
            }
            let Some(index) = prompt::choose(&runner.slots, prompt) else { return false };
            runner.slots[index].used = ticket;
            runner.slots[index].busy = true;
            let slot = &mut runner.slots[index];
            let held = slot.resident();
            let continues = held > 0 && slot.common_prefix(prompt) == held;
            found = Some((index, slot.prefill(prompt), continues));
            true
        });
        if let Some(runner) = lock(&self.scheduler.inner).runner(&self.name, self.id) {
            runner.waiting.retain(|waiting| *waiting != ticket);
        }
        waited?;
        let (index, fresh, continues) = found.ok_or(Denied::RunnerDied)?;
        Ok(SlotLease { lease: self, index, fresh, continues })
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let now = self.clock.now();
        let mut inner = lock(&self.scheduler.inner);
        let Some(runner) = inner.runner(&self.name, self.id) else { return };
        runner.users -= 1;
        if runner.users > 0 {
            return;
        }
        match runner.keep_alive {
            KeepAlive::Forever => runner.expires = None,
            KeepAlive::For(time) if time.is_zero() => drop(inner.runners.remove(&self.name)),
            KeepAlive::For(time) => runner.expires = Some(now + time),
        }
    }
}

/// The use of one slot, free again when dropped.
pub(in crate::sim::ollama) struct SlotLease<'l, 'a> {
    lease: &'l Lease<'a>,
    index: usize,
    /// Tokens of the prompt that must be computed.
    pub(in crate::sim::ollama) fresh: usize,
    /// The prompt goes on from all that the slot held.
    pub(in crate::sim::ollama) continues: bool,
}

impl SlotLease<'_, '_> {
    fn with(&self, change: impl FnOnce(&mut Slot)) {
        let mut inner = lock(&self.lease.scheduler.inner);
        if let Some(runner) = inner.runner(&self.lease.name, self.lease.id) {
            change(&mut runner.slots[self.index]);
        }
    }

    /// See [`Slot::decoded`].
    pub(in crate::sim::ollama) fn decoded(&self, tokens: &[Token]) {
        self.with(|slot| slot.decoded(tokens));
    }

    /// See [`Slot::keep`].
    pub(in crate::sim::ollama) fn keep(&self, tokens: usize) {
        self.with(|slot| slot.keep(tokens));
    }
}

impl Drop for SlotLease<'_, '_> {
    fn drop(&mut self) {
        self.with(|slot| slot.busy = false);
    }
}
