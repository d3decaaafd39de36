//! The reserve: a small model inside the process, for when no model server answers.
//!
//! It reads GGUF files of the llama architecture (F32, F16, Q4_0, Q4_1, Q8_0) with ChatML and the
//! `smollm` tokeniser; the model of choice is SmolLM2-135M-Instruct. The model is loaded when it
//! is first needed and let go when servers are back.
//!
//! # Why an engine of our own
//! The bounds are those of issue 3: 0.35 times the prefill and 0.7 times the decoding of the
//! llama.cpp server with the same file, cargo and a C compiler alone, at most 16 MB of binary.
//! Measured with SmolLM2-135M Q4_1, two threads (x86-64, AVX-512), tokens a second:
//!
//! | engine | needs | crates | binary | prefill | decode |
//! |---|---|---|---|---|---|
//! | llama.cpp server | Python | - | - | 266 | 90 |
//! | llama-cpp-2 0.1.160 | cmake, libclang | 18 | 5.5 MB | 288 | 66 |
//! | oxillama-runtime 0.1.4 | - | 110 | 7.2 MB | 75 (0.28) | 32 (0.36) |
//! | candle 0.11.1 | - | 145 | 7.3 MB | 91 (0.34) | 54 (0.60), wrong tokens |
//!
//! Neither pure crate reaches a bound, both break the limit on packages. What is here stands on
//! kept crates where there are some: `pulp` (instruction sets), `rayon` (threads), `llguidance`
//! (schemas). On one thread of a processor with AVX2, in CPU time beside the server's on the same
//! thread, on a busy machine: prefill 1.1 times (121 to 105), decode 0.8 times (44 to 54, single
//! runs between 0.63 and 1.02); oxillama took 3.5 times the CPU time of this engine there.
//!
//! # Invariants
//! - At most one answer at a time; one whose stream was dropped ends within a token.
//! - All its work is done on its own threads, below normal priority.
//! - Nothing is loaded while the machine is strained, or for which it has no memory.

mod attention;
mod gguf;
mod keeper;
mod kernel;
mod model;
mod sample;
mod shape;
mod speaker;
mod vocabulary;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::{mpsc, oneshot};

use self::keeper::{Keeper, locked};
use self::speaker::{Broken, Listener};
use super::backend::{Backend, Capacity, ChatDelta, ChatRequest, ChatStream, GivesWay, Presence};
use super::fault::{Class, Fault, Phase};

/// Deltas on their way: a reader who is slow for longer holds the model up, which is right.
const DELTAS: usize = 32;

/// How much nicer its threads are than the rest: a third of the processor's time beside a busy
/// thread of normal priority, all of it beside an idle one.
const NICE: i32 = 5;

/// Finds the model's file; none if none is here. Asked whenever it matters, so that a model that
/// was fetched or chosen meanwhile is taken up.
pub type Find = Arc<dyn Fn() -> Option<PathBuf> + Send + Sync>;

/// What a reserve is made of.
#[derive(Clone)]
pub struct ReserveConfig {
    /// Finds the model's file.
    pub find: Find,
    /// Threads that decode, at least 1.
    pub threads: usize,
    /// Prompt and answer together, in tokens.
    pub context_tokens: u32,
    /// Most tokens of an answer.
    pub answer_tokens_max: u32,
    /// Model and cache together may take this much.
    pub memory_max_mb: u64,
    /// How long servers must have been back before the model is let go.
    pub unload_after: Duration,
}

/// The reserve as a backend.
pub struct Reserve {
    config: ReserveConfig,
    keeper: Arc<Keeper>,
    pool: Mutex<Option<Arc<ThreadPool>>>,
}

struct Sender(mpsc::Sender<Result<ChatDelta, Fault>>);

impl Listener for Sender {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    fn hear(&self, delta: ChatDelta) {
        // Whether somebody is there is asked before the next token.
        let _ = self.0.blocking_send(Ok(delta));
    }
}

/// Answers on the engine's threads.
fn answer(keeper: &Keeper, request: &ChatRequest, listener: &Sender) {
    if listener.is_gone() {
        return;
    }
    let ended = match keeper.speaker() {
        Ok(mut loaded) => match loaded.as_mut() {
            Some(loaded) => loaded.speaker.answer(request, listener),
            None => return,
        },
        Err(fault) => Err(Broken::Fault(fault)),
    };
    match ended {
        Ok(took) => keeper.note(took),
        Err(Broken::GivenUp) => {}
        Err(Broken::Fault(fault)) => {
            let _ = listener.0.blocking_send(Err(fault));
        }
    }
    keeper.used();
}

