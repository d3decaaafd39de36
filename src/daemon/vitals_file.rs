//! `state/vitals.json` in the runtime directory: the state for other processes, with the names of
//! OpenCrayFish, replaced whole after each beat.
//!
//! Where the runtime directory is not in memory but on a disk (a start with `--state`), it is
//! written once an hour only: 2,880 small writes a day would wear a card for a file that nobody
//! may read.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::config::Config;
use crate::event::feed::short_numbers;
use crate::snapshot::Snapshot;
use crate::store::file;

/// Time between two writes to a disk.
const ON_DISK_EVERY: Duration = Duration::from_secs(3600);

/// Kinds of file systems that are in memory: `TMPFS_MAGIC` and `RAMFS_MAGIC` of `statfs(2)`.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// The file.
#[derive(Debug)]
pub(super) struct VitalsFile {
    path: PathBuf,
    in_memory: bool,
    zone: TimeZone,
    duty: String,
    idle_s: u64,
    started: Timestamp,
    written: Mutex<Option<Instant>>,
}

impl VitalsFile {
    /// The file below the runtime directory, which is there.
    pub(super) fn new(runtime: &Path, config: &Config, started: Timestamp) -> Self {
        let system = &config.system;
        let hours = |time: jiff::civil::Time| time.strftime("%H:%M").to_string();
        Self {
            path: runtime.join("state").join("vitals.json"),
            in_memory: is_in_memory(runtime),
            zone: system.timezone.zone.clone(),
            duty: format!("{}-{}", hours(system.duty_start), hours(system.sleep_start)),
            idle_s: system.idle.as_secs(),
            started,
            written: Mutex::default(),
        }
    }

    /// Replaces the file, if it is time. A failure is told once in the log and tried again.
    pub(super) fn write(&self, now: &Snapshot) {
        let mut written = self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !self.in_memory && written.is_some_and(|at| at.elapsed() < ON_DISK_EVERY) {
            return;
        }
        let text = short_numbers(self.document(now)).to_string();
        let replaced = self
            .path
            .parent()
            .map_or(Ok(()), file::create_state_dir)
            .and_then(|()| file::replace_unsynced(&self.path, text.as_bytes()));
        if let Err(error) = replaced
            && written.is_none()
        {
            tracing::warn!(path = %self.path.display(), %error, "vitals.json cannot be written");
        }
        *written = Some(Instant::now());
    }

    fn document(&self, now: &Snapshot) -> Value {
        let body = &now.body;
        let time = |at_ms: i64| {
            let at = Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::UNIX_EPOCH);
            at.to_zoned_datetime(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        };
        let history = body.history.iter().map(|sample| {
            json!({
                "ts": time(sample.at_ms),
                "cpu": sample.cpu_percent,
                "ram": sample.ram_percent,
                "temp": sample.temperature_c,
                "stressed": sample.stressed,
                "brain_online": sample.online,
            })
        });
        let history: Vec<Value> = history.collect();
        let mood = now.mood.as_ref();
        json!({
            "designation": now.designation,
            "now": time(body.at_ms),
            "started_at": time(self.started.as_millisecond()),
            "is_sleeping": body.sleeping,
            "duty_window": self.duty,
            "timezone": self.zone.iana_name(),
            "vitals": history.last(),
            "vitals_describe": body.describe,
            "brain": {
                "online": now.online,
                "backend": now.active_backend,
                "last_error": now.last_error,
                "recovery_seconds": now.backends.first().and_then(|first| first.retry_in_s),
            },
            "mood": mood.map(|mood| json!({
                "joy": mood.joy,
                "anger": mood.anger,
                "sorrow": mood.sorrow,
                "excitement": mood.excitement,
                "calm": mood.calm,
            })),
            "mood_dominant": mood.map(|mood| &mood.dominant),
            "mood_active_channel": mood.map(|mood| &mood.active_channel),
            "mood_active_intensity": mood.map(|mood| mood.active_intensity),
            "stress_active": body.stress.active,
            "idle_seconds": now.quiet.as_secs(),
            "idle_threshold_seconds": self.idle_s,
            "pulse_count": body.counters.pulses,
            "stress_count": body.counters.stress,
            "level": body.order.level,
            "level_reason": body.order.reason.as_deref(),
            "readings": body.vitals,
            "history": history,
        })
    }
}

fn is_in_memory(directory: &Path) -> bool {
    rustix::fs::statfs(directory)
        .is_ok_and(|fs| IN_MEMORY.iter().any(|magic| i128::from(fs.f_type) == i128::from(*magic)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::body::{Body, Sample};

    #[test]
    fn the_document_has_the_names_of_the_seed_and_null_for_what_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::default();
        let file = VitalsFile::new(dir.path(), &config, Timestamp::UNIX_EPOCH);
        let sample =
            Sample { at_ms: 1_796_047_500_000, ram_percent: Some(40.0), ..Sample::default() };
        let body = Body { history: [sample].into(), ..Body::default() };
        let now = Snapshot { designation: "Pinch".into(), body, ..Snapshot::default() };
        file.write(&now);
        let path = dir.path().join("state/vitals.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        for name in [
            "designation",
            "now",
            "started_at",
            "is_sleeping",
            "duty_window",
            "timezone",
            "vitals",
            "vitals_describe",
            "brain",
            "mood",
            "mood_dominant",
            "mood_active_channel",
            "mood_active_intensity",
            "stress_active",
            "idle_seconds",
            "idle_threshold_seconds",
            "pulse_count",
            "stress_count",
            "history",
        ] {
            assert!(read.get(name).is_some(), "{name} in {read}");
        }
        assert_eq!(read["vitals"]["temp"], Value::Null);
        assert_eq!(read["vitals"]["ram"], 40.0);
        assert_eq!(read["duty_window"], "06:00-02:00");
        let around = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(around, 1, "nothing else is left behind");
    }
}
