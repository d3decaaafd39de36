//! The connection and its file: opening, setting aside, committing, folding the log. Blocking.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, Params, TransactionBehavior, params};

use super::classify::{classify, io_error};
use super::medium::Medium;
use super::{
    EventRow, FILE_NAME, KIND_END, NewEvent, OpenTurn, Options, SessionRow, StoreError, Write,
    file, schema,
};
use crate::clock::WallClock;
use crate::event::{Event, Events};
use crate::limits;

// SQLite left to itself walks through the whole session here; a turn must cost the same at any
// length of it, so the index is named.

/// Finds the event of a kind of a turn.
pub(super) const HAS_ENDED: &str = "SELECT 1 FROM event INDEXED BY event_by_turn
    WHERE session = ?1 AND turn = ?2 AND kind = ?3";

/// Lists a session's events from a turn on, up to and without another.
pub(super) const EVENTS_OF: &str = "SELECT seq, turn, at_ms, kind, body
    FROM event INDEXED BY event_by_turn
    WHERE session = ?1 AND turn >= ?2 AND turn < ?3 ORDER BY seq";

/// Takes a session away; one write, hence one transaction.
const DELETE_SESSION: [&str; 3] = [
    "DELETE FROM partial WHERE session = ?1",
    "DELETE FROM event WHERE session = ?1",
    "DELETE FROM session WHERE id = ?1",
];

/// Lists sessions; `WHERE` or `ORDER BY` follow.
const SESSIONS: &str = "SELECT id, title, profile, created_ms, updated_ms FROM session";

/// Which database, and what opening it needs.
pub(super) struct Plan {
    pub(super) options: Options,
    pub(super) medium: Arc<dyn Medium>,
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) events: Events,
}

/// The open database.
pub(super) struct Disk {
    connection: Connection,
    path: PathBuf,
}

impl Plan {
    /// Opens or creates the database; a damaged one is set aside and told.
    pub(super) fn open(&self) -> Result<Disk, StoreError> {
        self.medium.verdict()?;
        file::create_state_dir(&self.options.state_dir).map_err(|e| io_error(&e))?;
        let path = self.options.state_dir.join(FILE_NAME);
        let connection = match open_sound(&path, &self.options) {
            Err(StoreError::Corrupt(detail)) => {
                tracing::error!(path = %path.display(), detail, "the database is damaged");
                let aside = set_aside(&path, self.clock.as_ref()).map_err(|e| io_error(&e))?;
                self.events.tell(Event::StoreReplaced { aside: aside.display().to_string() });
                open_sound(&path, &self.options)?
            }
            opened => opened?,
        };
        Ok(Disk { connection, path })
    }

    /// Goes on with a new database after `disk` was found damaged while it was open.
    pub(super) fn replace(&self, disk: Disk, detail: &str) -> Result<Disk, StoreError> {
        let Disk { connection, path } = disk;
        tracing::error!(path = %path.display(), detail, "the database is damaged");
        // Closing must not fold the log into the damaged file: what it holds may be sound.
        let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        drop(connection);
        let aside = set_aside(&path, self.clock.as_ref()).map_err(|e| io_error(&e))?;
        self.events.tell(Event::StoreReplaced { aside: aside.display().to_string() });
        self.open()
    }
}

impl Disk {
    /// The connection, for reads.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Commits the writes in one transaction; on an error none of them.
    ///
    /// `Refused` names the index of the write that contradicts what is stored.
    pub(super) fn commit<'a>(
        &mut self,
        writes: impl Iterator<Item = &'a Write>,
        medium: &dyn Medium,
    ) -> Result<(), (usize, StoreError)> {
        // The write lock is taken first: SQLite waits for another program's lock only where a
        // transaction has read nothing yet; later it refuses at once.
        let immediate = TransactionBehavior::Immediate;
        let transaction =
            self.connection.transaction_with_behavior(immediate).map_err(|e| (0, classify(&e)))?;
        let mut count = 0;
        for write in writes {
            apply(&transaction, write).map_err(|e| (count, e))?;
            count += 1;
        }
        medium.verdict().map_err(|e| (count.saturating_sub(1), e))?;
        transaction.commit().map_err(|e| (count.saturating_sub(1), classify(&e)))
    }

    /// Folds the write-ahead log into the database and brings both onto the medium. False if
    /// another program is reading, which does not let the log be emptied.
    pub(super) fn checkpoint(&self) -> Result<bool, StoreError> {
        let busy: i64 = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0))
            .map_err(|e| classify(&e))?;
        Ok(busy == 0)
    }

    /// Size of the write-ahead log in bytes.
    pub(super) fn wal_bytes(&self) -> u64 {
        file_bytes(&beside(&self.path, "-wal"))
    }

    /// Folds the log and closes the file.
    pub(super) fn close(self) -> Result<(), StoreError> {
        let folded = self.checkpoint();
        self.connection.close().map_err(|(_, error)| classify(&error))?;
        folded.map(|_| ())
    }
}

