//! Thinking.

/// How thinking is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// x
    StartsInside,
    /// x
    MayOpen,
}
