//! The programs under measurement: started in a directory of their own, ended when dropped.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than any start that is worth a figure.
const READY_MAX: Duration = Duration::from_secs(30);

/// crayfish.
pub(crate) struct Daemon {
    child: Child,
    /// Where its HTTP interface listens.
    pub(crate) http: SocketAddr,
    /// From the start of the process to its `READY=1`.
    pub(crate) ready_after: Duration,
    _directory: TempDir,
}

impl Daemon {
    /// Starts it and waits for `READY=1`. `hailo_url` may be empty: then no model answers.
    pub(crate) fn start(program: &Path, hailo_url: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let http = free_address();
        let url = if hailo_url.is_empty() { "http://127.0.0.1:9" } else { hailo_url };
        let config = format!(
            "hardware:\n  hailo_ollama_url: {url}\n  cpu_fallback_url: http://127.0.0.1:9\n\
             web_chat:\n  port: {}\nlog:\n  level: error\n",
            http.port()
        );
        std::fs::write(at("config.yaml"), config).unwrap();
        let manager = UnixDatagram::bind(at("notify")).unwrap();
        manager.set_read_timeout(Some(READY_MAX)).unwrap();
        let began = Instant::now();
        let child = Command::new(program)
            .arg("run")
            .args(["--config".as_ref(), at("config.yaml").as_os_str()])
            .args(["--state".as_ref(), at("state").as_os_str()])
            .env("NOTIFY_SOCKET", at("notify"))
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut heard = [0; 4096];
        loop {
            let length = manager.recv(&mut heard).unwrap();
            let message = String::from_utf8_lossy(&heard[..length]).into_owned();
            if message.lines().any(|line| line == "READY=1") {
                break;
            }
        }
        Self { child, http, ready_after: began.elapsed(), _directory: directory }
    }

    /// Memory that is its own and present now.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib * 1024
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// hailo-sim.
pub(crate) struct Simulator {
    child: Child,
    /// Where it serves.
    pub(crate) address: SocketAddr,
}

impl Simulator {
    /// Starts it on free ports; it says them in its first line.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(["--port", "0", "--control-port", "0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.and_then(|address| address.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("no address in {line:?}")) }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// An address that was free just now. Whoever takes it in between makes the start fail loudly.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn end(child: &mut Child) {
    // It may have ended already; then there is nothing to do.
    let _ = child.kill();
    let _ = child.wait();
}
