//! What the files of `/proc` say (pure). Their formats are those of `proc(5)` and of the kernel's
//! `Documentation/accounting/psi.rst`.
//!
//! Every parser takes any text: what it does not find is absent.

/// Time the processors have spent since the start, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuTicks {
    busy: u64,
    all: u64,
}

impl CpuTicks {
    /// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    /// What follows (guests) is part of the first two.
    pub(super) fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_ascii_whitespace().take(8).map_while(|tick| tick.parse().ok()).collect();
        if ticks.len() < 4 {
            return None;
        }
        let sum = |ticks: &[u64]| ticks.iter().fold(0_u64, |sum, tick| sum.saturating_add(*tick));
        let idle = sum(&ticks[3..ticks.len().min(5)]);
        let all = sum(&ticks);
        Some(Self { busy: all.saturating_sub(idle), all })
    }

    /// The share of time at work since `earlier`, in percent. Absent if no time has passed or the
    /// counters went backwards, as they do when a processor is taken away.
    #[expect(clippy::cast_precision_loss, reason = "ticks of years fit an f64 exactly enough")]
    pub(super) fn percent_since(self, earlier: Self) -> Option<f32> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        let busy = self.busy.checked_sub(earlier.busy)?;
        Some((100.0 * busy as f64 / all as f64).clamp(0.0, 100.0) as f32)
    }
}

/// What `/proc/meminfo` says, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Memory {
    pub(super) total: Option<u64>,
    pub(super) available: Option<u64>,
    pub(super) swap_used: Option<u64>,
    pub(super) cma_free: Option<u64>,
}

impl Memory {
    pub(super) fn parse(meminfo: &str) -> Self {
        let swap_free = kib(meminfo, "SwapFree");
        let swap_used = kib(meminfo, "SwapTotal").and_then(|total| total.checked_sub(swap_free?));
        Self {
            total: kib(meminfo, "MemTotal"),
            available: kib(meminfo, "MemAvailable"),
            swap_used,
            cma_free: kib(meminfo, "CmaFree"),
        }
    }

    /// Memory that is not available, in percent of all.
    #[expect(clippy::cast_precision_loss, reason = "a share, not a count")]
    pub(super) fn used_percent(&self) -> Option<f32> {
        let total = self.total.filter(|total| *total > 0)?;
        let used = total.checked_sub(self.available?)?;
        Some((100.0 * used as f64 / total as f64) as f32)
    }
}

/// The value of a line `Name:   123 kB`, in bytes.
pub(super) fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let value = value.trim().strip_suffix("kB")?.trim_end();
    value.parse::<u64>().ok()?.checked_mul(1024)
}

/// The three averages of `/proc/loadavg`.
pub(super) fn load(loadavg: &str) -> Option<[f32; 3]> {
    let mut words = loadavg.split_ascii_whitespace().map(|word| finite(word, 1e6));
    Some([words.next()??, words.next()??, words.next()??])
}

/// Seconds since the machine started, from `/proc/uptime`.
pub(super) fn uptime(text: &str) -> Option<f64> {
    let seconds: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
}

/// The 10 s average of a line of `/proc/pressure/*`; `who` is `some` or `full`.
pub(super) fn pressure(text: &str, who: &str) -> Option<f32> {
    let line = text.lines().find_map(|line| line.strip_prefix(who)?.strip_prefix(' '))?;
    let average = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    finite(average, 100.0)
}

/// Whether the file system that holds `path` is mounted read-only, from `/proc/mounts`.
pub(super) fn read_only(mounts: &str, path: &str) -> Option<bool> {
    let mut best: Option<(usize, bool)> = None;
    for line in mounts.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(_), Some(at), Some(_), Some(options)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let at = unescaped(at);
        let at = if at == "/" { "" } else { at.as_str() };
        let inside =
            path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        // The last mount at a place hides the earlier ones.
        if inside && best.is_none_or(|(length, _)| at.len() >= length) {
            best = Some((at.len(), options.split(',').any(|option| option == "ro")));
        }
    }
    best.map(|(_, read_only)| read_only)
}

/// A path of `/proc/mounts`, in which white space and backslashes are octal numbers.
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// Bytes written, from `/sys/block/*/stat`: the seventh number, in sectors of 512 bytes whatever
/// the device's own are.
pub(super) fn written(stat: &str) -> Option<u64> {
    stat.split_ascii_whitespace().nth(6)?.parse::<u64>().ok()?.checked_mul(512)
}

/// The size of a page, from the auxiliary vector in `/proc/self/auxv`: pairs of machine words, in
/// which 6 (`AT_PAGESZ`) stands before it.
pub(super) fn page_bytes(auxv: &[u8]) -> Option<u64> {
    const WORD: usize = size_of::<usize>();
    const AT_PAGESZ: usize = 6;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(usize::from_ne_bytes);
    let pair = auxv.chunks_exact(2 * WORD).find(|pair| word(&pair[..WORD]) == Some(AT_PAGESZ))?;
    let size = word(&pair[WORD..])?;
    (size.is_power_of_two() && (1024..=1 << 30).contains(&size)).then_some(size as u64)
}