impl Reserve {
    /// A reserve; nothing is loaded yet.
    #[must_use]
    pub fn new(config: ReserveConfig) -> Self {
        let keeper = Arc::new(Keeper::new(config.clone()));
        Self { config, keeper, pool: Mutex::new(None) }
    }

    /// The threads, started if they are not.
    fn pool(&self) -> Result<Arc<ThreadPool>, Fault> {
        let mut pool = locked(&self.pool);
        if let Some(pool) = pool.as_ref() {
            return Ok(Arc::clone(pool));
        }
        let built = ThreadPoolBuilder::new()
            .num_threads(self.config.threads.max(1))
            .thread_name(|index| format!("reserve-{index}"))
            .start_handler(|_| {
                // On Linux this means the calling thread alone. It is a courtesy, not a need.
                let _ = rustix::process::setpriority_process(None, NICE);
            })
            // The stream just ends then, which is a fault of its own.
            .panic_handler(|_| tracing::error!("the reserve engine panicked"))
            .build()
            .map_err(|error| Fault::new(Class::ServerError, Phase::Connect, error.to_string()))?;
        let built = Arc::new(built);
        *pool = Some(Arc::clone(&built));
        Ok(built)
    }

    /// Does something on the engine's threads.
    async fn on_threads(
        &self,
        what: impl FnOnce(&Keeper) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let (tell, told) = oneshot::channel();
        let keeper = Arc::clone(&self.keeper);
        self.pool()?.spawn(move || {
            let _ = tell.send(what(&keeper));
        });
        let died = || Fault::new(Class::Crashed, Phase::Head, "the reserve engine gave up");
        told.await.map_err(|_| died())?
    }
}

impl Backend for Reserve {
    fn name(&self) -> &str {
        "reserve"
    }

    fn model(&self) -> String {
        self.keeper.name()
    }

    fn capacity(&self) -> Capacity {
        let context_tokens = self.config.context_tokens;
        Capacity { context_tokens, prefill_tokens_max: context_tokens }
    }

    fn first_token_estimate(&self, fresh_tokens: u32) -> Duration {
        self.keeper.learned().first_token(fresh_tokens)
    }

    fn chat(&self, mut request: ChatRequest) -> BoxFuture<'_, Result<ChatStream, Fault>> {
        async move {
            self.keeper.ready()?;
            if request.schema.is_none() {
                request.num_predict = request.num_predict.min(self.config.answer_tokens_max);
            }
            let (tell, told) = mpsc::channel(DELTAS);
            let keeper = Arc::clone(&self.keeper);
            self.pool()?.spawn(move || answer(&keeper, &request, &Sender(tell)));
            let stream = futures_util::stream::unfold(told, |mut told| async {
                let delta = told.recv().await?;
                Some((delta, told))
            });
            Ok(Box::pin(stream) as ChatStream)
        }
        .boxed()
    }

    fn presence(&self) -> BoxFuture<'_, Result<Presence, Fault>> {
        async move {
            self.keeper.sound()?;
            let model = self.model();
            let offered = vec![model.clone()];
            Ok(Presence { server: "the reserve".to_owned(), model: Some(model), offered })
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<(), Fault>> {
        async move {
            self.keeper.ready()?;
            self.on_threads(|keeper| keeper.speaker().map(|_| ())).await
        }
        .boxed()
    }

    fn unload(&self) -> BoxFuture<'_, Result<(), Fault>> {
        async move {
            if locked(&self.pool).is_none() {
                return Ok(());
            }
            self.on_threads(|keeper| {
                keeper.let_go();
                Ok(())
            })
            .await?;
            *locked(&self.pool) = None;
            Ok(())
        }
        .boxed()
    }

    fn ghost(&self, _before_head: bool, _prompt_tokens: u32) -> Duration {
        // The next answer waits on the engine's own lock, for a token at most.
        Duration::ZERO
    }

    fn record_outlives_failure(&self) -> bool {
        false
    }

    fn tokens_per_s(&self) -> Option<f32> {
        self.keeper.learned().tokens_per_s()
    }

    fn gives_way(&self) -> GivesWay {
        self.keeper.gives_way()
    }

    fn strained(&self, strained: bool) {
        self.keeper.strained.store(strained, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tiny;
