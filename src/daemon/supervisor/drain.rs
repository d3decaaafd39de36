//! The drain: group after group is asked to stop, each task within its own time, all of them
//! within `limits::DRAIN_MAX`.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Entry, Supervisor};
use crate::limits;

/// Time a dropped task gets to go away before the next group is asked. Dropping is immediate
/// unless the task sits in a system call; then waiting longer would not help either.
const DROP_MAX: Duration = Duration::from_millis(100);

impl Supervisor {
    /// Stops everybody; names those that had to be dropped.
    pub(super) async fn drain(&mut self) -> Vec<&'static str> {
        let whole = Instant::now() + limits::DRAIN_MAX;
        let mut overran = Vec::new();
        while let Some(order) = self.next_order() {
            tracing::debug!(order, "draining");
            self.drain_group(order, whole, &mut overran).await;
        }
        if !overran.is_empty() {
            tracing::error!(tasks = ?overran, "tasks did not stop in time");
        }
        overran
    }

    /// Closes the next order that has tasks, and all below it. None when there is none left: then
    /// all are closed.
    fn next_order(&self) -> Option<u8> {
        let mut table = self.spawner.0.table();
        let from = table.open_from;
        let live = table.entries.values().filter(|entry| entry.live).map(|entry| entry.spec.drain);
        let order = live.filter(|order| *order >= from).min();
        match order.and_then(|order| order.checked_add(1)) {
            Some(next) => table.open_from = next,
            None if table.closed => return None,
            None => table.closed = true,
        }
        order
    }

    async fn drain_group(&mut self, order: u8, whole: Instant, overran: &mut Vec<&'static str>) {
        let began = Instant::now();
        loop {
            // Marked seen before the table is read, so that no end in between is missed.
            self.ended.borrow_and_update();
            let wake = {
                let now = Instant::now();
                let mut table = self.spawner.0.table();
                let group = table.entries.values_mut().filter(|entry| entry.spec.drain == order);
                group.filter_map(|entry| urge(entry, began, whole, now, overran)).min()
            };
            let Some(wake) = wake else { return };
            // Woken by an end or by the time; both are looked at above.
            let _ = timeout_at(wake, self.ended.changed()).await;
        }
    }
}

/// Does to a task what is due, and answers when to look again; None when it is no more waited for.
fn urge(
    entry: &mut Entry,
    began: Instant,
    whole: Instant,
    now: Instant,
    overran: &mut Vec<&'static str>,
) -> Option<Instant> {
    if !entry.live {
        return None;
    }
    if let Some(at) = entry.overran_at {
        return (now < at + DROP_MAX).then_some(at + DROP_MAX);
    }
    let ask_at = (began + entry.spec.grace).min(whole);
    if now < ask_at {
        return Some(ask_at);
    }
    entry.stop.cancel();
    let drop_at = (ask_at + entry.spec.drain_max).min(whole);
    if now < drop_at {
        return Some(drop_at);
    }
    entry.overran_at = Some(now);
    if let Some(abort) = &entry.abort {
        abort.abort();
    }
    overran.push(entry.spec.name);
    Some(now + DROP_MAX)
}
