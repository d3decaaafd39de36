//! What the service manager is told, by datagrams to `$NOTIFY_SOCKET`, as `sd_notify(3)` and
//! `systemd.service(5)` describe them. Without the variable everything here does nothing.
//!
//! # Invariants
//! - Nothing here fails the daemon or waits: the socket does not block, and a datagram that cannot
//!   be sent is logged and forgotten.
//!
//! # Absences
//! - No timer. Who feeds the watchdog is the beat, which has looked before.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Longest status text, in characters: `systemctl status` shows one line of it.
const STATUS_CHARS_MAX: usize = 200;

/// The way to the service manager, or to nobody.
#[derive(Debug, Default)]
pub struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// Nobody: for a start from a shell and for the simulation.
    #[must_use]
    pub fn absent() -> Self {
        Self(None)
    }

    /// The manager that `$NOTIFY_SOCKET` names, if it does.
    #[must_use]
    pub fn from_env() -> Self {
        let Some(place) = std::env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty())
        else {
            return Self::absent();
        };
        Self::at(&place).unwrap_or_else(|error| {
            tracing::warn!(?place, %error, "NOTIFY_SOCKET cannot be used; nobody is notified");
            Self::absent()
        })
    }

    /// The manager at `place`: a path, or `@name` in the abstract namespace.
    ///
    /// # Errors
    /// The address is not one, or there are no descriptors left.
    pub fn at(place: &OsStr) -> io::Result<Self> {
        let address = match place.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(place)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self(Some((socket, address))))
    }

    /// The daemon serves; also ends a reload.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The line under `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// The daemon is alive. Only for the beat, and only when it found that true.
    pub fn feed_watchdog(&self) {
        self.send("WATCHDOG=1");
    }

    /// A reload begins; `ready` must follow. The time tells the manager which SIGHUP is meant.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The drain begins.
    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(message, %error, "the service manager was not reached");
        }
    }
}

/// How often the manager wants to be fed, if it does and means this process.
#[must_use]
pub fn watchdog_from_env() -> Option<Duration> {
    let var = |name| std::env::var(name).ok();
    watchdog(var("WATCHDOG_USEC").as_deref(), var("WATCHDOG_PID").as_deref(), std::process::id())
}

/// `WATCHDOG_USEC` counts unless `WATCHDOG_PID` names another process, whose child this is.
fn watchdog(micros: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own_pid)) {
        return None;
    }
    let micros: u64 = micros?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// A line break would start another assignment: a status quotes servers, which may say anything.
fn one_line(status: &str) -> String {
    status.chars().map(|c| if c.is_control() { ' ' } else { c }).take(STATUS_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1024];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_hears_each_state_in_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let manager = Manager::at(path.as_os_str()).unwrap();
        manager.ready("hailo answers");
        assert_eq!(heard(&socket), "READY=1\nSTATUS=hailo answers");
        manager.status("bad\nMAINPID=1");
        assert_eq!(heard(&socket), "STATUS=bad MAINPID=1");
        manager.feed_watchdog();
        assert_eq!(heard(&socket), "WATCHDOG=1");
        manager.reloading();
        let reloading = heard(&socket);
        let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0, "{micros}");
        manager.stopping("draining");
        assert_eq!(heard(&socket), "STOPPING=1\nSTATUS=draining");
        manager.status(&"ä".repeat(300));
        assert_eq!(heard(&socket), format!("STATUS={}", "ä".repeat(STATUS_CHARS_MAX)));
    }

    #[test]
    fn an_abstract_socket_is_reached_by_its_at_sign() {
        let name = format!("crayfish-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Manager::at(OsStr::new(&format!("@{name}"))).unwrap().feed_watchdog();
        assert_eq!(heard(&socket), "WATCHDOG=1");
    }

    #[test]
    fn a_manager_that_is_gone_or_full_costs_nothing() {
        Manager::absent().ready("x");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = Manager::at(path.as_os_str()).unwrap();
        // Nobody reads; the queue of a datagram socket holds a few hundred.
        for _ in 0..2_000 {
            manager.feed_watchdog();
        }
        drop(socket);
        manager.ready("x");
    }

    #[test]
    fn the_watchdog_counts_for_the_process_it_names() {
        let table = [
            (Some("3000000"), None, Some(3_000)),
            (Some("3000000"), Some("7"), Some(3_000)),
            (Some("3000000"), Some("8"), None),
            (Some("3000000"), Some(""), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, Some("7"), None),
        ];
        for (micros, pid, millis) in table {
            let expected = millis.map(Duration::from_millis);
            assert_eq!(watchdog(micros, pid, 7), expected, "{micros:?} {pid:?}");
        }
    }
}
