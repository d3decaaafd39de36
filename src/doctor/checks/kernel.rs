//! The kernel and the C library (pure).

use crate::doctor::{Facts, Finding};

/// Sizes of a memory page that this program was tried with.
const PAGES: [u64; 2] = [4096, 16_384];

/// Oldest C library that has all that the program asks for: `deploy/check-binary` holds the build
/// to at most that of Debian 12.
const LIBC_MIN: (u32, u32) = (2, 34);

/// Adds a word to the kernel's command line, of which a copy is kept.
fn add_to_command_line(word: &str) -> String {
    format!("sudo sed -i.bak '1 s/$/ {word}/' /boot/firmware/cmdline.txt && sudo reboot")
}

pub(super) fn clock(facts: &Facts) -> Vec<Finding> {
    let fix = "sudo timedatectl set-ntp true && timedatectl timesync-status";
    if facts.clock_plausible == Some(false) {
        let why = "without the date nothing is scheduled and certificates count as invalid";
        return vec![Finding::fault("the clock has not been set since the start", why).fix(fix)];
    }
    if facts.vitals.clock_synchronised == Some(false) {
        let why = "a Pi without a battery loses its clock at each power cut";
        return vec![Finding::warning("the clock does not follow a time server", why).fix(fix)];
    }
    Vec::new()
}

pub(super) fn memory_control(facts: &Facts) -> Vec<Finding> {
    if facts.bounds_memory != Some(false) {
        return Vec::new();
    }
    let why = "MemoryHigh= and MemoryMax= of all services are ignored without a word, so one of \
         them can take all memory";
    let what = "the kernel cannot bound a service's memory (no memory cgroup)";
    let fix = match facts.is_pi() {
        true => add_to_command_line("cgroup_enable=memory"),
        false => "add cgroup_enable=memory to the kernel's command line".to_owned(),
    };
    vec![Finding::warning(what, why).fix(fix)]
}

pub(super) fn pressure(facts: &Facts) -> Vec<Finding> {
    if facts.tells_pressure != Some(false) {
        return Vec::new();
    }
    let why = "with it the governor sees that memory gets short before all stands still";
    let what = "the kernel does not tell what waits for memory (no /proc/pressure)";
    let fix = match facts.is_pi() {
        true => add_to_command_line("psi=1"),
        false => "add psi=1 to the kernel's command line".to_owned(),
    };
    vec![Finding::note(what, why).fix(fix)]
}

pub(super) fn pages(facts: &Facts) -> Vec<Finding> {
    let odd = facts.vitals.page_bytes.filter(|bytes| !PAGES.contains(bytes));
    let why = "the program was tried with pages of 4 and of 16 KiB";
    let finding = |bytes| {
        let fix = "choose another kernel, for a Pi 5 the one of Raspberry Pi OS";
        Finding::warning(format!("memory pages have {bytes} bytes"), why).fix(fix)
    };
    odd.map(finding).into_iter().collect()
}

pub(super) fn libc(facts: &Facts) -> Vec<Finding> {
    let old = facts.glibc.filter(|version| *version < LIBC_MIN);
    let why = "the program asks for functions of 2.34; the packages are for Debian 12 and 13";
    let finding = |(major, minor)| {
        let what = format!("the C library is of release {major}.{minor}");
        Finding::fault(what, why).fix("install Raspberry Pi OS of 2023-10 (Debian 12) or newer")
    };
    old.map(finding).into_iter().collect()
}
