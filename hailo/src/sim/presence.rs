//! Who is inside, and what was counted: requests, overlaps, forbidden fields.
//!
//! One rule of our client is that it never has two generations inside the NPU's server at once.
//! A request whose client has left is a ghost and not counted against the next one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};

use super::{server::lock, wire::Witness};

/// Counters of a simulator since its start or its last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests read completely, on any route.
    pub requests: u64,
    /// Generation requests that were accepted for execution.
    pub generations: u64,
    /// Generations whose prompt continued the cache.
    pub continuations: u64,
    /// Generation requests that came while another client's was inside.
    pub overlapping: u64,
    /// Forbidden fields by name.
    pub forbidden: BTreeMap<String, u64>,
}

/// The table of generations inside. Cloning gives another hand on the same table.
#[derive(Clone, Debug, Default)]
pub struct Presence(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    counters: Counters,
    next: u64,
    inside: BTreeMap<u64, Option<Witness>>,
}

/// A generation that is inside until this is dropped.
#[derive(Debug)]
pub struct Inside {
    presence: Presence,
    number: u64,
    /// Whether another client's generation was inside at the moment of entering.
    pub overlaps: bool,
}

impl Presence {
    /// Counts with `change`.
    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut lock(&self.0).counters);
    }

    /// A copy of the counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        lock(&self.0).counters.clone()
    }

    /// Sets all counters to zero; who is inside stays inside.
    pub fn reset(&self) {
        lock(&self.0).counters = Counters::default();
    }

    /// Whether a generation whose client is still there is inside.
    #[must_use]
    pub fn busy(&self) -> bool {
        lock(&self.0).inside.values().any(here)
    }

    /// A generation comes in, seen through `witness` (none: counted as present until it leaves).
    #[must_use]
    pub fn enter(&self, witness: Option<Witness>) -> Inside {
        let mut table = lock(&self.0);
        let overlaps = table.inside.values().any(here);
        table.counters.overlapping += u64::from(overlaps);
        table.next += 1;
        let number = table.next;
        table.inside.insert(number, witness);
        Inside { presence: self.clone(), number, overlaps }
    }
}

fn here(client: &Option<Witness>) -> bool {
    client.as_ref().is_none_or(|witness| !witness.peer_gone())
}

impl Drop for Inside {
    fn drop(&mut self) {
        lock(&self.presence.0).inside.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_inside_at_once_are_an_overlap_and_one_after_the_other_are_not() {
        let presence = Presence::default();
        let first = presence.enter(None);
        assert!(!first.overlaps);
        drop(first);
        let second = presence.enter(None);
        assert!(!second.overlaps);
        assert!(presence.enter(None).overlaps);
        assert_eq!(presence.counters().overlapping, 1);
    }
}
