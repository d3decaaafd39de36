//! The groups that happenings are kept by (pure).

/// What a happening is about: a group is kept equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Faults, and their ends.
    Fault,
    /// The body.
    Body,
    /// Turns.
    Turn,
    /// Summaries of beats.
    Beat,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 4] = [Self::Fault, Self::Body, Self::Turn, Self::Beat];

    /// The word in the database and for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Body => "body",
            Self::Turn => "turn",
            Self::Beat => "beat",
        }
    }
}
