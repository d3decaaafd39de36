//! Backends that stand in for others: made ready before they are needed, let go when they are not.
//!
//! When the first backend fails, the model of the second is loaded at once, so that the next
//! question does not wait for it too.

use std::time::Duration;

use tokio::time::Instant;

use super::Provider;
use super::backend::GivesWay;
use super::breaker::State;
use super::engine::{Engine, SlotName};
use super::lease::Priority;
use super::recovery::{command, in_flight, load, look};

/// How often it is looked whether a stand-in may let go of its model: it waits for minutes.
const GIVE_WAY_LOOK: Duration = Duration::from_secs(10);

impl Provider {
    /// Makes the second backend ready whenever the first has failed, for ever.
    pub(super) async fn ready_the_stand_in(&self) {
        let [first, second, ..] = self.engines.as_slice() else { return };
        let mut was_well = true;
        loop {
            let changed = first.gate.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let well = first.gate.health().state == State::Closed;
            if was_well && !well {
                make_ready(second).await;
            }
            was_well = well;
            changed.await;
        }
    }

    /// Tells backends in this process whether the machine suffers: what is not loaded stays so,
    /// and what nobody uses is let go.
    pub fn set_strained(&self, strained: bool) {
        for engine in &self.engines {
            engine.backend.strained(strained);
        }
    }

    /// Whether the last one in the order is there and only wants a model.
    #[must_use]
    pub fn misses_reserve(&self) -> bool {
        self.engines
            .last()
            .is_some_and(|engine| engine.slot == SlotName::Reserve && engine.gate.misses_model())
    }

    /// Lets stand-ins go when a backend before them has been usable for as long as they want, and
    /// when the machine suffers: a model beside a healthy server is memory for nothing.
    pub(super) async fn give_way(&self) {
        let mut usable_since = vec![None; self.engines.len()];
        loop {
            tokio::time::sleep(GIVE_WAY_LOOK).await;
            let now = Instant::now();
            let mut earliest: Option<Instant> = None;
            for (engine, since) in self.engines.iter().zip(&mut usable_since) {
                let gives_way = match engine.backend.gives_way() {
                    GivesWay::Never => false,
                    GivesWay::Now => true,
                    GivesWay::After(wait) => {
                        earliest.is_some_and(|since| now.saturating_duration_since(since) >= wait)
                    }
                };
                if gives_way {
                    let_go(engine).await;
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

/// Unloads the model when nobody uses it.
async fn let_go(engine: &Engine) {
    let Some(mut in_flight) = in_flight(engine, Priority::OwnersJob).await else { return };
    let result = command(&mut in_flight, engine.backend.unload()).await;
    engine.cache().forget();
    tracing::info!(backend = engine.backend.name(), well = result.is_ok(), "gave way");
}

/// Loads a model ahead of its use, if it takes memory of this machine that is free.
async fn make_ready(engine: &Engine) {
    let Some(needed) = engine.backend.memory_to_load() else { return };
    let Some(memory) = &engine.lent.memory else { return };
    if engine.gate.health().state != State::Closed || engine.backend.holds_model().await {
        return;
    }
    let backend = engine.backend.name();
    match memory.available() {
        Some(available) if available > needed => {
            if look(engine).await && load(engine).await {
                tracing::info!(backend, available, "loaded ahead of its use");
            }
        }
        available => tracing::info!(
            backend,
            available,
            needed,
            "not loaded ahead of its use: too little memory is free"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use tokio_util::sync::CancellationToken;

    use crate::event::Events;
    use crate::limits::PRELOAD_MEMORY_MIN;
    use crate::provider::backend::Backend;
    use crate::provider::breaker::Policy;
    use crate::provider::engine::SlotName;
    use crate::provider::fake::Fake;
    use crate::provider::fault::{Class, Fault, Phase};
    use crate::provider::lent::{Lent, Memory};

    struct Free(AtomicU64, AtomicBool);

    impl Memory for Free {
        fn available(&self) -> Option<u64> {
            self.1.load(Ordering::SeqCst).then(|| self.0.load(Ordering::SeqCst))
        }
    }

    /// How often the fallback is loaded when the primary fails after a quiet start.
    async fn loads(arrange: impl FnOnce(&Fake, &Free)) -> u32 {
        let (hailo, ollama, events) = (Fake::new("hailo"), Fake::new("ollama"), Events::default());
        let free = Arc::new(Free(AtomicU64::new(PRELOAD_MEMORY_MIN + 1), AtomicBool::new(true)));
        ollama.memory_to_load.store(PRELOAD_MEMORY_MIN, Ordering::SeqCst);
        arrange(&ollama, &free);
        let engine = |slot, backend: &Arc<Fake>| {
            let backend: Arc<dyn Backend> = Arc::clone(backend) as _;
            let lent = Lent { memory: Some(Arc::clone(&free) as _), ..Lent::default() };
            let quiet = Duration::from_secs(30);
            Engine::new(slot, backend, Policy::default(), quiet, events.clone()).with(lent)
        };
        let engines = vec![engine(SlotName::Primary, &hailo), engine(SlotName::Fallback, &ollama)];
        let provider = Provider::new(engines, events.clone());
        let stop = CancellationToken::new();
        let recovery = tokio::spawn(Arc::clone(&provider).recover(stop.clone()));
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(ollama.loads.load(Ordering::SeqCst), 0, "not beside a healthy primary");
        hailo.present.store(false, Ordering::SeqCst);
        let gone = Fault::new(Class::Down, Phase::Connect, "refused");
        provider.engines[0].gate.found_gone(&gone);
        tokio::time::sleep(Duration::from_secs(300)).await;
        stop.cancel();
        recovery.await.unwrap();
        ollama.loads.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn the_fallback_is_loaded_once_when_the_primary_fails_and_memory_is_free() {
        assert_eq!(loads(|_, _| {}).await, 1);
        let too_little = |_: &Fake, free: &Free| free.0.store(PRELOAD_MEMORY_MIN, Ordering::SeqCst);
        assert_eq!(loads(too_little).await, 0, "too little memory");
        let unknown = |_: &Fake, free: &Free| free.1.store(false, Ordering::SeqCst);
        assert_eq!(loads(unknown).await, 0, "memory is not known");
        let held = |ollama: &Fake, _: &Free| ollama.held.store(true, Ordering::SeqCst);
        assert_eq!(loads(held).await, 0, "loaded already");
        let elsewhere = |ollama: &Fake, _: &Free| ollama.memory_to_load.store(0, Ordering::SeqCst);
        assert_eq!(loads(elsewhere).await, 0, "its memory is not ours");
        let gone = |ollama: &Fake, _: &Free| ollama.present.store(false, Ordering::SeqCst);
        assert_eq!(loads(gone).await, 0, "it is not there");
    }
}
