//! What is gathered before anything is judged.

use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::servers::Server;
use crate::config::problem::Problem;
use crate::event::feed::Told;
use crate::limits::DOCTOR_LIBRARY_BYTES_MAX;
use crate::session::wire::Status;
use crate::snapshot::body::VitalSigns;
use crate::vitals::tree::Tree;
use crate::vitals::{Reader, VitalsSource};

/// What `SQLite` writes at the start of each of its files.
const SQLITE_HEAD: &[u8] = b"SQLite format 3\0";

/// In front of the version in the C library's own words.
const GLIBC_WORDS: &[u8] = b"stable release version ";

/// Where Debian keeps the C library, by processor.
const GLIBC_PLACES: [&str; 2] =
    ["lib/aarch64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libc.so.6"];

/// State of a listening socket in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// Everything the checks look at. What is absent could not be read.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The configuration's file, if there is one.
    pub config_path: Option<PathBuf>,
    /// Why it cannot be read at all.
    pub config_unreadable: Option<String>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// The machine.
    pub vitals: VitalSigns,
    /// Whether the machine's clock shows a time that can be right.
    pub clock_plausible: Option<bool>,
    /// Files and partitions to which memory is swapped.
    pub swaps: Option<Vec<Swap>>,
    /// Device of the root file system, from `/proc/mounts`.
    pub root_device: Option<String>,
    /// The kernel tells what waits for what (PSI).
    pub tells_pressure: Option<bool>,
    /// The kernel can bound a service's memory.
    pub bounds_memory: Option<bool>,
    /// Version of the C library.
    pub glibc: Option<(u32, u32)>,
    /// Lifetime used of an eMMC, in tenths, as JEDEC counts it: 11 is beyond the end. SD cards have
    /// no such register.
    pub emmc_tenths_used: Option<u32>,
    /// Where somebody listens for TCP connections.
    pub listening: Vec<SocketAddr>,
    /// Where the page is served.
    pub web_address: Option<SocketAddr>,
    /// The state directory.
    pub state: State,
    /// The model servers of the configuration.
    pub servers: Vec<Server>,
    /// Whether a file of the reserve's model is here.
    pub has_reserve_model: bool,
    /// The daemon.
    pub daemon: Daemon,
}

/// A place memory is swapped to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// Device or file.
    pub place: String,
    /// It is a file and no partition.
    pub is_file: bool,
}

/// The state directory, seen from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Where.
    pub path: PathBuf,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Whether another user owns it.
    pub is_foreign: bool,
    /// False if the database's file is none.
    pub database_sound: Option<bool>,
    /// Databases that were damaged and set aside.
    pub set_aside: Vec<String>,
}

/// The daemon, as it answered.
#[derive(Debug, Clone, Default)]
pub enum Daemon {
    /// Nobody listens, in its words.
    #[default]
    NotRunning,
    /// It runs and did not answer us, and why.
    Silent(String),
    /// What it told: its state, and the faults of the last day.
    Answers(Box<Status>, Vec<Told>),
}

impl Facts {
    /// Reads the machine below `root`, and the state directory.
    #[must_use]
    pub fn of_machine(root: &Path, state: &Path) -> Self {
        let tree = Tree::new(root);
        let mounts = tree.text("proc/mounts");
        let controllers = tree.text("sys/fs/cgroup/cgroup.controllers");
        let is_kernel = tree.has("proc/meminfo");
        Self {
            vitals: Reader::new(root, state).sample(),
            swaps: tree.text("proc/swaps").map(|text| swaps(&text)),
            root_device: mounts.as_deref().and_then(root_device),
            tells_pressure: is_kernel.then(|| tree.has("proc/pressure/memory")),
            bounds_memory: controllers
                .map(|text| text.split_ascii_whitespace().any(|word| word == "memory")),
            glibc: GLIBC_PLACES.iter().find_map(|place| glibc(&root.join(place))),
            emmc_tenths_used: emmc(&tree),
            listening: ["proc/net/tcp", "proc/net/tcp6"]
                .iter()
                .filter_map(|file| tree.text(file))
                .flat_map(|text| listening(&text))
                .collect(),
            state: look_at(state),
            ..Self::default()
        }
    }

    /// Whether the board is a Raspberry Pi, whose boot files are where its commands say.
    #[must_use]
    pub fn is_pi(&self) -> bool {
        self.vitals.board.as_deref().is_some_and(|board| board.contains("Raspberry Pi"))
    }
}

fn swaps(text: &str) -> Vec<Swap> {
    let rows = text.lines().skip(1).filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        Some(Swap { place: words.next()?.to_owned(), is_file: words.next()? == "file" })
    });
    rows.collect()
}

fn root_device(mounts: &str) -> Option<String> {
    let mut at_root = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let device = words.next()?;
        (words.next()? == "/").then(|| device.to_owned())
    });
    // What was mounted last lies on top.
    at_root.next_back()
}

