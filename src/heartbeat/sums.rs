//! An hour of beats in figures (pure): the daily log without a file a day, and without a write a
//! beat.

use std::time::Duration;

use tokio::time::Instant;

use crate::event::BeatSummary;
use crate::snapshot::body::Sample;

/// How much one summary covers.
const COVERS: Duration = Duration::from_secs(3600);

/// The beats since the last summary.
#[derive(Debug, Default)]
pub(super) struct Sums {
    since: Option<Instant>,
    summary: BeatSummary,
    temperature: Mean,
    cpu: Mean,
}

#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Sums {
    /// Takes a beat.
    pub(super) fn add(&mut self, now: Instant, sample: &Sample, card_written_bytes: Option<u64>) {
        self.since.get_or_insert(now);
        let summary = &mut self.summary;
        summary.beats += 1;
        summary.stressed += u32::from(sample.stressed);
        if let Some(c) = sample.temperature_c {
            self.temperature.add(c);
            summary.temperature_min_c =
                Some(summary.temperature_min_c.map_or(c, |least| least.min(c)));
            summary.temperature_max_c =
                Some(summary.temperature_max_c.map_or(c, |most| most.max(c)));
        }
        if let Some(cpu) = sample.cpu_percent {
            self.cpu.add(cpu);
        }
        if let Some(ram) = sample.ram_percent {
            summary.ram_max_percent =
                Some(summary.ram_max_percent.map_or(ram, |most| most.max(ram)));
        }
        summary.card_written_bytes = card_written_bytes.or(summary.card_written_bytes);
    }

    /// Whether the hour is over.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= COVERS)
    }

    /// The summary, if there was a beat; the next one begins.
    pub(super) fn take(&mut self) -> Option<BeatSummary> {
        self.since.take()?;
        let mut summary = std::mem::take(&mut self.summary);
        summary.temperature_mean_c = std::mem::take(&mut self.temperature).value();
        summary.cpu_mean_percent = std::mem::take(&mut self.cpu).value();
        Some(summary)
    }
}

impl Mean {
    fn add(&mut self, value: f32) {
        self.sum += f64::from(value);
        self.count += 1;
    }

    fn value(&self) -> Option<f32> {
        (self.count > 0).then(|| (self.sum / f64::from(self.count)) as f32)
    }
}
