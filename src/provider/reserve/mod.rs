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

mod attention;
mod gguf;
mod kernel;
mod model;
mod sample;
mod shape;
mod speaker;
mod vocabulary;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::speaker::{Broken, Listener, Speaker, Took};
use super::backend::{Backend, Capacity, ChatDelta, ChatRequest, ChatStream, GivesWay, Presence};
use super::fault::{Class, Fault, Phase};
use crate::store::file;

/// Deltas on their way: a reader who is slow for longer holds the model up, which is right.
const DELTAS: usize = 32;

/// How much nicer its threads are than the rest: a third of the processor's time beside a busy
/// thread of normal priority, all of it beside an idle one.
const NICE: i32 = 5;

/// First guesses, for a Raspberry Pi 5; measured from the first answer on.
const READ_PER_S: f32 = 100.0;
const DECODE_PER_S: f32 = 25.0;

/// From a card at 45 MB/s.
const LOAD: Duration = Duration::from_secs(3);

/// How much the newest measurement counts.
const NEWEST: f32 = 0.3;

/// What a reserve is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveConfig {
    /// The model's file; absent if none was fetched.
    pub file: Option<PathBuf>,
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
    shared: Arc<Shared>,
    pool: Mutex<Option<Arc<ThreadPool>>>,
}

/// What the threads share with the backend.
struct Shared {
    config: ReserveConfig,
    /// Locked for as long as an answer takes, on the engine's threads only.
    speaker: Mutex<Option<Speaker>>,
    learned: Mutex<Learned>,
}

#[derive(Debug, Clone, Copy)]
struct Learned {
    read_per_s: f32,
    decode_per_s: Option<f32>,
    load: Duration,
    loaded: bool,
    used: Option<Instant>,
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic in the middle of an answer the state is replaced, not repaired.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The speaker, loaded if it is not. Blocks for as long as an answer takes.
    fn speaker(&self) -> Result<MutexGuard<'_, Option<Speaker>>, Fault> {
        if self.speaker.is_poisoned() {
            *locked(&self.speaker) = None;
            self.speaker.clear_poison();
        }
        let mut speaker = locked(&self.speaker);
        if speaker.is_none() {
            let started = Instant::now();
            *speaker = Some(self.load()?);
            let mut learned = locked(&self.learned);
            learned.load = started.elapsed();
            learned.loaded = true;
        }
        Ok(speaker)
    }

    fn load(&self) -> Result<Speaker, Fault> {
        let missing = |detail: String| Fault::new(Class::ModelMissing, Phase::Connect, detail);
        let Some(path) = &self.config.file else {
            return Err(missing("no model is here; fetch one: crayfish model fetch".to_owned()));
        };
        let most = usize::try_from(self.config.memory_max_mb.saturating_mul(1_000_000));
        let bytes = file::read_whole(path, most.unwrap_or(usize::MAX))
            .map_err(|error| missing(format!("{}: {error}", path.display())))?;
        let context = usize::try_from(self.config.context_tokens).unwrap_or(usize::MAX);
        Speaker::new(bytes, context, self.config.memory_max_mb)
            .map_err(|error| missing(format!("{}: {error}", path.display())))
    }

    fn answer(&self, request: &ChatRequest, listener: &Sender) {
        if listener.is_gone() {
            return;
        }
        let ended = match self.speaker() {
            Ok(mut speaker) => match speaker.as_mut() {
                Some(speaker) => speaker.answer(request, listener),
                None => return,
            },
            Err(fault) => Err(Broken::Fault(fault)),
        };
        match ended {
            Ok(took) => locked(&self.learned).note(took),
            Err(Broken::GivenUp) => {}
            Err(Broken::Fault(fault)) => {
                let _ = listener.0.blocking_send(Err(fault));
            }
        }
        locked(&self.learned).used = Some(Instant::now());
    }
}

impl Learned {
    fn note(&mut self, took: Took) {
        let blend = |old: f32, new: f32| old + NEWEST * (new - old);
        // Shorter ones measure the clock.
        if took.read >= 16 && took.read_s > 0.0 {
            self.read_per_s = blend(self.read_per_s, took.read as f32 / took.read_s).max(1.0);
        }
        if took.decoded >= 8 && took.decoded_s > 0.0 {
            let new = took.decoded as f32 / took.decoded_s;
            self.decode_per_s = Some(self.decode_per_s.map_or(new, |old| blend(old, new)));
        }
    }
}

impl Reserve {
    /// A reserve; nothing is loaded yet.
    #[must_use]
    pub fn new(config: ReserveConfig) -> Self {
        let learned = Learned {
            read_per_s: READ_PER_S,
            decode_per_s: None,
            load: LOAD,
            loaded: false,
            used: None,
        };
        let shared = Shared {
            config: config.clone(),
            speaker: Mutex::new(None),
            learned: Mutex::new(learned),
        };
        Self { config, shared: Arc::new(shared), pool: Mutex::new(None) }
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
        what: impl FnOnce(&Shared) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let (tell, told) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        self.pool()?.spawn(move || {
            let _ = tell.send(what(&shared));
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
        let stem = self.config.file.as_deref().and_then(|file| file.file_stem());
        stem.map_or_else(|| "no model".to_owned(), |stem| stem.to_string_lossy().into_owned())
    }

    fn capacity(&self) -> Capacity {
        let context_tokens = self.config.context_tokens;
        Capacity { context_tokens, prefill_tokens_max: context_tokens }
    }

    fn first_token_estimate(&self, fresh_tokens: u32) -> Duration {
        let learned = *locked(&self.shared.learned);
        let load = if learned.loaded { Duration::ZERO } else { learned.load };
        load + Duration::from_secs_f32(fresh_tokens as f32 / learned.read_per_s)
    }

    fn chat(&self, mut request: ChatRequest) -> BoxFuture<'_, Result<ChatStream, Fault>> {
        async move {
            if request.schema.is_none() {
                request.num_predict = request.num_predict.min(self.config.answer_tokens_max);
            }
            let (tell, told) = mpsc::channel(DELTAS);
            let shared = Arc::clone(&self.shared);
            self.pool()?.spawn(move || shared.answer(&request, &Sender(tell)));
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
            let model = self.config.file.is_some().then(|| self.model());
            let offered = model.iter().cloned().collect();
            Ok(Presence { server: "the reserve".to_owned(), model, offered })
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<(), Fault>> {
        self.on_threads(|shared| shared.speaker().map(|_| ())).boxed()
    }

    fn unload(&self) -> BoxFuture<'_, Result<(), Fault>> {
        async move {
            if locked(&self.pool).is_none() {
                return Ok(());
            }
            self.on_threads(|shared| {
                *locked(&shared.speaker) = None;
                locked(&shared.learned).loaded = false;
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
        let learned = *locked(&self.shared.learned);
        learned.decode_per_s.or(learned.loaded.then_some(DECODE_PER_S))
    }

    fn gives_way(&self) -> GivesWay {
        let learned = *locked(&self.shared.learned);
        let after = self.config.unload_after;
        let quiet = learned.used.is_none_or(|used| used.elapsed() >= after);
        if learned.loaded && quiet { GivesWay::After(after) } else { GivesWay::Never }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tiny;
