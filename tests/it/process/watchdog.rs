//! The service manager's watchdog.

use std::time::Duration;

use super::quick_hailo;
use crate::client::say;
use crate::daemon::Setup;

/// What the service manager asks for here, in microseconds; the daemon beats three times in it.
const WATCHDOG_US: u64 = 600_000;

#[test]
fn the_watchdog_is_fed_while_all_is_well() {
    let setup = Setup::new().env("WATCHDOG_USEC", &WATCHDOG_US.to_string());
    let mut daemon = setup.start();
    for _ in 0..4 {
        daemon.notified.wait(daemon.notified.len(), "WATCHDOG=1");
    }
    assert_eq!(daemon.stop(), 0);
}

/// The hang is a real one: another program holds the database's write lock, so the writer sits in
/// a call that waits for it, and nothing comes out of its queue meanwhile.
#[test]
fn a_database_that_hangs_starves_the_watchdog_and_feeds_it_again_when_it_moves() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr()).env("WATCHDOG_USEC", &WATCHDOG_US.to_string());
    let mut daemon = setup.start();
    let other = rusqlite::Connection::open(setup.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let logged = daemon.log.len();
    let port = daemon.port;
    let person = std::thread::spawn(move || say(port, "main", "hello"));
    let line = daemon.log.wait(logged, "beat.stuck");
    assert!(line.contains("store"), "{line}");
    let silence = Duration::from_micros(WATCHDOG_US);
    assert!(
        daemon.notified.find(daemon.notified.len(), "WATCHDOG=1", silence).is_none(),
        "a store that hangs must not be fed for"
    );
    other.execute_batch("ROLLBACK").unwrap();
    daemon.log.wait(logged, "beat.moving");
    daemon.notified.wait(daemon.notified.len(), "WATCHDOG=1");
    assert_eq!(person.join().unwrap().status, 200);
    assert_eq!(daemon.stop(), 0);
}
