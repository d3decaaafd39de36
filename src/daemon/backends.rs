//! Builds the backends that the configuration puts into slots.

use std::path::Path;
use std::sync::Arc;

use super::machine::{Machine, Notes};
use super::restart::Command;
use crate::config::Config;
use crate::config::sections::hardware;
use crate::event::Events;
use crate::model::Shelf;
use crate::net::Http;
use crate::provider::backend::Backend;
use crate::provider::breaker::Policy;
use crate::provider::engine::{Engine, SlotName};
use crate::provider::hailo::{Hailo, HailoConfig, HailoTimeouts};
use crate::provider::lent::Lent;
use crate::provider::ollama::{Ollama, OllamaConfig, OllamaTimeouts};
use crate::provider::openai::{OpenAi, OpenAiConfig, OpenAiTimeouts};

/// What the daemon lends its engines.
pub(super) struct Lends {
    pub(super) machine: Arc<Machine>,
    pub(super) notes: Arc<Notes>,
}

/// The engines in the order in which they are tried.
///
/// The small model inside the process is the reserve unless another was named or it is switched
/// off, whether its file is here or not: it may come at any time. Without a shelf there is none.
pub(super) fn engines(
    config: &Config,
    models: Option<&Shelf>,
    http: &Arc<dyn Http>,
    events: &Events,
    lends: &Lends,
) -> Vec<Engine> {
    let mut slots = config.hardware.slots;
    let has_reserve = slots.iter().any(|backend| backend == hardware::Backend::Reserve);
    let can = models.is_some() && config.reserve.enabled && cfg!(feature = "reserve");
    if slots.reserve.is_none() && !has_reserve && can {
        slots.reserve = Some(hardware::Backend::Reserve);
    }
    let named = [
        (SlotName::Primary, Some(slots.primary)),
        (SlotName::Fallback, slots.fallback),
        (SlotName::Reserve, slots.reserve),
    ];
    let mut engines = Vec::new();
    for (slot, name) in named {
        let Some(name) = name else { continue };
        if let Some(backend) = backend(name, config, models, http, &lends.machine.root) {
            let quiet = config.provider.background_quiet;
            let engine = Engine::new(slot, backend, policy(config), quiet, events.clone());
            engines.push(engine.with(lends.to(name, config)));
        }
    }
    engines
}

impl Lends {
    fn to(&self, name: hardware::Backend, config: &Config) -> Lent {
        let command = config.hardware.hailo_restart_command.as_deref().and_then(Command::of);
        let restart = command.filter(|_| name == hardware::Backend::Hailo);
        Lent {
            restart: restart.map(|command| Arc::new(command) as _),
            memory: Some(Arc::clone(&self.machine) as _),
            notebook: Some(Arc::clone(&self.notes) as _),
        }
    }
}

fn policy(config: &Config) -> Policy {
    let breaker = config.provider.breaker;
    Policy {
        failures_to_open: breaker.failures_to_open as usize,
        window: breaker.window,
        open_for: breaker.open_for,
        open_max: breaker.open_max,
    }
}

fn backend(
    name: hardware::Backend,
    config: &Config,
    models: Option<&Shelf>,
    http: &Arc<dyn Http>,
    machine: &Path,
) -> Option<Arc<dyn Backend>> {
    let http = Arc::clone(http);
    match name {
        hardware::Backend::Hailo => Some(Arc::new(Hailo::new(http, hailo(config, machine)))),
        hardware::Backend::Ollama => Some(Arc::new(Ollama::new(http, ollama(config)))),
        hardware::Backend::Openai => {
            let openai = openai(config)?;
            Some(Arc::new(OpenAi::new(http, openai)))
        }
        hardware::Backend::Reserve => reserve(config, models),
    }
}

#[cfg(feature = "reserve")]
fn reserve(config: &Config, models: Option<&Shelf>) -> Option<Arc<dyn Backend>> {
    use crate::provider::reserve::{Reserve, ReserveConfig};

    let limits = config.reserve;
    let shelf = models?.clone();
    Some(Arc::new(Reserve::new(ReserveConfig {
        find: Arc::new(move || shelf.in_use()),
        threads: limits.threads as usize,
        context_tokens: limits.context_tokens,
        answer_tokens_max: limits.answer_tokens_max,
        memory_max_mb: u64::from(limits.memory_max_mb),
        unload_after: limits.unload_after,
    })))
}

#[cfg(not(feature = "reserve"))]
fn reserve(_config: &Config, _models: Option<&Shelf>) -> Option<Arc<dyn Backend>> {
    tracing::warn!("the reserve is configured but not built in");
    None
}

fn hailo(config: &Config, machine: &Path) -> HailoConfig {
    let limits = config.provider.hailo;
    HailoConfig {
        url: config.hardware.hailo_url.as_str().to_owned(),
        model: config.hardware.hailo_model.clone(),
        keep_alive_s: limits.keep_alive_s,
        machine: machine.to_owned(),
        timeouts: HailoTimeouts {
            connect: config.provider.connect,
            head_loaded: limits.head,
            head_cold: limits.cold,
            first_token: limits.first_token,
            between_tokens: limits.between_tokens,
            decode_tokens_per_s: limits.decode_tokens_per_s,
            whole_extra: config.provider.job_margin,
            ..HailoTimeouts::default()
        },
        ..HailoConfig::default()
    }
}

fn ollama(config: &Config) -> OllamaConfig {
    let limits = config.provider.ollama;
    OllamaConfig {
        url: config.hardware.cpu_url.as_str().to_owned(),
        model: config.hardware.cpu_model.clone(),
        context_tokens: config.hardware.cpu_context_tokens,
        threads: config.hardware.cpu_threads,
        keep_alive_s: limits.keep_alive_s,
        timeouts: OllamaTimeouts {
            connect: config.provider.connect,
            head_loaded: limits.head_margin,
            head_cold: limits.cold,
            prefill_tokens_per_s: whole_rate(limits.prefill_tokens_per_s),
            first_token: limits.first_token,
            between_tokens: limits.between_tokens,
            decode_tokens_per_s: limits.decode_tokens_per_s,
            whole_extra: config.provider.job_margin,
            ..OllamaTimeouts::default()
        },
        ..OllamaConfig::default()
    }
}

/// None if the section names no server; the check has refused a slot that names it then.
fn openai(config: &Config) -> Option<OpenAiConfig> {
    let limits = config.provider.openai;
    let server = config.openai.as_ref()?;
    Some(OpenAiConfig {
        url: server.url.as_str().to_owned(),
        model: server.model.clone(),
        context_tokens: server.context_tokens,
        api_key: server.api_key.as_ref().map(|key| key.expose().to_owned()),
        timeouts: OpenAiTimeouts {
            connect: config.provider.connect,
            head: limits.head,
            first_token: limits.first_token,
            between_tokens: limits.between_tokens,
            decode_tokens_per_s: limits.decode_tokens_per_s,
            whole_extra: config.provider.job_margin,
            ..OpenAiTimeouts::default()
        },
    })
}

/// A rate as the dialect takes it: whole tokens a second, at least one.
#[expect(clippy::cast_possible_truncation, reason = "the configuration bounds it")]
#[expect(clippy::cast_sign_loss, reason = "the configuration bounds it")]
fn whole_rate(tokens_per_s: f64) -> u32 {
    (tokens_per_s as u32).max(1)
}