/// Opens the file and proves as far as its size allows that it is sound.
fn open_sound(path: &Path, options: &Options) -> Result<Connection, StoreError> {
    // A log that was not folded is the sign of a crash or a power cut.
    let crashed = file_bytes(&beside(path, "-wal")) > 0;
    let connection = Connection::open(path).map_err(|e| classify(&e))?;
    let sound =
        prepare(&connection, options, crashed || file_bytes(path) <= limits::STORE_CHECK_BYTES);
    // A file that is not used stays as it is.
    if sound.is_err() {
        let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }
    sound.map(|()| connection)
}

/// Sets the connection up, checks the file and brings it to this program's format.
fn prepare(connection: &Connection, options: &Options, check: bool) -> Result<(), StoreError> {
    let sql = |e: rusqlite::Error| classify(&e);
    connection.busy_timeout(limits::STORE_BUSY_MAX).map_err(sql)?;
    let found = schema::version(connection).map_err(sql)?;
    if found > schema::VERSION {
        let path = options.state_dir.join(FILE_NAME).display().to_string();
        return Err(StoreError::Newer { path, found, known: schema::VERSION });
    }
    let synchronous = if options.fsync_always { "FULL" } else { "NORMAL" };
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
             PRAGMA wal_autocheckpoint = 0; PRAGMA foreign_keys = ON;"
        ))
        .map_err(sql)?;
    if let Some(pages) = options.pages_max {
        connection.execute_batch(&format!("PRAGMA max_page_count = {pages}")).map_err(sql)?;
    }
    if check {
        let verdict: String =
            connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(sql)?;
        if verdict != "ok" {
            return Err(StoreError::Corrupt(verdict));
        }
    }
    match schema::migrate(connection, found).map_err(sql) {
        // Tables that are there although the version says otherwise: not a file of ours.
        Err(StoreError::Refused(detail)) => Err(StoreError::Corrupt(detail)),
        other => other,
    }
}

/// Renames the database with its log, so that it can still be opened where it is.
fn set_aside(path: &Path, clock: &dyn WallClock) -> std::io::Result<PathBuf> {
    let stamp = clock.now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut aside = beside(path, &format!(".damaged-{stamp}"));
    let mut again = 2;
    while aside.try_exists()? {
        aside = beside(path, &format!(".damaged-{stamp}-{again}"));
        again += 1;
    }
    // The log first: left behind, it would be played into the new file. Its index is rebuilt by
    // whoever opens the damaged file, and an empty log holds nothing.
    let wal = beside(path, "-wal");
    let moved = if file_bytes(&wal) > 0 {
        fs::rename(&wal, beside(&aside, "-wal"))
    } else {
        fs::remove_file(&wal)
    };
    for done in [moved, fs::remove_file(beside(path, "-shm"))] {
        match done {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, &aside)?;
    file::sync_dir_of(path)?;
    Ok(aside)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

/// SQLite's integers are signed; numbers beyond are bugs and never reached by counting.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn apply(connection: &Connection, write: &Write) -> Result<(), StoreError> {
    let sql = |e: rusqlite::Error| classify(&e);
    match write {
        Write::Begin { session, title, profile, turn, events } => {
            if last_turn(connection, session).map_err(sql)? >= *turn {
                return Err(StoreError::Refused(format!("turn {turn} of {session} exists")));
            }
            let at_ms = events.last().map_or(0, |e| e.at_ms);
            run(
                connection,
                "INSERT INTO session (id, title, profile, created_ms, updated_ms)
                     VALUES (?1, ?2, ?3, ?4, ?4)
                     ON CONFLICT (id) DO UPDATE SET updated_ms = ?4",
                params![session, title, profile, at_ms],
            )?;
            run(
                connection,
                "INSERT INTO partial (session, turn, n, text) VALUES (?1, ?2, 0, '')",
                params![session, signed(*turn)],
            )?;
            append(connection, session, *turn, events).map_err(sql)
        }
        Write::Partial { session, turn, text } => {
            if has_ended(connection, session, *turn).map_err(sql)? {
                return Err(StoreError::Refused(format!("turn {turn} of {session} has ended")));
            }
            run(
                connection,
                "INSERT INTO partial (session, turn, n, text)
                     SELECT ?1, ?2, coalesce(max(n), 0) + 1, ?3 FROM partial
                     WHERE session = ?1 AND turn = ?2",
                params![session, signed(*turn), text],
            )
        }
        Write::Finish { session, turn, events } => {
            // A second end says nothing new, but what it leaves open would be found at each start.
            if !has_ended(connection, session, *turn).map_err(sql)? {
                append(connection, session, *turn, events).map_err(sql)?;
            }
            run(
                connection,
                "DELETE FROM partial WHERE session = ?1 AND turn = ?2",
                params![session, signed(*turn)],
            )
        }
        Write::Rename { session, title } => {
            let rename = "UPDATE session SET title = ?2 WHERE id = ?1";
            run(connection, rename, params![session, title])
        }
        Write::Note { name, body } => {
            let put = "INSERT INTO note (name, body) VALUES (?1, ?2)
                ON CONFLICT (name) DO UPDATE SET body = ?2";
            connection.execute(put, params![name, body]).map_err(sql)?;
            Ok(())
        }
        Write::Delete { session } => {
            for delete in DELETE_SESSION {
                run(connection, delete, [session])?;
            }
            Ok(())
        }
    }
}

/// Runs a statement; the next time it needs no parsing. A turn commits several times while the
/// person waits.
fn run(connection: &Connection, statement: &str, values: impl Params) -> Result<(), StoreError> {
    let done = connection.prepare_cached(statement).and_then(|mut s| s.execute(values));
    done.map(|_| ()).map_err(|e| classify(&e))
}

fn append(
    connection: &Connection,
    session: &str,
    turn: u64,
    events: &[NewEvent],
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO event (session, seq, turn, at_ms, kind, body)
         SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5 FROM event WHERE session = ?1",
    )?;
    for event in events {
        statement.execute(params![session, signed(turn), event.at_ms, event.kind, event.body])?;
    }
    Ok(())
}