/// The version in the library's own words, which stand somewhere in it.
fn glibc(path: &Path) -> Option<(u32, u32)> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(DOCTOR_LIBRARY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let at = bytes.windows(GLIBC_WORDS.len()).position(|window| window == GLIBC_WORDS)?;
    let rest = bytes.get(at + GLIBC_WORDS.len()..)?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
    let mut parts = std::str::from_utf8(rest.get(..end)?).ok()?.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// The worse of the two kinds of memory in an eMMC.
fn emmc(tree: &Tree) -> Option<u32> {
    let text = tree.line("sys/block/mmcblk0/device/life_time")?;
    let tenths = text
        .split_ascii_whitespace()
        .filter_map(|word| u32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    tenths.max()
}

/// Sockets that listen, from `/proc/net/tcp` or `tcp6`.
fn listening(text: &str) -> Vec<SocketAddr> {
    let rows = text.lines().skip(1).filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        let (address, port) = local.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (state == LISTENS).then_some(SocketAddr::new(address_of(address)?, port))
    });
    rows.collect()
}

/// The kernel prints each 32 bits as a number of this machine, which is little-endian on all that
/// this program is built for.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok().map(u32::to_le_bytes);
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
        chunk.copy_from_slice(&word(index * 8)?);
    }
    let address = Ipv6Addr::from(bytes);
    Some(address.to_ipv4_mapped().map_or(address.into(), IpAddr::from))
}

fn look_at(path: &Path) -> State {
    let metadata = fs::metadata(path).ok();
    let names = fs::read_dir(path).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut set_aside: Vec<String> = names.filter(|name| name.contains(".damaged-")).collect();
    set_aside.sort();
    let ours = rustix::process::geteuid().as_raw();
    State {
        path: path.to_owned(),
        mode: metadata.as_ref().map(|metadata| metadata.mode() & 0o7777),
        is_foreign: metadata.is_some_and(|metadata| metadata.uid() != ours),
        database_sound: database_sound(&path.join("crayfish.db")),
        set_aside,
    }
}

/// An empty file is a database without tables, which is sound.
fn database_sound(path: &Path) -> Option<bool> {
    let mut head = Vec::new();
    let file = File::open(path).ok()?;
    file.take(SQLITE_HEAD.len() as u64).read_to_end(&mut head).ok()?;
    Some(head.is_empty() || head == SQLITE_HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_listen_are_read_in_both_families() {
        let tcp = "  sl  local_address rem_address   st tx_queue\n\
            0: 0100007F:223D 00000000:0000 0A 00000000:00000000\n\
            1: 00000000:1F40 00000000:0000 0A 00000000:00000000\n\
            2: 0100007F:223D 0100007F:C001 01 00000000:00000000\n\
            3: nonsense\n";
        let expected = ["127.0.0.1:8765", "0.0.0.0:8000"].map(|text| text.parse().unwrap());
        assert_eq!(listening(tcp), expected);
        let tcp6 = "  sl\n\
            0: 00000000000000000000000001000000:2CAA 0:0 0A 0\n\
            1: 0000000000000000FFFF00000100007F:2CAB 0:0 0A 0\n";
        let expected = ["[::1]:11434", "127.0.0.1:11435"].map(|text| text.parse().unwrap());
        assert_eq!(listening(tcp6), expected);
    }

    #[test]
    fn a_machine_that_tells_nothing_is_read_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let facts = Facts::of_machine(dir.path(), &dir.path().join("none"));
        assert_eq!((facts.swaps, facts.tells_pressure, facts.bounds_memory), (None, None, None));
        assert_eq!((facts.glibc, facts.emmc_tenths_used, facts.state.mode), (None, None, None));
        assert!(facts.listening.is_empty() && facts.root_device.is_none());
    }

    #[test]
    fn figures_are_found_in_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/meminfo", "MemTotal: 1 kB\n");
        put("proc/swaps", "Filename Type Size\n/var/swap file 524272\n/dev/zram0 partition 1\n");
        put("proc/mounts", "rootfs / x\n/dev/mmcblk0p2 / ext4 rw 0 0\n/dev/sda /mnt ext4\n");
        put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids\n");
        put("sys/block/mmcblk0/device/life_time", "0x01 0x0a\n");
        put(GLIBC_PLACES[0], "\u{1}(Debian GLIBC 2.36-9) stable release version 2.36.\n");
        put("state/crayfish.db", "no database at all");
        put("state/crayfish.db.damaged-1", "");
        let facts = Facts::of_machine(dir.path(), &dir.path().join("state"));
        assert_eq!(facts.swaps.as_ref().unwrap().len(), 2);
        assert!(facts.swaps.unwrap()[0].is_file);
        assert_eq!(facts.root_device.as_deref(), Some("/dev/mmcblk0p2"));
        assert_eq!((facts.tells_pressure, facts.bounds_memory), (Some(false), Some(false)));
        assert_eq!((facts.glibc, facts.emmc_tenths_used), (Some((2, 36)), Some(10)));
        assert_eq!(facts.state.database_sound, Some(false));
        assert_eq!(facts.state.set_aside, ["crayfish.db.damaged-1"]);
    }
}
