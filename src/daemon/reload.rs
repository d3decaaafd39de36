//! Reads the configuration again, at SIGHUP or when its file has changed.
//!
//! A bad file changes nothing: the old configuration stays in force, and the log has every
//! problem. What cannot change while running is named, so that nobody waits for it to take effect.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::log::LogLevel;
use super::systemd::Manager;
use super::watch::Watch;
use crate::agent::service::{Agent, Settings};
use crate::config::env::ProcessEnv;
use crate::config::reload::Change;
use crate::config::{Config, ConfigError, Loaded};
use crate::event::{Event, Events};
use crate::mood::Tuning;

/// An editor's save may be several writes; they are taken as one.
const SETTLE: Duration = Duration::from_millis(200);

/// What a reload needs.
#[derive(Clone)]
pub(super) struct Reload {
    /// `--config`, as it was given.
    pub(super) flag: Option<PathBuf>,
    /// The configuration in force, shared between restarts of the task.
    pub(super) loaded: Arc<std::sync::Mutex<Loaded>>,
    pub(super) agent: Arc<Agent>,
    pub(super) identity: String,
    pub(super) level: Option<LogLevel>,
    pub(super) manager: Arc<Manager>,
    pub(super) events: Events,
    /// Notified at SIGHUP.
    pub(super) asked: Arc<Notify>,
}

/// Waits for reasons to reload until `stop`.
pub(super) async fn run(reload: Reload, stop: CancellationToken) {
    let path = reload.current().path;
    let mut watch = path.as_deref().and_then(|path| {
        let watch = Watch::new(path);
        if let Err(error) = &watch {
            tracing::warn!(path = %path.display(), %error, "changes are seen only at SIGHUP");
        }
        watch.ok()
    });
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = reload.asked.notified() => {
                reload.manager.reloading();
                reload.once(true);
                reload.manager.ready("configuration read again");
            }
            () = changed(&mut watch) => {
                tokio::time::sleep(SETTLE).await;
                reload.once(false);
            }
        }
    }
}

/// Resolves at a change; never without a watch.
async fn changed(watch: &mut Option<Watch>) {
    match watch {
        Some(alive) => {
            if let Err(error) = alive.changed().await {
                tracing::warn!(%error, "the configuration is no longer watched");
                *watch = None;
            }
        }
        None => std::future::pending().await,
    }
}

/// Says what is odd about a configuration that is used all the same.
pub(super) fn log_warnings(loaded: &Loaded) {
    let file = loaded.path.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    for warning in &loaded.warnings {
        tracing::warn!(event = "config.warning", "{}", warning.in_file(&file));
    }
}

/// The agent's settings, as the configuration has them.
pub(super) fn settings(config: &Config, identity: &str) -> Settings {
    let decoding = f64::from(config.agent.answer_tokens_max)
        / config
            .provider
            .hailo
            .decode_tokens_per_s
            .min(config.provider.ollama.decode_tokens_per_s)
            .max(0.1);
    Settings {
        system: identity.to_owned(),
        answer_tokens_max: config.agent.answer_tokens_max,
        turns_max: config.memory.stm_max_turns,
        sampling: crate::provider::backend::Sampling {
            temperature: config.agent.temperature,
            top_p: config.agent.top_p,
            top_k: config.agent.top_k,
            seed: None,
        },
        // Every backend may take its cold start and the whole of a slow answer, one after the
        // other; only then is a turn given up.
        deadline: config.provider.hailo.cold
            + config.provider.ollama.cold
            + 2 * (Duration::from_secs_f64(decoding) + config.provider.job_margin),
        zone: config.system.timezone.zone.clone(),
        mood: Tuning::new(&config.mood, config.system.pulse),
        nudges: config.mood.nudges,
    }
}

impl Reload {
    fn current(&self) -> Loaded {
        self.loaded.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Reads and applies. An unchanged file is worth a word only if a person asked.
    fn once(&self, asked: bool) {
        let (new, changes) = match self.current().reload(self.flag.as_deref(), &ProcessEnv) {
            Ok(new) => new,
            Err(error) => {
                tracing::error!(problems = %error, "the new configuration is not used");
                let problems = match error {
                    ConfigError::Problems { problems, .. } => problems.len(),
                    ConfigError::Unreadable { .. } => 1,
                };
                self.events.tell(Event::ConfigRefused { problems });
                return;
            }
        };
        log_warnings(&new);
        if changes.is_empty() && !asked {
            return;
        }
        self.agent.set(settings(&new.config, &self.identity));
        if let Some(level) = &self.level {
            level.set(new.config.log.level);
        }
        let paths =
            |changes: &[Change]| changes.iter().map(|change| change.path.to_owned()).collect();
        self.events.tell(Event::ConfigReloaded {
            changed: paths(&changes.live),
            restart: paths(&changes.restart),
        });
        *self.loaded.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = new;
    }
}
