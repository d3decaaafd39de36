//! What an engine needs of the machine and may not reach itself. The daemon lends it.

use std::sync::Arc;

use futures_util::future::BoxFuture;

/// Restarts a model server, where the configuration allows it.
pub trait Restart: Send + Sync {
    /// Asks for the restart and waits for its end, within a bound of its own.
    ///
    /// # Errors
    /// Why it was not done, in a sentence.
    fn restart(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// What the daemon lends one engine. What is absent is not done.
#[derive(Clone, Default)]
pub struct Lent {
    /// Restarts the server.
    pub restart: Option<Arc<dyn Restart>>,
}
