//! The rows of the task table as data; what they mean is in the table of `daemon`.

use std::time::Duration;

use super::supervisor::{Policy, Restart, Spec};
use crate::limits;

const RESTART: Policy = Policy::Restart(Restart::USUAL);

const fn row(name: &'static str, policy: Policy, drain: u8, drain_max_s: u64) -> Spec {
    let drain_max = Duration::from_secs(drain_max_s);
    Spec { name, policy, drain, grace: Duration::ZERO, drain_max }
}

/// The HTTP door and its connections: running answers are told to their end, so it lives as long
/// as the agent does.
pub const HTTP: Spec = row("http", RESTART, 2, 8);

/// The terminal's socket and its clients.
pub const TERMINAL: Spec = row("terminal", RESTART, 2, 8);

/// Reads the configuration again at SIGHUP or when its file has changed.
pub const RELOAD: Spec = row("reload", RESTART, 2, 1);

/// Takes messages on and runs their turns: they get `limits::DRAIN_TURNS_MAX` to finish, then are
/// closed as interrupted, which may wait `limits::STORE_BUSY_MAX` for a slow disk.
pub const AGENT: Spec = row("agent", Policy::ExitProcess, 2, 8);

/// Warm-up, and probes of backends whose breaker is open.
pub const RECOVERY: Spec = row("recovery", RESTART, 2, 1);

/// Fetches the reserve's model where that was allowed beforehand.
pub const MODEL: Spec = row("model", RESTART, 2, 1);

/// The heart: vital signs, stress, governor, the published state, the watchdog.
pub const HEARTBEAT: Spec = row("heartbeat", Policy::ExitProcess, 4, 1);

/// The mood, which turns nudge to their end.
pub const MOOD: Spec = row("mood", RESTART, 5, 1);

/// Light, button and sensors, on a Raspberry Pi that has some.
pub const PANEL: Spec = row("panel", RESTART, 5, 1);

/// Writes happenings into the database; it outlives everybody who tells some.
pub const RECORD: Spec = row("record", RESTART, 5, 1);

/// The database writer: a call that is under way and the last one, which also checkpoints, may
/// each wait `limits::STORE_BUSY_MAX`.
pub const STORE: Spec = row("store", Policy::ExitProcess, 6, 5);

/// All rows, as the table lists them.
pub const ALL: [Spec; 11] =
    [RELOAD, HTTP, TERMINAL, AGENT, RECOVERY, MODEL, HEARTBEAT, MOOD, RECORD, PANEL, STORE];

/// The longest drain the rows allow: the slowest row of each order, one after the other.
const fn drain_longest_ms() -> u128 {
    let (mut total, mut order) = (0, 0);
    while order <= 6 {
        let (mut slowest, mut at) = (0, 0);
        while at < ALL.len() {
            let takes = ALL[at].grace.as_millis() + ALL[at].drain_max.as_millis();
            if ALL[at].drain == order && takes > slowest {
                slowest = takes;
            }
            at += 1;
        }
        total += slowest;
        order += 1;
    }
    total
}

// Each group can use its time up and the store still has its own.
const _: () = assert!(drain_longest_ms() <= limits::DRAIN_MAX.as_millis());
const _: () = assert!(
    AGENT.drain_max.as_millis()
        > limits::DRAIN_TURNS_MAX.as_millis() + limits::STORE_BUSY_MAX.as_millis()
);
const _: () = assert!(STORE.drain_max.as_millis() > 2 * limits::STORE_BUSY_MAX.as_millis());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_documentation_is_these_rows() {
        let page = include_str!("mod.rs");
        let documented: Vec<Vec<&str>> = page
            .lines()
            .filter_map(|line| line.strip_prefix("//! |"))
            .skip(2)
            .map(|row| row.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(documented.len(), ALL.len(), "{documented:?}");
        for (row, spec) in documented.iter().zip(ALL) {
            let end = match spec.policy {
                Policy::ExitProcess => "process exits with 70",
                Policy::Restart(_) => "restarts",
                Policy::Once => "nothing",
            };
            assert_eq!(row[0], spec.name);
            assert_eq!(row[3], end, "{}", spec.name);
            assert_eq!(row[4], spec.drain.to_string(), "{}", spec.name);
            let budget = match spec.grace.as_secs() {
                0 => format!("{} s", spec.drain_max.as_secs()),
                grace => format!("{grace} s to finish, then {} s", spec.drain_max.as_secs()),
            };
            assert_eq!(row[5], budget, "{}", spec.name);
        }
        assert!(ALL.iter().all(|spec| spec.drain <= 6), "drain_longest_ms looks at 0 to 6");
    }
}
