//! Process life.
