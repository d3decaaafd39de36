//! The programs under measurement: started in a directory of their own, ended when dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::wire::{self, Wire};

/// Longer than any start that is worth a figure.
const READY_MAX: Duration = Duration::from_secs(30);

/// Pause between two looks at the daemon's state.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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
    /// Starts it and waits for `READY=1`. The machine's own load changes no answer.
    /// Without a model server no model answers.
    pub(crate) fn start(program: &Path, hailo: Option<SocketAddr>) -> Self {
        Self::start_with(program, hailo, "")
    }

    /// The same with more sections of the configuration.
    pub(crate) fn start_with(program: &Path, hailo: Option<SocketAddr>, sections: &str) -> Self {
        let sections = format!("{sections}reserve:\n  threads: 2\n");
        Self::start_in(tempfile::tempdir().unwrap(), program, hailo, &sections)
    }

    /// Starts it with a model for the reserve, and no server.
    pub(crate) fn with_model(program: &Path, model: &Path, threads: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let models = directory.path().join("state/models");
        std::fs::create_dir_all(&models).unwrap();
        std::os::unix::fs::symlink(model, models.join("model.gguf")).unwrap();
        Self::start_in(directory, program, None, &format!("reserve:\n  threads: {threads}\n"))
    }

    fn start_in(
        directory: TempDir,
        program: &Path,
        hailo: Option<SocketAddr>,
        sections: &str,
    ) -> Self {
        let at = |name: &str| directory.path().join(name);
        let http = free_address();
        // Nobody listens on the port for discarding.
        let hailo = hailo.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 9)));
        let config = format!(
            "hardware:\n  hailo_ollama_url: http://{hailo}\n  cpu_fallback_url: http://127.0.0.1:9\n\
             web_chat:\n  port: {}\ngovernor:\n  enabled: false\n{sections}log:\n  level: error\n",
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

    /// Waits until the model is loaded and could answer, as `GET /state` tells it.
    pub(crate) fn until_online(&self, longest: Duration) {
        let deadline = Instant::now() + longest;
        while !Wire::new(self.http).exchange(&wire::get("/state")).contains("\"online\":true") {
            assert!(Instant::now() < deadline, "no model within {longest:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until it holds a model of so many bytes and grows no more; gives what it holds.
    pub(crate) fn until_loaded(&self, model_bytes: u64, longest: Duration) -> u64 {
        let deadline = Instant::now() + longest;
        let mut before = 0;
        loop {
            let now = self.resident_bytes();
            if now > model_bytes && now == before {
                return now;
            }
            assert!(Instant::now() < deadline, "not loaded within {longest:?}: {now} bytes");
            before = now;
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Time on a processor, of all its threads, since its start.
    pub(crate) fn cpu(&self) -> Duration {
        let threads = self.threads("schedstat");
        let nanos = threads.values().map(|text| {
            text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap()
        });
        Duration::from_nanos(nanos.sum())
    }

    /// How often each of its threads has gone to sleep, and so was woken.
    pub(crate) fn wakeups(&self) -> BTreeMap<OsString, u64> {
        let threads = self.threads("status").into_iter();
        let counts = threads.map(|(thread, text)| {
            let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            (thread, line.unwrap().trim().parse().unwrap())
        });
        counts.collect()
    }

    /// Bytes it has caused to be written to a disk.
    pub(crate) fn written_bytes(&self) -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.child.id())).unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
        line.parse().unwrap()
    }

    /// Beats of its heart.
    pub(crate) fn beats(&self) -> u64 {
        let answer = Wire::new(self.http).exchange(&wire::get("/state"));
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let state: Value = serde_json::from_str(body).unwrap();
        state["body"]["counters"]["pulses"].as_u64().unwrap()
    }

    /// A file of `/proc` of each thread.
    fn threads(&self, file: &str) -> BTreeMap<OsString, String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        // A thread may end between the two looks.
        let texts = tasks.filter_map(|task| {
            let task = task.ok()?;
            Some((task.file_name(), std::fs::read_to_string(task.path().join(file)).ok()?))
        });
        texts.collect()
    }

    /// The process's id.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Memory that is present now, its own and that of its files.
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
    control: SocketAddr,
    _directory: TempDir,
}

impl Simulator {
    /// Starts it on free ports, which it says in its first line, with a pace and a scenario.
    pub(crate) fn start(program: &Path, pace: &str, scenario: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("scenario.json");
        std::fs::write(&script, scenario).unwrap();
        let mut child = Command::new(program)
            .args(["--port", "0", "--control-port", "0", "--pace", pace, "--scenario"])
            .arg(script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut said = line.split("http://").skip(1).map(|rest| {
            let address = rest.split_whitespace().next().and_then(|word| word.parse().ok());
            address.unwrap_or_else(|| panic!("no address in {line:?}"))
        });
        let (address, control) = (said.next().unwrap(), said.next().unwrap());
        Self { child, address, control, _directory: directory }
    }

    /// Its log, oldest entry first.
    pub(crate) fn log(&self) -> Value {
        let answer = Wire::new(self.control).exchange(&wire::get("/__sim/log"));
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// An address that was free just now. Whoever takes it in between makes the start fail loudly.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(crate) fn end(child: &mut Child) {
    // It may have ended already; then there is nothing to do.
    let _ = child.kill();
    let _ = child.wait();
}
