//! The one lock of the server. It is not fair: of several waiters chance picks the next.

use std::sync::{Condvar, Mutex};

use crate::sim::{clock::Halt, server::lock};

/// Pause between two looks at the end of the life while waiting.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct DeviceLock {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    random: fastrand::Rng,
    holder: Option<u64>,
    waiting: Vec<u64>,
}

impl DeviceLock {
    pub(super) fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let inner = Inner { random, holder: None, waiting: Vec::new() };
        Self { inner: Mutex::new(inner), changed: Condvar::new() }
    }

    /// Takes the lock for `id` if it is free.
    pub(super) fn try_take(&self, id: u64) -> bool {
        let mut inner = lock(&self.inner);
        let free = inner.holder.is_none();
        if free {
            inner.holder = Some(id);
        }
        free
    }

    /// Waits for the lock. Returns false when the life ended first.
    pub(super) fn take(&self, id: u64, halt: &Halt) -> bool {
        let mut inner = lock(&self.inner);
        if inner.holder.is_none() {
            inner.holder = Some(id);
            return true;
        }
        inner.waiting.push(id);
        while inner.holder != Some(id) {
            if halt.is_set() {
                inner.waiting.retain(|waiter| *waiter != id);
                return false;
            }
            inner = self
                .changed
                .wait_timeout(inner, LOOK_EVERY)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(inner, _)| inner);
        }
        true
    }

    /// Gives the lock to one of the waiters, or to nobody.
    pub(super) fn free(&self) {
        let mut inner = lock(&self.inner);
        inner.holder = if inner.waiting.is_empty() {
            None
        } else {
            let count = inner.waiting.len();
            let chosen = inner.random.usize(..count);
            Some(inner.waiting.swap_remove(chosen))
        };
        drop(inner);
        self.changed.notify_all();
    }

    /// Whether it is held, and how many wait.
    pub(super) fn look(&self) -> (bool, usize) {
        let inner = lock(&self.inner);
        (inner.holder.is_some(), inner.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn one_holds_it_and_a_halted_waiter_leaves() {
        let device = Arc::new(DeviceLock::new(1));
        assert!(device.try_take(1));
        assert!(!device.try_take(2));
        let halt = Halt::default();
        let waiter = {
            let (device, halt) = (Arc::clone(&device), halt.clone());
            thread::spawn(move || device.take(2, &halt))
        };
        halt.set();
        assert!(!waiter.join().unwrap());
        assert_eq!(device.look(), (true, 0));
        device.free();
        assert!(device.take(3, &halt));
    }
}