fn finite(word: &str, most: f32) -> Option<f32> {
    word.parse::<f32>().ok().filter(|value| (0.0..=most).contains(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_share_of_work_is_of_the_time_between_two_readings() {
        let first = CpuTicks::parse("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n").unwrap();
        let then = CpuTicks::parse("cpu  130 0 70 830 70 0 0 0 0 0\n").unwrap();
        assert_eq!(then.percent_since(first), Some(50.0));
        assert_eq!(first.percent_since(first), None, "no time has passed");
        assert_eq!(first.percent_since(then), None, "the counters went backwards");
        for broken in ["", "cpu", "cpu  1 2 3", "cpu0 1 2 3 4", "intr 1", "cpu  a b c d"] {
            assert_eq!(CpuTicks::parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn memory_is_what_is_not_available() {
        let text = "MemTotal:        1000 kB\nMemFree: 1 kB\nMemAvailable:     250 kB\n\
                    SwapTotal:  10 kB\nSwapFree:   4 kB\nCmaFree:  7 kB\n";
        let memory = Memory::parse(text);
        assert_eq!(memory.used_percent(), Some(75.0));
        assert_eq!(memory.swap_used, Some(6 * 1024));
        assert_eq!(memory.cma_free, Some(7 * 1024));
        assert_eq!(Memory::parse("MemTotal: 5 kB").used_percent(), None);
        assert_eq!(Memory::parse("MemTotal: 0 kB\nMemAvailable: 0 kB").used_percent(), None);
    }

    #[test]
    fn pressure_is_absent_where_the_kernel_does_not_tell_it() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\n\
                    full avg10=0.25 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(pressure(text, "some"), Some(12.5));
        assert_eq!(pressure(text, "full"), Some(0.25));
        assert_eq!(pressure("some avg10=nan", "some"), None);
        assert_eq!(pressure("", "some"), None);
    }

    #[test]
    fn the_innermost_and_last_mount_counts() {
        let mounts = "/dev/mmcblk0p2 / ext4 ro,noatime 0 0\ntmpfs /run tmpfs rw 0 0\n\
                      /dev/sda1 /var/lib/cray\\040fish ext4 rw 0 0\n";
        assert_eq!(read_only(mounts, "/var/lib"), Some(true));
        assert_eq!(read_only(mounts, "/runny"), Some(true));
        assert_eq!(read_only(mounts, "/run/crayfish"), Some(false));
        assert_eq!(read_only(mounts, "/var/lib/cray fish/x"), Some(false));
        assert_eq!(read_only("rubbish\n", "/"), None);
        assert_eq!(read_only("a / b rw 0 0\nc / d ro 0 0\n", "/"), Some(true));
    }

    #[test]
    fn counters_of_the_card_are_in_sectors_of_512() {
        let stat = "  9551 5006 1012050 18541 3030 2720 89048 20133 0 15000 38675 0 0 0 0";
        assert_eq!(written(stat), Some(89_048 * 512));
        assert_eq!(written("1 2 3"), None);
    }

    #[test]
    fn load_and_uptime_are_numbers_or_absent() {
        assert_eq!(load("0.52 0.58 0.59 1/389 12345\n"), Some([0.52, 0.58, 0.59]));
        assert_eq!(load("0.52 x 0.59"), None);
        assert_eq!(uptime("350735.47 234388.90\n"), Some(350_735.47));
        assert_eq!(uptime("-1 2"), None);
        assert_eq!(uptime("inf"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_reading_within_its_bounds_or_none(bytes: Vec<u8>, other: String) {
            let text = String::from_utf8_lossy(&bytes);
            if let (Some(a), Some(b)) = (CpuTicks::parse(&text), CpuTicks::parse(&other)) {
                let share = a.percent_since(b);
                prop_assert!(share.is_none_or(|share| (0.0..=100.0).contains(&share)));
            }
            let used = Memory::parse(&text).used_percent();
            prop_assert!(used.is_none_or(|used| (0.0..=100.0).contains(&used)));
            let pressure = pressure(&text, "some");
            prop_assert!(pressure.is_none_or(|share| (0.0..=100.0).contains(&share)));
            prop_assert!(page_bytes(&bytes).is_none_or(u64::is_power_of_two));
            let _ = (load(&text), uptime(&text), read_only(&text, &other), written(&text));
        }

        #[test]
        fn what_looks_like_the_files_is_read_without_overflow(
            ticks in proptest::collection::vec(any::<u64>(), 0..12),
            kib in any::<u64>(),
        ) {
            let words: Vec<String> = ticks.iter().map(u64::to_string).collect();
            let stat = format!("cpu  {}\n", words.join(" "));
            prop_assert_eq!(CpuTicks::parse(&stat).is_some(), ticks.len() >= 4);
            let _ = written(&words.join(" "));
            let meminfo = format!("MemTotal: {kib} kB\nMemAvailable: {kib} kB\n");
            let _ = Memory::parse(&meminfo).used_percent();
        }
    }
}
