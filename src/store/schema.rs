//! Numbered migrations. `PRAGMA user_version` says how many of them a file has had.
//!
//! A migration is never changed once released: a new step is appended. A file that has had more
//! steps than this program knows belongs to a newer program and is refused untouched.

use rusqlite::Connection;

/// Steps in their order; step `i` leads from version `i` to `i + 1`.
const STEPS: &[&str] = &[
    // 1: conversations. `event` is append-only; its primary key is also its order. `partial` row
    // 0 of a turn says that the turn is open, the others are what it has shown so far.
    "CREATE TABLE session (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        profile TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE event (
        session TEXT NOT NULL,
        seq INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (session, seq)
    ) WITHOUT ROWID;
    CREATE INDEX event_by_turn ON event (session, turn);
    CREATE TABLE partial (
        session TEXT NOT NULL,
        turn INTEGER NOT NULL,
        n INTEGER NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (session, turn, n)
    ) WITHOUT ROWID;",
    // 2: notes, which parts of the program write for their next start.
    "CREATE TABLE note (
        name TEXT PRIMARY KEY,
        body BLOB NOT NULL
    ) WITHOUT ROWID;",
];

/// The version this program writes.
pub(super) const VERSION: usize = STEPS.len();

/// The version of an open file; 0 for a new one. Reads only.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection.query_row("PRAGMA user_version", (), |row| {
        row.get::<_, i64>(0).map(|v| usize::try_from(v).unwrap_or(usize::MAX))
    })
}

/// Applies the steps that a file of version `from` lacks, each in a transaction of its own.
pub(super) fn migrate(connection: &Connection, from: usize) -> rusqlite::Result<()> {
    for (index, step) in STEPS.iter().enumerate().skip(from) {
        let done = index + 1;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {step} PRAGMA user_version = {done}; COMMIT;"
        ))?;
    }
    Ok(())
}
