//! Sentences for a person.
