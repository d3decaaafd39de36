//! What lies between the writer and its file: a thread for blocking calls, and in the simulation a
//! medium that is slow, full or broken.

use futures_util::future::BoxFuture;

use super::StoreError;

/// A blocking call on the database.
pub type Call = Box<dyn FnOnce() + Send>;

/// Runs the writer's calls, one at a time.
pub trait Medium: Send + Sync {
    /// Runs one call to its end. `Closed` if it panicked.
    ///
    /// # Cancel safety
    /// Dropping the future must not run the call twice; whether it runs at all is open.
    fn run(&self, call: Call) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Asked before the file is opened, before each commit and before the log is folded: an error
    /// stands for the medium's own. The statements before the commit are rolled back.
    ///
    /// # Errors
    /// `Full` or `Io`.
    fn verdict(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The machine's own disk, on the runtime's threads for blocking calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Thread;

impl Medium for Thread {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(
            async move { tokio::task::spawn_blocking(call).await.map_err(|_| StoreError::Closed) },
        )
    }
}
