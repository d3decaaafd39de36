//! A request that a server works on, together with the slot it was sent with.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::backend::Backend;
use super::lease::Slot;

/// A request in flight. Dropping it keeps the slot taken for the ghost of the request.
pub(super) struct InFlight {
    slot: Option<Slot>,
    backend: Arc<dyn Backend>,
    prompt_tokens: u32,
    /// Something was sent that the server may be busy with.
    sent: bool,
    /// Something was decoded. hailo-ollama sends its head before prefill, so the head alone does
    /// not mean that it looks whether anybody listens.
    pub(super) token_seen: bool,
    /// The server is done with it.
    pub(super) complete: bool,
}

impl InFlight {
    /// Nothing was sent yet.
    pub(super) fn new(slot: Slot, backend: &Arc<dyn Backend>, prompt_tokens: u32) -> Self {
        Self {
            slot: Some(slot),
            backend: Arc::clone(backend),
            prompt_tokens,
            sent: false,
            token_seen: false,
            complete: false,
        }
    }

    /// A request goes out; until it is complete the server is busy with it.
    pub(super) fn sent(&mut self) {
        self.sent = true;
        self.token_seen = false;
        self.complete = false;
    }

    /// Cancelled when somebody more important waits for the slot.
    pub(super) fn preempted(&self) -> CancellationToken {
        self.slot.as_ref().map(|slot| slot.preempted().clone()).unwrap_or_default()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let ghost = if self.sent && !self.complete {
            self.backend.ghost(!self.token_seen, self.prompt_tokens)
        } else {
            Duration::ZERO
        };
        slot.release_after(ghost);
    }
}
