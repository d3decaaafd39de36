//! What the engine's threads share with the backend: the model, loaded when it is needed, and what
//! was learned of its speed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::ReserveConfig;
use super::gguf::ModelError;
use super::speaker::{Speaker, Took};
use crate::provider::backend::GivesWay;
use crate::provider::fault::{Class, Fault, Phase};
use crate::store::file::{self, Stamp};

/// First guesses, for a Raspberry Pi 5; measured from the first answer on.
const READ_PER_S: f32 = 100.0;
const DECODE_PER_S: f32 = 25.0;

/// From a card at 45 MB/s.
const LOAD: Duration = Duration::from_secs(3);

/// How much the newest measurement counts.
const NEWEST: f32 = 0.3;

/// Left to the rest of the machine when a model is loaded: without it the kernel would throw out
/// the pages of programs to make room.
const MEMORY_SPARE_MB: u64 = 128;

/// How often the file is asked for when only its name is wanted.
const NAME_FRESH: Duration = Duration::from_secs(1);

/// What the kernel says about memory.
const MEMORY_FILE: &str = "/proc/meminfo";

/// More than it ever is.
const MEMORY_FILE_BYTES_MAX: usize = 64 * 1024;

/// A model with the file it came from.
pub(super) struct Loaded {
    source: Source,
    pub(super) speaker: Speaker,
}

/// A file, and which one of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    path: PathBuf,
    stamp: Stamp,
}

/// Keeps the model.
pub(super) struct Keeper {
    config: ReserveConfig,
    /// Locked for as long as an answer takes, on the engine's threads only.
    loaded: Mutex<Option<Loaded>>,
    state: Mutex<State>,
    /// The machine suffers: what is not loaded stays so.
    pub(super) strained: AtomicBool,
}

struct State {
    learned: Learned,
    /// The file that was found last, and when.
    found: Option<PathBuf>,
    looked: Instant,
    /// A file that cannot be used, and why. It is not read again for every question.
    broken: Option<(Source, Fault)>,
}

