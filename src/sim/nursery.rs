//! Runs the world's own futures (servers, people) beside the daemon's tasks, in a fixed order and
//! without spawning: a simulation must not depend on what the runtime feels like.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;

/// Where futures are left to be run.
#[derive(Clone, Default)]
pub(super) struct Nursery(Arc<Shared>);

#[derive(Default)]
struct Shared {
    new: Mutex<Vec<BoxFuture<'static, ()>>>,
    more: Notify,
}

impl Nursery {
    /// Leaves a future.
    pub(super) fn start(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.new.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(future));
        self.0.more.notify_one();
    }

    /// Runs what is left here, for ever.
    pub(super) async fn run(&self) {
        let mut all = FuturesUnordered::new();
        loop {
            let new =
                std::mem::take(&mut *self.0.new.lock().unwrap_or_else(PoisonError::into_inner));
            all.extend(new);
            tokio::select! {
                biased;
                () = self.0.more.notified() => {}
                Some(()) = all.next(), if !all.is_empty() => {}
            }
        }
    }
}
