//! One backend in its slot: the breaker's gate, the lease and what is known of its cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::backend::Backend;
use super::breaker::{Policy, State};
use super::cache::Cache;
use super::gate::Gate;
use super::lease::Lease;
use crate::event::Events;
use crate::snapshot::BackendState;

/// The place of a backend in the order in which backends are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotName {
    /// Tried first.
    Primary,
    /// Tried when the primary cannot.
    Fallback,
    /// Tried last.
    Reserve,
}

impl SlotName {
    /// The word in configuration and status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Fallback => "fallback",
            Self::Reserve => "reserve",
        }
    }
}

/// One backend and all that guards it.
pub struct Engine {
    pub(super) slot: SlotName,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) gate: Arc<Gate>,
    pub(super) lease: Arc<Lease>,
    cache: Mutex<Cache>,
}

impl Engine {
    /// Puts a backend into a slot.
    #[must_use]
    pub fn new(
        slot: SlotName,
        backend: Arc<dyn Backend>,
        breaker: Policy,
        background_quiet: Duration,
        events: Events,
    ) -> Self {
        let gate = Gate::new(backend.name(), breaker, events);
        let lease = Lease::new(background_quiet);
        Self { slot, backend, gate, lease, cache: Mutex::default() }
    }

    /// What is known of the server's cache.
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        // Its methods cannot panic half way.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For status and health.
    #[must_use]
    pub fn state(&self, now: tokio::time::Instant) -> BackendState {
        let health = self.gate.health();
        let (breaker, retry_in_s) = match health.state {
            State::Closed => ("closed", None),
            State::Open { until } => {
                ("open", Some(until.saturating_duration_since(now).as_secs_f32()))
            }
            State::HalfOpen { .. } => ("half-open", Some(0.0)),
        };
        BackendState {
            name: self.backend.name().to_owned(),
            slot: self.slot.as_str(),
            model: self.backend.model(),
            breaker,
            retry_in_s,
            last_error: health.last_error,
            tokens_per_s: self.backend.tokens_per_s(),
            healthy_tokens_per_s: self.backend.healthy_tokens_per_s(),
            degraded: self.backend.is_degraded(),
        }
    }
}
