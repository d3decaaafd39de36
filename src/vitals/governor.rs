//! The governor: gives work up before the firmware takes the clock away (pure).
//!
//! Each signal demands a level, and the highest demand is in force:
//! - temperature: the governor looks as far ahead as it has looked back (at most `window`): if the
//!   processor has become 4 degrees warmer, it is taken to become as much warmer again;
//! - pressure on processors and memory (PSI), and memory in use;
//! - the firmware's bits, a low voltage, and a decode rate far below what it used to be: these are
//!   on or off, and their demand holds for a while after they were last seen.
//!
//! # Invariants
//! - A demand falls only when its signal has fallen by the whole release below the threshold.
//!   Noise of `b` degrees moves the forecast between `b` below and `3 b` above the truth, so a
//!   release of four times the noise never oscillates, whatever the noise does.
//! - A signal that is absent demands nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;
use crate::limits::GOVERNOR_SAMPLES_MAX;
use crate::snapshot::body::{Level, Order, VitalSigns};

/// Release of the pressures, as a share of their threshold.
const PRESSURE_RELEASE: f32 = 0.5;

/// The ladder and its limits, as configured. Temperatures are in degrees Celsius.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ladder {
    /// Whether the governor may do anything.
    pub enabled: bool,
    /// The temperature that shall not be reached.
    pub limit_c: f32,
    /// How far it looks back and ahead.
    pub window: Duration,
    /// So far below the limit the forecast demands short answers.
    pub short_below_c: f32,
    /// So far below the limit it demands cheap work.
    pub cheap_below_c: f32,
    /// So far below the limit it demands no model.
    pub no_model_below_c: f32,
    /// So far below its threshold a demand of the temperature falls.
    pub release_c: f32,
    /// How long bits, voltage and a slow model are remembered.
    pub hold: Duration,
    /// Pressure on the processors that demands short answers, in percent.
    pub cpu_pressure_percent: f32,
    /// Share of time in which everything waits for memory that demands cheap work, in percent.
    pub memory_stall_percent: f32,
    /// Memory in use that demands cheap work, in percent.
    pub ram_percent: f32,
    /// Memory in use at which that demand falls.
    pub ram_release_percent: f32,
    /// Most tokens of a short answer.
    pub short_answer_tokens: u32,
}

impl Ladder {
    /// As configured.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let (hardware, governor) = (&config.hardware, &config.governor);
        Self {
            enabled: governor.enabled,
            limit_c: hardware.thermal_limit_c,
            window: governor.window,
            short_below_c: governor.short_below_c,
            cheap_below_c: governor.cheap_below_c,
            no_model_below_c: governor.no_model_below_c,
            release_c: governor.release_c,
            hold: governor.hold,
            cpu_pressure_percent: governor.cpu_pressure_percent,
            memory_stall_percent: governor.memory_stall_percent,
            ram_percent: hardware.ram_limit_percent,
            ram_release_percent: hardware.ram_release_percent,
            short_answer_tokens: governor.short_answer_tokens,
        }
    }
}

/// A change of level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// From.
    pub from: Level,
    /// To.
    pub to: Level,
    /// Why.
    pub reason: String,
}

/// Remembers what it needs to decide.
#[derive(Debug)]
pub struct Governor {
    ladder: Ladder,
    /// Temperatures inside the window, oldest first.
    temperatures: VecDeque<(Instant, f32)>,
    heat: Band,
    cpu: Band,
    memory: Band,
    ram: Band,
    held: [Held; 3],
    order: Order,
}

/// A signal with thresholds: one for each level above `Full`.
#[derive(Debug)]
struct Band {
    enters: [f32; 3],
    release: f32,
    level: Level,
}

/// A signal that is on or off.
#[derive(Debug)]
struct Held {
    level: Level,
    until: Option<Instant>,
}

/// Voltage, bits and decode rate, in the order of `Governor::held`, and what each demands.
const HELD: [(Level, &str); 3] = [
    (Level::Short, "the supply's voltage is too low"),
    (Level::Cheap, "the firmware slows the processor down"),
    (Level::Short, "the model decodes much slower than it used to"),
];

impl Governor {
    /// A governor that allows everything so far.
    #[must_use]
    pub fn new(ladder: Ladder) -> Self {
        let below = [ladder.short_below_c, ladder.cheap_below_c, ladder.no_model_below_c];
        let heat = Band::new(below.map(|below| ladder.limit_c - below), ladder.release_c);
        let never = f32::INFINITY;
        let cpu = Band::new(
            [ladder.cpu_pressure_percent, never, never],
            ladder.cpu_pressure_percent * PRESSURE_RELEASE,
        );
        let memory = Band::new(
            [never, ladder.memory_stall_percent, never],
            ladder.memory_stall_percent * PRESSURE_RELEASE,
        );
        let ram_release = (ladder.ram_percent - ladder.ram_release_percent).max(0.0);
        let ram = Band::new([never, ladder.ram_percent, never], ram_release);
        let held = HELD.map(|(level, _)| Held { level, until: None });
        let temperatures = VecDeque::new();
        Self { ladder, temperatures, heat, cpu, memory, ram, held, order: Order::default() }
    }

