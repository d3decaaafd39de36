//! Process life: from the first log line to the exit code. The only place that constructs the
//! parts and connects them.
//!
//! # Start
//! 1. `log` takes over stderr and panics; a provisional level until the configuration is read.
//! 2. `config` is loaded and checked; an invalid core refuses with every problem, code 78.
//! 3. `paths` chooses and makes the directories (73, 77); the instance lock is taken.
//! 4. `store` opens the database, or sets a damaged one aside, and closes interrupted turns.
//! 5. The provider, sessions, soul and agent are built; nothing of them runs yet.
//! 6. The listeners are bound: a port in use is a clear end before anything was promised.
//! 7. The tasks are spawned, `READY=1` is sent, `Supervisor::run` takes the rest.
//!
//! No model needs to answer for `READY=1`: the status line says when inference is offline.
//!
//! # Tasks
//! `tasks` holds the rows as data; a test compares them with this table, and `tests/tidy.rs`
//! compares the table with README.
//!
//! | task | owns | wakes on | if it ends or panics | drain | time to end |
//! |---|---|---|---|---|---|
//! | reload | watch on config.yaml | change, SIGHUP | restarts | 2 | 1 s |
//! | http | listener, connections | accept, bytes | restarts | 2 | 8 s |
//! | terminal | unix socket, clients | accept, lines | restarts | 2 | 8 s |
//! | agent | turns | messages | process exits with 70 | 2 | 8 s |
//! | recovery | probes, warm-up | timer, open breakers | restarts | 2 | 1 s |
//! | model | a download of the reserve's model | timer | restarts | 2 | 1 s |
//! | heartbeat | body, snapshot, watchdog | timer, messages | process exits with 70 | 4 | 1 s |
//! | mood | the mood | nudges, timer under stress | restarts | 5 | 1 s |
//! | record | feed of happenings | happenings, once a day | restarts | 5 | 1 s |
//! | panel | light, button, sensors, where there are some | edges, timer | restarts | 5 | 1 s |
//! | store | database | jobs | process exits with 70 | 6 | 5 s |
//!
//! # Drain
//! SIGTERM or SIGINT, or the end of a critical task: `STOPPING=1`, then the orders of the table
//! one after the other, each task cancelled and given its time, then dropped; all within
//! `limits::DRAIN_MAX`. Code 0; 70 if a critical task ended; 75 if a task had to be dropped; 130
//! on a second signal, at once. The runtime is left with `shutdown_background`, because a call
//! that hangs in the kernel cannot be joined.
//!
//! # Watchdog
//! Critical tasks tick their `Progress`; `heartbeat` feeds the service manager only after all of
//! them moved since the last look. The agent and the store prove it by an answer out of their
//! queues; the store gives none while a call to the disk hangs.

mod alarm;
mod backends;
mod download;
pub mod exit;
pub mod log;
mod machine;
#[cfg(all(feature = "gpio", target_arch = "aarch64"))]
mod panel;
pub mod paths;
mod record;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod rehearsal;
mod reload;
mod restart;
pub mod signals;
mod starts;
mod status;
pub mod supervisor;
pub mod systemd;
pub mod tasks;
mod vitals_file;
mod watch;
mod wiring;

pub use self::wiring::{Wish, run};