/// What was learned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Learned {
    read_per_s: f32,
    decode_per_s: Option<f32>,
    load: Duration,
    loaded: bool,
    used: Option<Instant>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic in the middle of an answer the state is replaced, not repaired.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    pub(super) fn new(config: ReserveConfig) -> Self {
        let learned = Learned {
            read_per_s: READ_PER_S,
            decode_per_s: None,
            load: LOAD,
            loaded: false,
            used: None,
        };
        let found = (config.find)();
        let state = State { learned, found, looked: Instant::now(), broken: None };
        Self {
            config,
            loaded: Mutex::new(None),
            state: Mutex::new(state),
            strained: AtomicBool::new(false),
        }
    }

    /// The model's file now.
    fn find(&self) -> Option<PathBuf> {
        let found = (self.config.find)();
        let mut state = locked(&self.state);
        state.found.clone_from(&found);
        state.looked = Instant::now();
        found
    }

    /// The model's name, for people.
    pub(super) fn name(&self) -> String {
        let is_fresh = locked(&self.state).looked.elapsed() < NAME_FRESH;
        let found = if is_fresh { locked(&self.state).found.clone() } else { self.find() };
        let stem = found.as_deref().and_then(Path::file_stem);
        stem.map_or_else(|| "no model".to_owned(), |stem| stem.to_string_lossy().into_owned())
    }

    /// The model's file, unless there is none or it is known to be broken.
    pub(super) fn sound(&self) -> Result<Source, Fault> {
        let path = self.find().ok_or_else(|| {
            missing("no model is here; for a small one: crayfish model fetch".to_owned())
        })?;
        let stamp = file::stamp(&path).map_err(|error| of_file(&path, &error))?;
        let source = Source { path, stamp };
        match &locked(&self.state).broken {
            Some((broken, fault)) if *broken == source => Err(fault.clone()),
            _ => Ok(source),
        }
    }

    /// Whether an answer may begin: the model is loaded, or it may be.
    pub(super) fn ready(&self) -> Result<(), Fault> {
        self.sound()?;
        if self.learned().loaded || !self.strained.load(Ordering::Relaxed) {
            return Ok(());
        }
        let says = "the machine is strained, so the small model is not loaded now";
        Err(Fault::new(Class::Strained, Phase::Connect, says))
    }

    /// The model, loaded if it is not. Blocks for as long as an answer takes.
    pub(super) fn speaker(&self) -> Result<MutexGuard<'_, Option<Loaded>>, Fault> {
        if self.loaded.is_poisoned() {
            *locked(&self.loaded) = None;
            self.loaded.clear_poison();
        }
        let source = self.sound()?;
        let mut loaded = locked(&self.loaded);
        if loaded.as_ref().is_some_and(|loaded| loaded.source == source) {
            return Ok(loaded);
        }
        // Another was chosen: there is no room for two.
        *loaded = None;
        locked(&self.state).learned.loaded = false;
        self.ready()?;
        let started = Instant::now();
        let result = self.load(&source);
        let mut state = locked(&self.state);
        match result {
            Ok(speaker) => {
                *loaded = Some(Loaded { source, speaker });
                state.broken = None;
                state.learned.load = started.elapsed();
                state.learned.loaded = true;
                drop(state);
                Ok(loaded)
            }
            Err(fault) => {
                if fault.class == Class::ModelMissing {
                    state.broken = Some((source, fault.clone()));
                }
                Err(fault)
            }
        }
    }

    fn load(&self, source: &Source) -> Result<Speaker, Fault> {
        let Source { path, stamp } = source;
        let max_mb = self.config.memory_max_mb;
        let needs_mb = stamp.bytes.div_ceil(1_000_000);
        if needs_mb > max_mb {
            return Err(of_file(path, &ModelError::TooLarge { needs_mb, max_mb }));
        }
        room_for(needs_mb, available_mb())?;
        let bytes_max = usize::try_from(stamp.bytes).unwrap_or(usize::MAX);
        let bytes = file::read_whole(path, bytes_max).map_err(|error| of_file(path, &error))?;
        let context = usize::try_from(self.config.context_tokens).unwrap_or(usize::MAX);
        Speaker::new(bytes, context, max_mb).map_err(|error| of_file(path, &error))
    }

    /// Frees the model's memory.
    pub(super) fn let_go(&self) {
        *locked(&self.loaded) = None;
        locked(&self.state).learned.loaded = false;
    }

    pub(super) fn learned(&self) -> Learned {
        locked(&self.state).learned
    }

    pub(super) fn note(&self, took: Took) {
        locked(&self.state).learned.note(took);
    }

    /// Somebody has used it just now.
    pub(super) fn used(&self) {
        locked(&self.state).learned.used = Some(Instant::now());
    }

    pub(super) fn gives_way(&self) -> GivesWay {
        let learned = self.learned();
        let after = self.config.unload_after;
        match learned.loaded {
            false => GivesWay::Never,
            true if self.strained.load(Ordering::Relaxed) => GivesWay::Now,
            true if learned.used.is_none_or(|used| used.elapsed() >= after) => {
                GivesWay::After(after)
            }
            true => GivesWay::Never,
        }
    }
}

fn of_file(path: &Path, error: &dyn std::error::Error) -> Fault {
    missing(format!("{} cannot be used: {error}", path.display()))
}

fn missing(detail: String) -> Fault {
    Fault::new(Class::ModelMissing, Phase::Connect, detail)
}

/// Refuses what the machine has no memory for now; where it does not say, nothing.
pub(super) fn room_for(needs_mb: u64, available_mb: Option<u64>) -> Result<(), Fault> {
    match available_mb {
        Some(free) if free < needs_mb.saturating_add(MEMORY_SPARE_MB) => {
            let says = format!(
                "the small model takes {needs_mb} MB of memory and {free} are free, of which \
                 {MEMORY_SPARE_MB} are left to the rest"
            );
            Err(Fault::new(Class::Strained, Phase::Connect, says))
        }
        _ => Ok(()),
    }
}

fn available_mb() -> Option<u64> {
    let text = file::read_unsized(Path::new(MEMORY_FILE), MEMORY_FILE_BYTES_MAX).ok()?;
    available_in(std::str::from_utf8(&text).ok()?)
}

/// What the kernel could give to a program without moving another's pages out.
pub(super) fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024 / 1_000_000)
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

    pub(super) fn first_token(&self, fresh_tokens: u32) -> Duration {
        let load = if self.loaded { Duration::ZERO } else { self.load };
        load + Duration::from_secs_f32(fresh_tokens as f32 / self.read_per_s)
    }

    pub(super) fn tokens_per_s(&self) -> Option<f32> {
        self.decode_per_s.or(self.loaded.then_some(DECODE_PER_S))
    }
}
