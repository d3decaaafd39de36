//! Days in which nobody comes, on the machine's own disk: what is written and what grows. A month
//! of them with `CRAYFISH_FULL=1`.
//!
//! The clock is a paused one; the database, its thread and the files are real, so the kernel's own
//! figures of this process count.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::mild::Mild;
use crate::clock::WallClock;
use crate::daemon::rehearsal::{self, World};
use crate::limits::HISTORY_SAMPLES;
use crate::net::{Http, HttpError, HttpRequest, HttpResponse};
use crate::store::medium::Thread;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Days at the start that are not counted: what is done once is over after them.
const FIRST_DAYS: u32 = 2;

/// What may be written in a day at rest, in bytes: a card lasts for decades of that.
const DAY_WRITTEN_MAX: u64 = 2_000_000;

/// What memory may grow in all the days after, in bytes: the allocator's own coming and going.
const GROWTH_MAX: u64 = 1_000_000;

/// 2026-11-30 14:05 UTC, and on with the runtime's time.
struct Going(Instant);

impl WallClock for Going {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.0.elapsed().as_millis()).unwrap();
        Timestamp::from_millisecond(1_796_047_500_000 + passed).unwrap()
    }
}

/// Nobody listens anywhere.
struct Nobody;

impl Http for Nobody {
    fn send(&self, _: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        async { Err(HttpError::Refused("nobody listens".to_owned())) }.boxed()
    }
}

/// A figure of the kernel's about this process.
fn figure(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn days_at_rest_write_little_and_nothing_grows() {
    let days: u32 = if std::env::var_os("CRAYFISH_FULL").is_some() { 30 } else { 6 };
    // Beside the program, not in memory: only a disk's writes are counted.
    let program = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    std::fs::write(dir.path().join("config.yaml"), "web_chat: {enabled: false}\n").unwrap();
    let world = World {
        clock: Arc::new(Going(Instant::now())),
        http: Arc::new(Nobody),
        medium: Arc::new(Thread),
        vitals: Box::new(Mild),
        machine: dir.path().to_owned(),
    };
    let running = rehearsal::start(dir.path(), world).await.unwrap();
    let reader = running.reader.clone();
    let (_signals, receiver) = mpsc::channel(1);
    let life = async {
        tokio::time::sleep(FIRST_DAYS * DAY).await;
        let (written, resident) = (figure("io", "write_bytes:"), figure("status", "VmRSS:"));
        let counted = days - FIRST_DAYS;
        tokio::time::sleep(counted * DAY).await;
        let a_day = (figure("io", "write_bytes:") - written) / u64::from(counted);
        assert!(a_day > 0, "the disk's writes are counted");
        assert!(a_day <= DAY_WRITTEN_MAX, "{a_day} bytes a day");
        let grown = figure("status", "VmRSS:").saturating_sub(resident) * 1024;
        println!("{a_day} bytes written a day, {grown} bytes grown in {counted} days");
        assert!(grown <= GROWTH_MAX, "{grown} bytes grown");
    };
    tokio::select! {
        exit = running.run(receiver) => panic!("it ended: {exit:?}"),
        () = life => {}
    }
    let body = reader.load().body.clone();
    assert!(body.counters.pulses >= u64::from(days) * 2880, "{:?}", body.counters);
    assert_eq!(body.counters.sleeps, u64::from(days), "each night once");
    assert_eq!(body.history.len(), HISTORY_SAMPLES);
}
