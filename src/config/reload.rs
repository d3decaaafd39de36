//! What a changed file changes (pure).

use super::check::specs;
use super::key::Reload;
use super::values::Values;

/// One changed key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Dotted path.
    pub path: &'static str,
    /// The value so far; secrets as asterisks.
    pub from: String,
    /// The value now; secrets as asterisks.
    pub to: String,
}

/// What differs between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// In effect from now on.
    pub live: Vec<Change>,
    /// In effect after the next start.
    pub restart: Vec<Change>,
}

impl Changes {
    /// True if both configurations have the same values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }
}

/// Compares two configurations, in the order of the document.
#[must_use]
pub fn changes(old: &Values, new: &Values) -> Changes {
    let mut changes = Changes::default();
    for spec in specs().filter(|spec| !old.same(new, spec)) {
        let change = Change { path: spec.path, from: old.shown(spec), to: new.shown(spec) };
        match spec.reload {
            Reload::Live => changes.live.push(change),
            Reload::Restart => changes.restart.push(change),
        }
    }
    changes
}
