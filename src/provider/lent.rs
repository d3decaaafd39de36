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

/// Tells how much memory is free.
pub trait Memory: Send + Sync {
    /// Bytes that programs can still have without swapping; absent if it cannot be told.
    fn available(&self) -> Option<u64>;
}

/// Keeps pages over a restart.
pub trait Notebook: Send + Sync {
    /// The page of this name, if there is one that can be read.
    fn read(&self, name: &str) -> BoxFuture<'_, Option<Vec<u8>>>;

    /// Puts a page in the place of the one of the same name. Does not wait, and may fail unseen:
    /// what is in it can be learned again.
    fn write(&self, name: &str, page: Vec<u8>);
}

/// What the daemon lends one engine. What is absent is not done.
#[derive(Clone, Default)]
pub struct Lent {
    /// Restarts the server.
    pub restart: Option<Arc<dyn Restart>>,
    /// Without it no model is loaded ahead of its use.
    pub memory: Option<Arc<dyn Memory>>,
    /// Keeps what was learned.
    pub notebook: Option<Arc<dyn Notebook>>,
}
