//! Splitting streams into lines.
