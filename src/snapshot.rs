//! What is true now, as one immutable value: one publisher, many readers that never block.

pub mod body;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use self::body::Body;

/// The state of one backend.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BackendState {
    /// `hailo`, `ollama`, `openai`.
    pub name: String,
    /// `primary`, `fallback` or `reserve`.
    pub slot: &'static str,
    /// The configured model.
    pub model: String,
    /// `closed`, `open`, `half-open`.
    pub breaker: &'static str,
    /// Until the next probe, while it is open.
    pub retry_in_s: Option<f32>,
    /// The last fault, in a sentence.
    pub last_error: Option<String>,
    /// What a person should do about a server that hangs, in a sentence.
    pub hung: Option<String>,
    /// Measured decode rate, tokens a second.
    pub tokens_per_s: Option<f32>,
    /// The rate it has when it is well, as far as it was learned.
    pub healthy_tokens_per_s: Option<f32>,
    /// Whether it decodes much slower than it used to: hot, or the link has dropped.
    pub degraded: bool,
    /// From sending to the response head in the newest answer, in milliseconds.
    pub head_ms: Option<f32>,
    /// From sending to the first token in the newest answer, in milliseconds.
    pub first_token_ms: Option<f32>,
    /// Median of the newest gaps between tokens, in milliseconds.
    pub gap_p50_ms: Option<f32>,
    /// 99th percentile of the newest gaps between tokens, in milliseconds.
    pub gap_p99_ms: Option<f32>,
    /// Whether its slot is held, or its server is still busy with a dropped request.
    pub busy: bool,
    /// How many wait for the slot.
    pub waiting: usize,
    /// Tokens of the prompts it has answered since the start, as estimated.
    pub prompt_tokens: u64,
    /// Of these, tokens that its server had in its cache, as estimated from what was sent.
    pub cached_tokens: u64,
}

/// The room, as its sensors say; what was not read is absent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Room {
    /// Temperature of the air, in degrees Celsius.
    pub temperature_c: Option<f32>,
    /// Relative humidity, in percent.
    pub humidity_percent: Option<f32>,
    /// Pressure of the air, in hectopascal.
    pub pressure_hpa: Option<f32>,
    /// Resistance of the gas sensor, in ohm; it falls when the air is bad.
    pub gas_ohm: Option<u32>,
    /// Light, in lux.
    pub lux: Option<f32>,
}

/// The mood, where there is one. Each channel is 0 to 1.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mood {
    /// Joy.
    pub joy: f32,
    /// Anger.
    pub anger: f32,
    /// Sorrow.
    pub sorrow: f32,
    /// Excitement.
    pub excitement: f32,
    /// Calm.
    pub calm: f32,
    /// The strongest channel.
    pub dominant: String,
    /// The channel that stands out from its baseline; `none` if none does.
    pub active_channel: String,
    /// How far it stands out.
    pub active_intensity: f32,
}

/// All that the doors tell about the daemon.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// The agent's name.
    pub designation: String,
    /// The process's id.
    pub pid: u32,
    /// Since the daemon is up, in seconds.
    pub uptime_s: u64,
    /// Whether a model can answer now.
    pub online: bool,
    /// Which backend would answer now; `offline` if none.
    pub active_backend: String,
    /// The last fault of the backend that should have answered.
    pub last_error: Option<String>,
    /// Backends in their order.
    pub backends: Vec<BackendState>,
    /// Turns running and waiting.
    pub turns: usize,
    /// Since somebody last said something, or since the start.
    pub quiet: Duration,
    /// The body.
    pub body: Body,
    /// The mood; absent as long as nobody publishes one.
    pub mood: Option<Mood>,
    /// The room; absent without sensors.
    pub room: Option<Room>,
    /// False while the database cannot be written.
    pub store_ok: bool,
    /// Sentences about what is degraded; empty when all is well.
    pub notices: Vec<String>,
}

/// Writes the snapshot. Not `Clone`: there is one.
#[derive(Debug)]
pub struct Publisher {
    newest: Arc<ArcSwap<Snapshot>>,
    count: watch::Sender<u64>,
}

/// Reads the newest snapshot.
#[derive(Debug, Clone)]
pub struct Reader {
    newest: Arc<ArcSwap<Snapshot>>,
    count: watch::Receiver<u64>,
}

/// A publisher and the first of its readers.
#[must_use]
pub fn channel(first: Snapshot) -> (Publisher, Reader) {
    let newest = Arc::new(ArcSwap::from_pointee(first));
    let (sender, count) = watch::channel(0);
    (Publisher { newest: Arc::clone(&newest), count: sender }, Reader { newest, count })
}

impl Publisher {
    /// Puts a new snapshot in the place of the old one.
    pub fn publish(&self, snapshot: Snapshot) {
        self.newest.store(Arc::new(snapshot));
        self.count.send_modify(|count| *count += 1);
    }
}

impl Reader {
    /// The newest snapshot. Keep the `Arc`, never a guard, across an await.
    #[must_use]
    pub fn load(&self) -> Arc<Snapshot> {
        self.newest.load_full()
    }

    /// The newest snapshot, which counts as seen: `changed` waits for a newer one.
    #[must_use]
    pub fn see(&mut self) -> Arc<Snapshot> {
        // First, so that one published in between is not missed.
        self.count.borrow_and_update();
        self.newest.load_full()
    }

    /// Waits for a snapshot newer than the one this reader saw last; pends for ever once nobody
    /// publishes any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed(&mut self) {
        if self.count.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
