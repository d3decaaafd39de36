//! Everything here runs on a paused clock: the lease has no I/O.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

const QUIET: Duration = Duration::from_secs(30);

fn ask(priority: Priority, conversation: u64) -> Ask {
    Ask { priority, conversation, expected: Duration::from_secs(10) }
}

async fn take(lease: &Arc<Lease>, a: Ask) -> Slot {
    lease.acquire(a, |_| {}).await.unwrap()
}

/// Puts a job in line and says into `order` when it got the slot; it holds it for a second.
fn queue(
    lease: &Arc<Lease>,
    a: Ask,
    name: &'static str,
    order: &Arc<Mutex<Vec<&'static str>>>,
) -> tokio::task::JoinHandle<()> {
    let (lease, order) = (Arc::clone(lease), Arc::clone(order));
    tokio::spawn(async move {
        let slot = take(&lease, a).await;
        order.lock().unwrap().push(name);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(slot);
    })
}

#[tokio::test(start_paused = true)]
async fn the_owner_goes_before_everybody_who_waits() {
    let lease = Lease::new(Duration::ZERO);
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = take(&lease, ask(Priority::Owner, 1)).await;
    let mut jobs = Vec::new();
    for (p, name) in [
        (Priority::Curiosity, "curiosity"),
        (Priority::Reflection, "reflection"),
        (Priority::OwnersJob, "job"),
        (Priority::Owner, "owner"),
    ] {
        jobs.push(queue(&lease, ask(p, 9), name, &order));
        tokio::task::yield_now().await;
    }
    drop(held);
    for job in jobs {
        job.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), ["owner", "job", "reflection", "curiosity"]);
}

