//! The checks (pure).

mod card;
mod kernel;
mod power;
mod program;
mod servers;

use super::{Facts, Finding};

/// A check: what it finds in the facts.
pub type Check = fn(&Facts) -> Vec<Finding>;

/// All of them, in the order in which a person should read what they find.
pub const ALL: &[(&str, Check)] = &[
    ("configuration", program::configuration),
    ("permissions", program::permissions),
    ("daemon", program::daemon),
    ("faults", program::faults),
    ("port", program::port),
    ("database", program::database),
    ("servers", servers::reachable),
    ("models", servers::models),
    ("binds", servers::binds),
    ("npu", servers::npu),
    ("power", power::supply),
    ("heat", power::heat),
    ("clock", kernel::clock),
    ("disk", card::disk),
    ("card", card::wear),
    ("swap", card::swap),
    ("memory control", kernel::memory_control),
    ("pressure", kernel::pressure),
    ("pages", kernel::pages),
    ("C library", kernel::libc),
];

#[cfg(test)]
mod tests;
