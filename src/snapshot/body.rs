//! The body as it is now: vital signs, stress and the governor's level.
//!
//! The readings are named once, here, and travel under these names: to `/state`, to the frames
//! and to `vitals.json`.
//!
//! # Invariants
//! - A reading that is not there is absent, which is `null` outside, and never 0.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What was read of the machine at one moment. Percentages are of 100.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VitalSigns {
    /// Model of the board, from the device tree.
    pub board: Option<String>,
    /// Since the machine started, in seconds.
    pub machine_uptime_s: Option<f64>,
    /// Time that all processors together were at work since the last reading.
    pub cpu_percent: Option<f32>,
    /// Load average of one minute.
    pub load_1m: Option<f32>,
    /// Load average of five minutes.
    pub load_5m: Option<f32>,
    /// Load average of fifteen minutes.
    pub load_15m: Option<f32>,
    /// Clock of the first processor.
    pub cpu_mhz: Option<u32>,
    /// Fastest clock of the first processor.
    pub cpu_mhz_max: Option<u32>,
    /// Memory that is not available to a new program.
    pub ram_percent: Option<f32>,
    /// All memory.
    pub ram_total_bytes: Option<u64>,
    /// Memory available to a new program without swapping.
    pub ram_available_bytes: Option<u64>,
    /// Swap in use.
    pub swap_used_bytes: Option<u64>,
    /// Contiguous memory that is free; the NPU's driver loads models through it.
    pub cma_free_bytes: Option<u64>,
    /// Memory of this process that is present.
    pub rss_bytes: Option<u64>,
    /// Size of a memory page: 16,384 on a Pi 5 kernel, 4,096 elsewhere.
    pub page_bytes: Option<u64>,
    /// Share of the last 10 s in which some task waited for a processor (PSI).
    pub cpu_pressure_percent: Option<f32>,
    /// Share of the last 10 s in which some task waited for memory (PSI).
    pub memory_pressure_percent: Option<f32>,
    /// Share of the last 10 s in which all tasks waited for memory (PSI).
    pub memory_stall_percent: Option<f32>,
    /// Share of the last 10 s in which some task waited for a disk (PSI).
    pub io_pressure_percent: Option<f32>,
    /// Temperature of the processor, in degrees Celsius.
    pub temperature_c: Option<f32>,
    /// The supply's voltage is too low now.
    pub under_voltage: Option<bool>,
    /// The firmware's bits.
    pub throttling: Option<Throttling>,
    /// What the supply says it can give at 5 V, in milliamperes; the official one says 5,000.
    pub supply_ma: Option<u32>,
    /// Turns of the fan a minute.
    pub fan_rpm: Option<u32>,
    /// How hard the fan is driven.
    pub fan_percent: Option<f32>,
    /// Bytes written to the card (or the disk) since the machine started.
    pub card_written_bytes: Option<u64>,
    /// The same a day, on average since the machine started; absent in its first hour.
    pub card_written_per_day_bytes: Option<u64>,
    /// Free space where the state is kept.
    pub disk_free_bytes: Option<u64>,
    /// Size of that file system.
    pub disk_total_bytes: Option<u64>,
    /// That file system is mounted read-only: a worn card ends like this.
    pub disk_read_only: Option<bool>,
    /// The wall clock follows a time server.
    pub clock_synchronised: Option<bool>,
    /// A Hailo device can be used now.
    pub npu_present: Option<bool>,
    /// Its node in `/dev`.
    pub npu_node: Option<String>,
    /// Version of its driver.
    pub npu_driver: Option<String>,
    /// Speed of its link, as the kernel prints it; `8.0 GT/s PCIe` is what the hat reaches.
    pub npu_link: Option<String>,
}

/// The firmware's bits (`get_throttled`): what happens now, and what happened since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Throttling {
    /// The voltage is too low.
    pub under_voltage: bool,
    /// The processor's clock is capped.
    pub frequency_capped: bool,
    /// The processor is slowed down.
    pub throttled: bool,
    /// The soft temperature limit is reached.
    pub soft_limit: bool,
    /// The voltage has been too low.
    pub under_voltage_before: bool,
    /// The clock has been capped.
    pub frequency_capped_before: bool,
    /// The processor has been slowed down.
    pub throttled_before: bool,
    /// The soft limit has been reached.
    pub soft_limit_before: bool,
}

/// How much the governor allows, from everything to nothing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Everything.
    #[default]
    Full,
    /// Short answers, and no second look at them (REFINE).
    Short,
    /// Cheap verbs only, and no background work.
    Cheap,
    /// No model: answers come from rules.
    NoModel,
}

impl Level {
    /// All levels, from everything to nothing.
    pub const ALL: [Self; 4] = [Self::Full, Self::Short, Self::Cheap, Self::NoModel];

    /// The word for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Short => "short",
            Self::Cheap => "cheap",
            Self::NoModel => "no_model",
        }
    }

    /// Whether the agent may work for itself at this level.
    #[must_use]
    pub fn allows_background(self) -> bool {
        self < Self::Cheap
    }
}

/// What the governor has decided, for those who obey.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Order {
    /// How much is allowed.
    pub level: Level,
    /// Why, in a sentence; absent at `Full`.
    pub reason: Option<Arc<str>>,
    /// Most tokens an answer may have at this level; absent: no bound of the governor's.
    pub answer_tokens_max: Option<u32>,
}

/// Whoever obeys the governor directly. Others read the snapshot or wait on the watch channel.
pub trait Governed: Send + Sync {
    /// A new order is in force. Must not block.
    fn obey(&self, order: &Order);
}

/// The present or last episode of stress.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stress {
    /// Whether the body is under stress now.
    pub active: bool,
    /// Since when, if it is.
    pub lasts: Option<Duration>,
    /// Highest temperature of the episode, in degrees Celsius.
    pub peak_temperature_c: Option<f32>,
    /// Highest memory use of the episode, in percent.
    pub peak_ram_percent: Option<f32>,
}

/// What has been counted since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Beats.
    pub pulses: u64,
    /// Episodes of stress.
    pub stress: u64,
    /// Times that nobody said anything for the idle time.
    pub idle: u64,
    /// Nights.
    pub sleeps: u64,
}

/// One beat, as it is kept for the charts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When, in milliseconds since 1970, by the machine's clock.
    pub at_ms: i64,
    /// As in [`VitalSigns`].
    pub cpu_percent: Option<f32>,
    /// As in [`VitalSigns`].
    pub ram_percent: Option<f32>,
    /// As in [`VitalSigns`].
    pub temperature_c: Option<f32>,
    /// Measured decode rate of the backend that would answer, in tokens a second.
    pub tokens_per_s: Option<f32>,
    /// Whether the body was under stress.
    pub stressed: bool,
    /// Whether a model could answer.
    pub online: bool,
    /// The governor's level.
    pub level: Level,
}

/// The body as it is now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body {
    /// When this was read, in milliseconds since 1970, by the machine's clock.
    pub at_ms: i64,
    /// What was read.
    pub vitals: VitalSigns,
    /// The same in a sentence.
    pub describe: String,
    /// Stress.
    pub stress: Stress,
    /// The governor's order.
    pub order: Order,
    /// Whether it is the time of sleep.
    pub sleeping: bool,
    /// The last beats, oldest first.
    pub history: Arc<[Sample]>,
    /// Counted since the start.
    pub counters: Counters,
    /// Beats are this far apart.
    pub pulse: Duration,
}