#[tokio::test(start_paused = true)]
async fn background_work_is_told_to_give_way_and_the_owner_is_not() {
    let lease = Lease::new(QUIET);
    for (holder, asker, gives_way) in [
        (Priority::Curiosity, Priority::Owner, true),
        (Priority::Reflection, Priority::OwnersJob, true),
        (Priority::OwnersJob, Priority::Owner, true),
        (Priority::Owner, Priority::Owner, false),
        (Priority::Owner, Priority::OwnersJob, false),
        (Priority::Reflection, Priority::Reflection, false),
    ] {
        tokio::time::advance(QUIET).await;
        let slot = take(&lease, ask(holder, 1)).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let next = queue(&lease, ask(asker, 2), "next", &order);
        tokio::task::yield_now().await;
        assert_eq!(slot.preempted().is_cancelled(), gives_way, "{holder:?} and {asker:?}");
        drop(slot);
        next.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn background_work_waits_until_the_owner_has_been_quiet() {
    let lease = Lease::new(QUIET);
    drop(take(&lease, ask(Priority::Owner, 1)).await);
    let start = Instant::now();
    drop(take(&lease, ask(Priority::Curiosity, 2)).await);
    assert_eq!(start.elapsed(), QUIET);
    drop(take(&lease, ask(Priority::OwnersJob, 2)).await);
    assert_eq!(start.elapsed(), QUIET, "the owner's own jobs do not wait");
}

#[tokio::test(start_paused = true)]
async fn the_cached_conversation_goes_first_but_passes_nobody_more_than_twice() {
    let lease = Lease::new(QUIET);
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = take(&lease, ask(Priority::Owner, 7)).await;
    let mut jobs = vec![queue(&lease, ask(Priority::Owner, 8), "other", &order)];
    tokio::task::yield_now().await;
    for name in ["same 1", "same 2", "same 3"] {
        jobs.push(queue(&lease, ask(Priority::Owner, 7), name, &order));
        tokio::task::yield_now().await;
    }
    drop(held);
    for job in jobs {
        job.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), ["same 1", "same 2", "other", "same 3"]);
}

#[tokio::test(start_paused = true)]
async fn a_ghost_keeps_the_slot_taken() {
    let lease = Lease::new(QUIET);
    let slot = take(&lease, ask(Priority::Owner, 1)).await;
    slot.release_after(Duration::from_millis(500));
    assert!(lease.is_busy());
    let start = Instant::now();
    drop(take(&lease, ask(Priority::Owner, 1)).await);
    assert_eq!(start.elapsed(), Duration::from_millis(500));
    assert!(!lease.is_busy());
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_told_and_shrinks_with_the_line() {
    let lease = Lease::new(QUIET);
    let first = take(&lease, ask(Priority::Owner, 1)).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let order = Arc::new(Mutex::new(Vec::new()));
    let second = queue(&lease, ask(Priority::Owner, 2), "second", &order);
    tokio::task::yield_now().await;
    let third = {
        let (lease, told) = (Arc::clone(&lease), Arc::clone(&told));
        tokio::spawn(async move {
            let note = |about: Duration| told.lock().unwrap().push(about.as_secs());
            lease.acquire(ask(Priority::Owner, 3), note).await.unwrap()
        })
    };
    tokio::task::yield_now().await;
    drop(first);
    second.await.unwrap();
    drop(third.await.unwrap());
    assert_eq!(*told.lock().unwrap(), [20, 10]);
}

#[tokio::test(start_paused = true)]
async fn leaving_the_line_lets_the_next_one_through() {
    let lease = Lease::new(QUIET);
    let held = take(&lease, ask(Priority::Owner, 1)).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let leaves = queue(&lease, ask(Priority::Owner, 2), "leaves", &order);
    let stays = queue(&lease, ask(Priority::Owner, 3), "stays", &order);
    tokio::task::yield_now().await;
    leaves.abort();
    let _ = leaves.await;
    drop(held);
    stays.await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["stays"]);
    assert_eq!(lease.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_line_refuses() {
    let lease = Lease::new(QUIET);
    let held = take(&lease, ask(Priority::Owner, 1)).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..limits::LEASE_WAITERS_MAX {
        std::mem::drop(queue(&lease, ask(Priority::Owner, 1), "waits", &order));
        tokio::task::yield_now().await;
    }
    assert_eq!(
        lease.acquire(ask(Priority::Owner, 1), |_| {}).await.err(),
        Some(Denied::Overloaded)
    );
    drop(held);
}

proptest! {
    /// Whoever comes, leaves or is preempted in whatever order: one holder at a time, nobody is
    /// forgotten, and no owner is ever behind somebody less important.
    #[test]
    fn one_holder_at_a_time_and_nobody_is_forgotten(
        jobs in proptest::collection::vec((0_u8..4, 0_u64..3, 0_u64..5, any::<bool>()), 1..25)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let lease = Lease::new(QUIET);
            let inside = Arc::new(AtomicUsize::new(0));
            let mut running = Vec::new();
            for (kind, conversation, start, leaves) in jobs {
                let priority = [Priority::Owner, Priority::OwnersJob, Priority::Reflection,
                    Priority::Curiosity][usize::from(kind)];
                let (lease, inside) = (Arc::clone(&lease), Arc::clone(&inside));
                running.push(tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(start)).await;
                    let wait = lease.acquire(ask(priority, conversation), |_| {});
                    let slot = if leaves {
                        match tokio::time::timeout(Duration::from_secs(2), wait).await {
                            Ok(slot) => slot.unwrap(),
                            Err(_) => return,
                        }
                    } else {
                        wait.await.unwrap()
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::select! {
                        () = slot.preempted().cancelled() => assert!(priority != Priority::Owner),
                        () = tokio::time::sleep(Duration::from_secs(3)) => {}
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    slot.release_after(Duration::from_millis(500));
                }));
            }
            for job in running {
                job.await.unwrap();
            }
            assert_eq!(lease.waiting(), 0);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn while_background_rests_none_is_let_in_none_waits_and_what_runs_gives_way() {
    let lease = Lease::new(Duration::ZERO);
    let running = take(&lease, ask(Priority::Curiosity, 1)).await;
    let waits = lease.acquire(ask(Priority::Reflection, 2), |_| {});
    tokio::pin!(waits);
    let early = tokio::time::timeout(Duration::from_millis(1), &mut waits).await;
    assert!(early.is_err(), "somebody holds the slot");
    lease.rest(true);
    assert!(running.preempted().is_cancelled());
    assert_eq!(waits.await.err(), Some(Denied::Resting));
    drop(running);
    let late = lease.acquire(ask(Priority::Curiosity, 3), |_| {}).await;
    assert_eq!(late.err(), Some(Denied::Resting));
    let owner = take(&lease, ask(Priority::Owner, 4)).await;
    assert!(!owner.preempted().is_cancelled(), "the owner is not concerned");
    drop(owner);
    lease.rest(false);
    drop(take(&lease, ask(Priority::Curiosity, 5)).await);
}
