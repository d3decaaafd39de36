//! Builds the backends that the configuration puts into slots.

use std::sync::Arc;

use crate::config::Config;
use crate::config::sections::hardware;
use crate::event::Events;
use crate::net::Http;
use crate::provider::backend::Backend;
use crate::provider::breaker::Policy;
use crate::provider::engine::{Engine, SlotName};
use crate::provider::hailo::{Hailo, HailoConfig, HailoTimeouts};

/// The engines in the order in which they are tried.
pub(super) fn engines(config: &Config, http: &Arc<dyn Http>, events: &Events) -> Vec<Engine> {
    let slots = config.hardware.slots;
    let named = [
        (SlotName::Primary, Some(slots.primary)),
        (SlotName::Fallback, slots.fallback),
        (SlotName::Reserve, slots.reserve),
    ];
    let mut engines = Vec::new();
    for (slot, name) in named {
        if let Some(backend) = name.and_then(|name| backend(name, config, http)) {
            let quiet = config.provider.background_quiet;
            engines.push(Engine::new(slot, backend, policy(config), quiet, events.clone()));
        }
    }
    engines
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
    http: &Arc<dyn Http>,
) -> Option<Arc<dyn Backend>> {
    let http = Arc::clone(http);
    match name {
        hardware::Backend::Hailo => Some(Arc::new(Hailo::new(http, hailo(config)))),
        hardware::Backend::Ollama => None,
        hardware::Backend::Openai => None,
    }
}

fn hailo(config: &Config) -> HailoConfig {
    let limits = config.provider.hailo;
    HailoConfig {
        url: config.hardware.hailo_url.as_str().to_owned(),
        model: config.hardware.hailo_model.clone(),
        keep_alive_s: limits.keep_alive_s,
        timeouts: HailoTimeouts {
            connect: config.provider.connect,
            head_loaded: limits.head,
            head_cold: limits.cold,
            first_token: limits.first_token,
            between_tokens: limits.between_tokens,
            whole_extra: config.provider.job_margin,
            ..HailoTimeouts::default()
        },
        ..HailoConfig::default()
    }
}
