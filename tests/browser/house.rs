//! The daemon and its model: started in a directory of their own, restarted and killed in it.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::Instant;

/// Longer than any start or end that is not a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the model says. The long one takes about ten seconds at the pace below.
const SCENARIO: &str = include_str!("scenario.json");

/// The daemon and hailo-sim.
pub(crate) struct House {
    directory: TempDir,
    sim: Child,
    daemon: Option<Child>,
    /// Where the page is.
    pub(crate) http: SocketAddr,
}

impl House {
    /// Starts both. `settings` is added to the section `web_chat`; the model decodes at `pace`.
    pub(crate) fn start(settings: &str, pace: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        // Words that do not repeat: a model that does is cut off.
        let count: Vec<_> = (1..=110).map(|n| format!("and on to {n}")).collect();
        let scenario = SCENARIO.replace("{COUNT}", &count.join(", "));
        std::fs::write(at("scenario.json"), scenario).unwrap();
        let mut sim = Command::new(program("hailo-sim"))
            .args(["--port", "0", "--control-port", "0", "--pace", pace, "--scenario"])
            .arg(at("scenario.json"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(sim.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        // Whoever takes the port in between makes the start fail loudly.
        let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = format!(
            "hardware:\n  hailo_ollama_url: http://{address}\n  \
             cpu_fallback_url: http://127.0.0.1:9\nweb_chat:\n  port: {}\n{settings}\
             log:\n  level: error\n",
            http.port()
        );
        std::fs::write(at("config.yaml"), config).unwrap();
        let mut house = Self { directory, sim, daemon: None, http };
        house.run();
        house
    }

    /// Starts the daemon on the state that is there, and waits until it listens.
    pub(crate) fn run(&mut self) {
        let at = |name: &str| self.directory.path().join(name);
        let daemon = Command::new(program("crayfish"))
            .arg("run")
            .args(["--config".as_ref(), at("config.yaml").as_os_str()])
            .args(["--state".as_ref(), at("state").as_os_str()])
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
        let began = Instant::now();
        while TcpStream::connect(self.http).is_err() {
            assert!(began.elapsed() < PATIENCE, "the daemon does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks the daemon to end, as a service manager does, and waits for it.
    pub(crate) fn stop(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
        assert!(daemon.wait().unwrap().success());
    }

    /// Kills it where it stands.
    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// The page's address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.http)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        for child in self.daemon.iter_mut().chain([&mut self.sim]) {
            // It may have ended already; then there is nothing to do.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program of this build.
fn program(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_crayfish")).with_file_name(name);
    assert!(
        path.exists(),
        "{name} is not built: cargo build --workspace --bins --features hailo/sim"
    );
    path
}