    /// What is in force.
    #[must_use]
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Takes a reading; tells a change of level, and only that. `slow` is whether the backend that
    /// would answer decodes much slower than it used to.
    pub fn update(&mut self, now: Instant, vitals: &VitalSigns, slow: bool) -> Option<Step> {
        if !self.ladder.enabled {
            return None;
        }
        let forecast = self.forecast(now, vitals.temperature_c);
        let bits = vitals.throttling.unwrap_or_default();
        let seen = [
            vitals.under_voltage == Some(true),
            bits.throttled || bits.frequency_capped || bits.soft_limit,
            slow,
        ];
        for (held, seen) in self.held.iter_mut().zip(seen) {
            held.update(now, seen, self.ladder.hold);
        }
        let demands = [
            (self.heat.update(forecast), self.words_of_heat(vitals.temperature_c, forecast)),
            (self.cpu.update(vitals.cpu_pressure_percent), "the processors are overloaded".into()),
            (self.memory.update(vitals.memory_stall_percent), "memory is short".into()),
            (self.ram.update(vitals.ram_percent), "memory is nearly full".into()),
        ];
        let held = self.held.iter().zip(HELD);
        let held = held.map(|(held, (_, words))| (held.demand(), words.to_owned()));
        let (level, reason) = demands
            .into_iter()
            .chain(held)
            .reduce(|best, next| if next.0 > best.0 { next } else { best })
            .unwrap_or_default();
        self.set(level, reason)
    }

    fn set(&mut self, to: Level, reason: String) -> Option<Step> {
        let from = self.order.level;
        let why = (to != Level::Full).then(|| Arc::from(reason.as_str()));
        let short = Some(self.ladder.short_answer_tokens).filter(|_| to != Level::Full);
        self.order = Order { level: to, reason: why, answer_tokens_max: short };
        if from == to {
            return None;
        }
        let reason = match to {
            Level::Full => "what demanded less is over".to_owned(),
            _ => reason,
        };
        Some(Step { from, to, reason })
    }

    /// The temperature as far ahead as the readings go back.
    fn forecast(&mut self, now: Instant, temperature_c: Option<f32>) -> Option<f32> {
        let Some(c) = temperature_c else {
            self.temperatures.clear();
            return None;
        };
        let window = self.ladder.window;
        let old = |at: Instant| now.saturating_duration_since(at) > window;
        while self.temperatures.front().is_some_and(|(at, _)| old(*at))
            || self.temperatures.len() >= GOVERNOR_SAMPLES_MAX
        {
            self.temperatures.pop_front();
        }
        self.temperatures.push_back((now, c));
        let before = self.temperatures.front().map_or(c, |(_, c)| *c);
        Some(c + (c - before).max(0.0))
    }

    fn words_of_heat(&self, now_c: Option<f32>, forecast_c: Option<f32>) -> String {
        let (Some(now_c), Some(forecast_c)) = (now_c, forecast_c) else { return String::new() };
        let limit = self.ladder.limit_c;
        if forecast_c > now_c + 0.5 {
            format!(
                "the processor has {now_c:.0} °C and soon {forecast_c:.0} °C at this rate; \
                 {limit:.0} °C is the limit"
            )
        } else {
            format!("the processor has {now_c:.0} °C; {limit:.0} °C is the limit")
        }
    }
}

impl Band {
    fn new(enters: [f32; 3], release: f32) -> Self {
        Self { enters, release, level: Level::Full }
    }

    fn update(&mut self, value: Option<f32>) -> Level {
        let Some(value) = value else {
            self.level = Level::Full;
            return Level::Full;
        };
        let reached = |release: f32| {
            let rungs = Level::ALL[1..].iter().zip(self.enters);
            let reached = rungs.filter(|(_, enter)| value >= enter - release);
            reached.map(|(level, _)| *level).max().unwrap_or_default()
        };
        // Up at the threshold, down only below the release of what is held.
        self.level = reached(0.0).max(self.level.min(reached(self.release)));
        self.level
    }
}

impl Held {
    fn update(&mut self, now: Instant, seen: bool, hold: Duration) {
        if seen {
            self.until = Some(now + hold);
        }
        self.until = self.until.filter(|until| *until > now);
    }

    fn demand(&self) -> Level {
        if self.until.is_some() { self.level } else { Level::Full }
    }
}

#[cfg(test)]
mod tests;
