//! The vital signs: what the machine says about itself, read without root.
//!
//! [`Reader`] reads the files of the kernel below a root, the machine's own or a recorded tree;
//! `stress` and `governor` decide what follows from the readings.
//!
//! # Invariants
//! - Every reading may be absent, and absent is never 0: a laptop has no rails, a container no
//!   sensors.
//! - A reading costs some 40 small files and no process; nothing is asked of the firmware beyond
//!   what its drivers publish.
//! - A sensor is known by its name, never by its number.
//!
//! # Absences
//! - No temperature of the NPU: only the vendor's library can ask the chip for it. What its decode
//!   rate says of it is in the state of its backend.
//! - No call of `vcgencmd`: it needs rights that differ from one release of the system to the next.

pub mod governor;
#[cfg(any(test, all(feature = "gpio", target_arch = "aarch64")))]
pub mod gpio;
mod npu;
mod procfs;
mod sensors;
pub mod stress;
pub mod tree;
pub mod words;

use std::path::{Path, PathBuf};

use self::procfs::{CpuTicks, Memory};
use self::sensors::Sensors;
use self::tree::Tree;
use crate::snapshot::body::VitalSigns;

/// Block devices that may be the card or the disk of the system, likeliest first.
const CARDS: [&str; 4] = ["mmcblk0", "nvme0n1", "sda", "vda"];

/// Seconds after the machine's start from which bytes a day are worth telling.
const WRITTEN_AFTER_S: f64 = 3600.0;

/// Directory of the time service of systemd; the file in it exists once the clock was set.
const TIMESYNC: &str = "run/systemd/timesync";

/// Where vital signs come from: the machine, a recorded tree or a simulated one.
pub trait VitalsSource: Send {
    /// Reads them now.
    fn sample(&mut self) -> VitalSigns;
}

/// Reads a tree.
#[derive(Debug)]
pub struct Reader {
    tree: Tree,
    /// Where the daemon keeps its state.
    state_dir: PathBuf,
    /// The last reading of the processors' time.
    ticks: Option<CpuTicks>,
}

impl Reader {
    /// A reader of the tree below `root`, `/` on the machine itself. `state_dir` tells which file
    /// system's space counts; a recorded tree has its figures in a file `statvfs`.
    #[must_use]
    pub fn new(root: &Path, state_dir: &Path) -> Self {
        Self { tree: Tree::new(root), state_dir: state_dir.to_owned(), ticks: None }
    }

    fn cpu_percent(&mut self) -> Option<f32> {
        let now = CpuTicks::parse(&self.tree.text("proc/stat")?)?;
        let earlier = self.ticks.replace(now)?;
        now.percent_since(earlier)
    }

    fn pressure(&self, what: &str, who: &str) -> Option<f32> {
        procfs::pressure(&self.tree.text(&format!("proc/pressure/{what}"))?, who)
    }

    /// Bytes written since the start, and a day.
    fn written(&self, uptime_s: Option<f64>) -> (Option<u64>, Option<u64>) {
        let stat = CARDS.iter().find_map(|card| self.tree.text(&format!("sys/block/{card}/stat")));
        let written = stat.as_deref().and_then(procfs::written);
        let days = uptime_s.filter(|up| *up >= WRITTEN_AFTER_S).map(|up| up / 86_400.0);
        let per_day = written.zip(days).map(|(bytes, days)| per_day(bytes, days));
        (written, per_day)
    }

    /// Free and all bytes where the state is kept.
    fn space(&self) -> (Option<u64>, Option<u64>) {
        if !self.tree.is_machine() {
            let figures = self.tree.line("statvfs").unwrap_or_default();
            let mut figures = figures.split_ascii_whitespace().map(|figure| figure.parse().ok());
            return (figures.next().flatten(), figures.next().flatten());
        }
        match rustix::fs::statvfs(&self.state_dir) {
            Ok(fs) => (fs.f_bavail.checked_mul(fs.f_frsize), fs.f_blocks.checked_mul(fs.f_frsize)),
            Err(_) => (None, None),
        }
    }

    fn read_only(&self) -> Option<bool> {
        procfs::read_only(&self.tree.text("proc/mounts")?, self.state_dir.to_str()?)
    }

    /// Unknown where nobody runs systemd's own service: another one leaves no trace that can be
    /// read without rights.
    fn clock_synchronised(&self) -> Option<bool> {
        self.tree.has(TIMESYNC).then(|| self.tree.has(&format!("{TIMESYNC}/synchronized")))
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average, not a count")]
#[expect(clippy::cast_sign_loss, reason = "neither figure is negative")]
#[expect(clippy::cast_possible_truncation, reason = "a float beyond the range becomes its end")]
fn per_day(bytes: u64, days: f64) -> u64 {
    (bytes as f64 / days) as u64
}

impl VitalsSource for Reader {
    fn sample(&mut self) -> VitalSigns {
        let cpu_percent = self.cpu_percent();
        let tree = &self.tree;
        let uptime = tree.text("proc/uptime").as_deref().and_then(procfs::uptime);
        let load = tree.text("proc/loadavg").as_deref().and_then(procfs::load);
        let memory = tree.text("proc/meminfo").map(|text| Memory::parse(&text)).unwrap_or_default();
        let sensors = Sensors::find(tree);
        let throttling = sensors::throttling(tree);
        let (fan_rpm, fan_percent) = sensors.fan();
        let (cpu_mhz, cpu_mhz_max) = sensors::clock_mhz(tree);
        let (card_written_bytes, card_written_per_day_bytes) = self.written(uptime);
        let (disk_free_bytes, disk_total_bytes) = self.space();
        let npu = npu::read(tree);
        VitalSigns {
            board: tree.line("proc/device-tree/model"),
            machine_uptime_s: uptime,
            cpu_percent,
            load_1m: load.map(|load| load[0]),
            load_5m: load.map(|load| load[1]),
            load_15m: load.map(|load| load[2]),
            cpu_mhz,
            cpu_mhz_max,
            ram_percent: memory.used_percent(),
            ram_total_bytes: memory.total,
            ram_available_bytes: memory.available,
            swap_used_bytes: memory.swap_used,
            cma_free_bytes: memory.cma_free,
            rss_bytes: tree.text("proc/self/status").and_then(|text| procfs::kib(&text, "VmRSS")),
            page_bytes: tree.bytes("proc/self/auxv").and_then(|auxv| procfs::page_bytes(&auxv)),
            cpu_pressure_percent: self.pressure("cpu", "some"),
            memory_pressure_percent: self.pressure("memory", "some"),
            memory_stall_percent: self.pressure("memory", "full"),
            io_pressure_percent: self.pressure("io", "some"),
            temperature_c: sensors.temperature_c(),
            under_voltage: sensors
                .under_voltage()
                .or_else(|| throttling.map(|bits| bits.under_voltage)),
            throttling,
            supply_ma: sensors::supply_ma(tree),
            fan_rpm,
            fan_percent,
            card_written_bytes,
            card_written_per_day_bytes,
            disk_free_bytes,
            disk_total_bytes,
            disk_read_only: self.read_only(),
            clock_synchronised: self.clock_synchronised(),
            npu_present: npu.present,
            npu_node: npu.node,
            npu_driver: npu.driver,
            npu_link: npu.link,
        }
    }
}

#[cfg(test)]
mod tests;
