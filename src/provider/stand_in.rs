//! Backends that come and go beside the others: models that turn up late, and stand-ins that let
//! go of theirs when servers are back or the machine suffers.

use std::time::Duration;

use tokio::time::Instant;

use super::Provider;
use super::backend::GivesWay;
use super::engine::{Engine, SlotName};
use super::lease::Priority;
use super::recovery::{command, in_flight, look};

/// How often a model that is missing is looked for: whoever has just fetched it may wait so long
/// for the status to say it. Questions are tried at any time.
const MISSING_LOOK: Duration = Duration::from_secs(10);

/// How often it is looked whether a stand-in may let go of its model: it waits for minutes.
const GIVE_WAY_LOOK: Duration = Duration::from_secs(10);

impl Provider {
    /// Finds out that a model which was missing has come.
    pub(super) async fn look_for_missing(&self) {
        loop {
            tokio::time::sleep(MISSING_LOOK).await;
            for engine in &self.engines {
                if engine.gate.misses_model() {
                    look(engine).await;
                }
            }
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
