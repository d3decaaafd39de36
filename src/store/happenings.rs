//! Happenings in the database: appended, read back, let go. Blocking.

use rusqlite::{Connection, params};
use serde_json::Value;

use super::{Keep, NewHappening, Store, StoreError};
use crate::event::feed::{Told, Wanted, short_numbers};

/// Earliest time taken for real, in milliseconds since 1970 (2025-01-01). What was told before the
/// clock was set has no age.
const EARLIEST_MS: i64 = 1_735_689_600_000;

impl Store {
    /// At most `limit` happenings, oldest first.
    ///
    /// # Errors
    /// As [`Store::events_of`].
    pub async fn happenings(&self, wanted: Wanted, limit: usize) -> Result<Vec<Told>, StoreError> {
        self.read(move |c| read(c, wanted, limit)).await
    }
}

/// Appends.
pub(super) fn append(connection: &Connection, rows: &[NewHappening]) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "INSERT INTO happening (at_ms, class, severity, kind, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for row in rows {
        statement.execute(params![row.at_ms, row.group, row.severity, row.kind, row.body])?;
    }
    Ok(())
}

/// Lets go what is too old or too much.
pub(super) fn forget(connection: &Connection, keep: &[Keep]) -> rusqlite::Result<()> {
    for Keep { group, since_ms, rows_max } in keep {
        connection.execute(
            "DELETE FROM happening WHERE class = ?1 AND id <= (SELECT id FROM happening
                WHERE class = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            params![group, rows_max],
        )?;
        if let Some(since_ms) = since_ms {
            connection.execute(
                "DELETE FROM happening WHERE class = ?1 AND at_ms >= ?2 AND at_ms < ?3",
                params![group, EARLIEST_MS, since_ms],
            )?;
        }
    }
    Ok(())
}

/// At most `limit` of the wanted, oldest first.
pub(super) fn read(
    connection: &Connection,
    wanted: Wanted,
    limit: usize,
) -> rusqlite::Result<Vec<Told>> {
    let (after, since_ms, order) = match wanted {
        Wanted::After(id) => (id, i64::MIN, "ASC"),
        Wanted::Since { at_ms, after } => (after, at_ms, "ASC"),
        Wanted::Last => (0, i64::MIN, "DESC"),
    };
    let mut statement = connection.prepare(&format!(
        "SELECT id, at_ms, class, severity, kind, body FROM happening
         WHERE id > ?1 AND at_ms >= ?2 ORDER BY id {order} LIMIT ?3"
    ))?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![after, since_ms, limit], |row| {
        let body: Vec<u8> = row.get(5)?;
        Ok(Told {
            id: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
            at_ms: row.get(1)?,
            group: row.get(2)?,
            severity: row.get(3)?,
            kind: row.get(4)?,
            // A body that cannot be read any more still has its kind and its time.
            body: ciborium::from_reader(body.as_slice()).map_or(Value::Null, short_numbers),
        })
    })?;
    let mut told: Vec<Told> = rows.collect::<Result<_, _>>()?;
    if wanted == Wanted::Last {
        told.reverse();
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema;

    fn row(at_ms: i64, group: &'static str) -> NewHappening {
        let mut body = Vec::new();
        ciborium::into_writer(&serde_json::json!({ "at": at_ms }), &mut body).unwrap();
        NewHappening { at_ms, group, severity: "info", kind: "store.recovered", body }
    }

    fn database(rows: &[NewHappening]) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        schema::migrate(&connection, 0).unwrap();
        append(&connection, rows).unwrap();
        connection
    }

    fn ids(connection: &Connection, wanted: Wanted, limit: usize) -> Vec<u64> {
        read(connection, wanted, limit).unwrap().iter().map(|told| told.id).collect()
    }

    const DAY_MS: i64 = 86_400_000;
    const NOW_MS: i64 = EARLIEST_MS + 400 * DAY_MS;

    #[test]
    fn they_are_read_from_a_place_from_a_time_or_from_the_end() {
        let rows: Vec<_> = (1..=5).map(|n| row(NOW_MS + n, "fault")).collect();
        let database = database(&rows);
        assert_eq!(ids(&database, Wanted::After(0), 2), [1, 2]);
        assert_eq!(ids(&database, Wanted::After(3), 9), [4, 5]);
        assert_eq!(ids(&database, Wanted::After(5), 9), [0; 0]);
        assert_eq!(ids(&database, Wanted::After(u64::MAX), 9), [0; 0]);
        assert_eq!(ids(&database, Wanted::Since { at_ms: NOW_MS + 4, after: 0 }, 9), [4, 5]);
        assert_eq!(ids(&database, Wanted::Since { at_ms: NOW_MS + 2, after: 4 }, 9), [5]);
        assert_eq!(ids(&database, Wanted::Last, 2), [4, 5]);
        let told = read(&database, Wanted::Last, 1).unwrap();
        assert_eq!(told[0].body, serde_json::json!({ "at": NOW_MS + 5 }));
    }

    #[test]
    fn each_group_is_kept_as_long_as_it_is_wanted_and_no_place_is_given_twice() {
        let database = database(&[
            row(NOW_MS - 40 * DAY_MS, "body"),
            row(NOW_MS - 40 * DAY_MS, "fault"),
            row(3_600_000, "body"),
            row(NOW_MS - DAY_MS, "body"),
            row(NOW_MS, "turn"),
        ]);
        let keep = |group, days: i64| Keep {
            group,
            since_ms: Some(NOW_MS - days * DAY_MS),
            rows_max: 100,
        };
        forget(&database, &[keep("body", 30), keep("fault", 90), keep("turn", 1)]).unwrap();
        assert_eq!(ids(&database, Wanted::After(0), 9), [2, 3, 4, 5], "no age before 2025");
        forget(&database, &[Keep { group: "turn", since_ms: None, rows_max: 0 }]).unwrap();
        assert_eq!(ids(&database, Wanted::After(0), 9), [2, 3, 4]);
        append(&database, &[row(NOW_MS, "turn")]).unwrap();
        assert_eq!(ids(&database, Wanted::After(4), 9), [6]);
    }

    #[test]
    fn the_newest_of_a_group_are_kept_up_to_its_bound() {
        let rows: Vec<_> = (0..10).map(|n| row(NOW_MS + n, "beat")).collect();
        let database = database(&rows);
        forget(&database, &[Keep { group: "beat", since_ms: None, rows_max: 3 }]).unwrap();
        assert_eq!(ids(&database, Wanted::After(0), 99), [8, 9, 10]);
    }
}
