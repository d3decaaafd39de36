//! What was said in a session, for people: the log's turns and those that are only in memory yet.

use std::collections::BTreeMap;

use super::Sessions;
use super::log::{self, Line, Logged};
use crate::store::StoreError;

impl Sessions {
    /// The last `limit` lines of a session, oldest first, with what a running turn has shown.
    /// Empty for a session that never was.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn history(&self, session: &str, limit: usize) -> Result<Vec<Line>, StoreError> {
        let mut lines: Vec<Line> = self.turns_before(session, u64::MAX, limit).await?.concat();
        let surplus = lines.len().saturating_sub(limit);
        Ok(lines.split_off(surplus))
    }

    /// The lines of the turns before turn `before`, oldest first: at most `limit` of them, but
    /// always whole turns, and one at least, so that a reader who asks for what is before the
    /// oldest turn it has goes back without a gap. Empty at the beginning.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn earlier(
        &self,
        session: &str,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Line>, StoreError> {
        let mut turns = self.turns_before(session, before, limit).await?;
        let mut lines = 0;
        let newest_first = turns.iter().rev().take_while(|turn| {
            let first = lines == 0;
            lines += turn.len();
            first || lines <= limit
        });
        let surplus = turns.len() - newest_first.count();
        Ok(turns.split_off(surplus).concat())
    }

    /// The lines of each of the last turns before `before`, oldest first: as many turns as may
    /// hold `limit` lines.
    async fn turns_before(
        &self,
        session: &str,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Vec<Line>>, StoreError> {
        let memory = self.locked().act(session, |recent| recent.unread(self.now_ms()));
        let (last_here, unread) = memory.unwrap_or_default();
        let last = self.store.last_turn(session).await?.max(last_here);
        let end = before.min(last.saturating_add(1));
        let reach = u64::try_from(limit).unwrap_or(u64::MAX);
        let wanted = end.saturating_sub(reach)..end;
        let rows = self.store.events_of(session, wanted.clone()).await?;
        let mut turns: BTreeMap<u64, Logged> =
            log::gather(&rows).into_iter().map(|logged| (logged.turn, logged)).collect();
        // What the log has whole is newer than what memory said before it was read.
        let mut running = BTreeMap::new();
        for (logged, line) in unread {
            let known = turns.get(&logged.turn).is_some_and(|known| known.end.is_some());
            if !known && wanted.contains(&logged.turn) {
                running.extend(line.map(|line| (logged.turn, line)));
                turns.insert(logged.turn, logged);
            }
        }
        let told = |(turn, logged): (u64, Logged)| {
            let mut lines: Vec<_> = logged.lines().collect();
            lines.extend(running.remove(&turn));
            lines
        };
        Ok(turns.into_iter().map(told).collect())
    }
}
