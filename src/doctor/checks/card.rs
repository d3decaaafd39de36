//! The card (pure).

use crate::doctor::{Facts, Finding};

/// Free space from which a Pi is in trouble: an update of its system needs as much.
const FREE_BYTES_LOW: u64 = 1_000_000_000;

/// Free space with which nothing can be relied on any more.
const FREE_BYTES_NONE: u64 = 100_000_000;

/// Writing that ends a card early: a good card of 32 GB bears some 30 TB, which are 4 years of
/// this.
const WRITTEN_A_DAY_BYTES: u64 = 20_000_000_000;

/// Tenths of its life after which an eMMC should be replaced.
const EMMC_TENTHS_OLD: u32 = 9;

pub(super) fn disk(facts: &Facts) -> Vec<Finding> {
    let vitals = &facts.vitals;
    let mut found = Vec::new();
    if vitals.disk_read_only == Some(true) {
        let why = "nothing that is said can be kept; a worn card, or one with errors, ends so";
        let finding = Finding::fault("the file system of the state is mounted read-only", why);
        found.push(finding.fix("sudo dmesg --level=err,warn | grep -iE 'mmc|ext4|i/o'"));
    }
    let Some(free) = vitals.disk_free_bytes else { return found };
    let what = format!("{} MB are free where the state is kept", free / 1_000_000);
    let fix = "sudo apt clean && sudo journalctl --vacuum-size=100M";
    if free < FREE_BYTES_NONE {
        let why = "the database cannot be written much longer, nor can the system be updated";
        found.push(Finding::fault(what, why).fix(fix));
    } else if free < FREE_BYTES_LOW {
        let why = "a full card stops the database, the system's logs and its updates";
        found.push(Finding::warning(what, why).fix(fix));
    }
    found
}

pub(super) fn wear(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(bytes) = facts.vitals.card_written_per_day_bytes
        && bytes > WRITTEN_A_DAY_BYTES
    {
        let what = format!("{} GB a day are written to the card", bytes / 1_000_000_000);
        let why = "a card bears some thousand times its size, and then it loses data";
        found.push(Finding::warning(what, why).fix("sudo apt install iotop && sudo iotop -oPa"));
    }
    if let Some(tenths) = facts.emmc_tenths_used.filter(|tenths| *tenths >= EMMC_TENTHS_OLD) {
        let what = format!("the eMMC says that {tenths} tenths of its life are used");
        let why = "beyond its life it may lose data or become read-only";
        let fix = "copy the state directory to another disk, and replace the module";
        found.push(Finding::warning(what, why).fix(fix));
    }
    found
}

pub(super) fn swap(facts: &Facts) -> Vec<Finding> {
    let root_is_card = facts.root_device.as_deref().is_some_and(is_card);
    let swaps = facts.swaps.iter().flatten();
    let on_card = swaps.filter(|swap| is_card(&swap.place) || swap.is_file && root_is_card);
    let why = "swap wears a card out, and a machine that swaps to one stands still";
    let finding = |place: &str| {
        let what = format!("memory is swapped to the card ({place})");
        Finding::warning(what, why)
            .fix(format!("sudo swapoff {place} && sudo apt install zram-tools"))
    };
    on_card.map(|swap| finding(&swap.place)).collect()
}

fn is_card(device: &str) -> bool {
    device.starts_with("/dev/mmcblk")
}
