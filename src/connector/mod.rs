//! Ways to reach a person.