fn has_ended(connection: &Connection, session: &str, turn: u64) -> rusqlite::Result<bool> {
    connection.prepare_cached(HAS_ENDED)?.exists(params![session, signed(turn), KIND_END])
}

pub(super) fn last_turn(connection: &Connection, session: &str) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT coalesce(max(turn), 0) FROM event WHERE session = ?1")?
        .query_row([session], |row| row.get(0).map(unsigned))
}

pub(super) fn events_of(
    connection: &Connection,
    session: &str,
    turns: &Range<u64>,
) -> rusqlite::Result<Vec<EventRow>> {
    let mut statement = connection.prepare(EVENTS_OF)?;
    let bounds = params![session, signed(turns.start), signed(turns.end)];
    let rows = statement.query_map(bounds, |row| {
        Ok(EventRow {
            seq: unsigned(row.get(0)?),
            turn: unsigned(row.get(1)?),
            at_ms: row.get(2)?,
            kind: row.get(3)?,
            body: row.get(4)?,
        })
    })?;
    rows.collect()
}

pub(super) fn sessions(connection: &Connection, limit: usize) -> rusqlite::Result<Vec<SessionRow>> {
    let mut statement =
        connection.prepare(&format!("{SESSIONS} ORDER BY updated_ms DESC, id LIMIT ?1"))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map([limit], session_row)?;
    rows.collect()
}

pub(super) fn session(connection: &Connection, id: &str) -> rusqlite::Result<Option<SessionRow>> {
    connection.query_row(&format!("{SESSIONS} WHERE id = ?1"), [id], session_row).optional()
}

fn session_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: row.get(0)?,
        title: row.get(1)?,
        profile: row.get(2)?,
        created_ms: row.get(3)?,
        updated_ms: row.get(4)?,
    })
}

pub(super) fn note(connection: &Connection, name: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let body = "SELECT body FROM note WHERE name = ?1";
    connection.query_row(body, [name], |row| row.get(0)).optional()
}

pub(super) fn open_turns(connection: &Connection) -> rusqlite::Result<Vec<OpenTurn>> {
    let mut statement =
        connection.prepare("SELECT session, turn, text FROM partial ORDER BY session, turn, n")?;
    let mut rows = statement.query(())?;
    let mut open: Vec<OpenTurn> = Vec::new();
    while let Some(row) = rows.next()? {
        let session: String = row.get(0)?;
        let turn = unsigned(row.get(1)?);
        let text: String = row.get(2)?;
        match open.last_mut() {
            Some(last) if last.session == session && last.turn == turn => last.shown += &text,
            _ => open.push(OpenTurn { session, turn, shown: text }),
        }
    }
    Ok(open)
}
