//! One backend in its slot: the breaker's gate, the lease and what is known of its cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::backend::Backend;
use super::breaker::{Policy, State};
use super::cache::Cache;
use super::fault::{Class, Fault};
use super::gate::Gate;
use super::kept::Known;
use super::lease::Lease;
use super::lent::Lent;
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
    pub(super) lent: Lent,
    cache: Mutex<Cache>,
    known: Mutex<Known>,
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
        Self {
            slot,
            backend,
            gate,
            lease,
            lent: Lent::default(),
            cache: Mutex::new(Cache::inherited()),
            known: Mutex::default(),
        }
    }

    /// The same engine with what the daemon lends it.
    #[must_use]
    pub fn with(self, lent: Lent) -> Self {
        Self { lent, ..self }
    }

    /// The fault, with what a look at the machine adds to its words.
    pub(super) fn explained(&self, fault: Fault) -> Fault {
        let of_the_device = matches!(
            fault.class,
            Class::Down
                | Class::Crashed
                | Class::Wedged
                | Class::DeviceBusy
                | Class::DeviceFault
                | Class::Poisoned
        );
        match self.backend.hint() {
            Some(hint) if of_the_device => {
                Fault { detail: format!("{}; {hint}", fault.detail), ..fault }
            }
            _ => fault,
        }
    }

    /// What is known of the server's cache.
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        // Its methods cannot panic half way.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of its notes.
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        let pace = self.backend.pace();
        let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f32() * 1000.0);
        BackendState {
            name: self.backend.name().to_owned(),
            slot: self.slot.as_str(),
            model: self.backend.model(),
            breaker,
            retry_in_s,
            last_error: health.last_error,
            hung: health.hung,
            tokens_per_s: self.backend.tokens_per_s(),
            degraded: self.backend.is_degraded(),
            head_ms: ms(pace.head),
            first_token_ms: ms(pace.first_token),
            gap_p50_ms: ms(pace.gap_p50),
            gap_p99_ms: ms(pace.gap_p99),
        }
    }
}
