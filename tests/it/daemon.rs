//! The real program as a process: started with a state directory of its own, heard through a fake
//! service manager and through its log, and gone when the test is over.
//!
//! Nothing waits for a fixed time: every wait is for a condition, with `PATIENCE` as its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long anything may take on a machine that does a lot beside the test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two looks at something that cannot be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How soon the thread that listens for notifications sees that the test is over.
const HEAR_SLICE: Duration = Duration::from_millis(20);

/// A place on loopback where nothing listens: connecting is refused at once.
const NOBODY: &str = "http://127.0.0.1:1";

/// A recorded machine that is well: the one that runs the test may be hot and busy.
const HEALTHY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/vitals/pi5-healthy");

/// Text that comes line by line, kept to be looked at and waited for.
#[derive(Clone, Default)]
pub(crate) struct Feed(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

impl Feed {
    fn push(&self, line: String) {
        self.0.0.lock().unwrap().lines.push(line);
        self.0.1.notify_all();
    }

    fn end(&self) {
        self.0.0.lock().unwrap().ended = true;
        self.0.1.notify_all();
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.0.lock().unwrap().lines.clone()
    }

    /// How many lines there are, as a place to wait from.
    pub(crate) fn len(&self) -> usize {
        self.0.0.lock().unwrap().lines.len()
    }

    /// Whether any line holds this.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.lines().iter().any(|line| line.contains(text))
    }

    /// Waits for a line from number `from` on that holds `text`; `None` if it does not come in
    /// time or no line can come any more.
    pub(crate) fn find(&self, from: usize, text: &str, limit: Duration) -> Option<String> {
        let until = Instant::now() + limit;
        let mut inner = self.0.0.lock().unwrap();
        loop {
            let fresh = inner.lines.iter().skip(from);
            if let Some(line) = fresh.into_iter().find(|line| line.contains(text)) {
                return Some(line.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || inner.ended {
                return None;
            }
            inner = self.0.1.wait_timeout(inner, left).unwrap().0;
        }
    }

    /// Waits for a line from number `from` on that holds `text`.
    #[track_caller]
    pub(crate) fn wait(&self, from: usize, text: &str) -> String {
        self.find(from, text, PATIENCE)
            .unwrap_or_else(|| panic!("no line with {text:?} in:\n{}", self.lines().join("\n")))
    }
}

/// What the program is started with.
pub(crate) struct Setup {
    dir: TempDir,
    state: PathBuf,
    config: PathBuf,
    keys: BTreeMap<String, BTreeMap<String, String>>,
    envs: BTreeMap<String, String>,
    /// Shell text before the program, for limits that it inherits.
    shell: Option<String>,
}

impl Setup {
    /// No model server anywhere, any free port, a state directory that does not exist yet.
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("cf").tempdir().unwrap();
        let state = dir.path().join("state");
        let config = dir.path().join("config.yaml");
        let setup =
            Self { dir, state, config, keys: BTreeMap::new(), envs: BTreeMap::new(), shell: None };
        setup
            .key("web_chat.port", "0")
            .key("hardware.hailo_ollama_url", NOBODY)
            .key("hardware.cpu_fallback_url", NOBODY)
            .key("vitals.root", HEALTHY)
    }

    /// With hailo-ollama here.
    pub(crate) fn on_hailo(addr: SocketAddr) -> Self {
        Self::new().key("hardware.hailo_ollama_url", &format!("http://{addr}"))
    }

    /// Sets a key of the configuration, written as in YAML.
    pub(crate) fn key(mut self, path: &str, value: &str) -> Self {
        let (section, key) = path.split_once('.').unwrap();
        let section = self.keys.entry(section.to_owned()).or_default();
        section.insert(key.to_owned(), value.to_owned());
        self.write(&self.text());
        self
    }

    /// Sets a variable of the environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.envs.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Runs this in a shell that then becomes the program.
    pub(crate) fn shell(mut self, text: &str) -> Self {
        self.shell = Some(text.to_owned());
        self
    }

    /// Uses another state directory.
    pub(crate) fn state_at(mut self, state: &Path) -> Self {
        state.clone_into(&mut self.state);
        self
    }

    /// The configuration as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (section, keys) in &self.keys {
            writeln!(text, "{section}:").unwrap();
            for (key, value) in keys {
                writeln!(text, "  {key}: {value}").unwrap();
            }
        }
        text
    }

    /// Puts another configuration in place, as an editor would.
    pub(crate) fn write(&self, text: &str) {
        let new = self.dir.path().join("config.new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &self.config).unwrap();
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    /// A directory beside the state, for whatever a test needs.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.state.join("crayfish.db")
    }

    /// The program with these arguments, in an environment that has nothing but ours.
    fn command(&self, args: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_crayfish");
        let mut command = match &self.shell {
            None => Command::new(program),
            Some(text) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{text}; exec \"$0\" \"$@\""), program]);
                shell
            }
        };
        command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.dir.path()).envs(&self.envs).current_dir(self.dir.path());
        command
    }

    /// Runs a verb to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Starts the daemon and does not wait for it.
    pub(crate) fn spawn(&self) -> Daemon {
        let (config, state) = (self.config.to_str().unwrap(), self.state.to_str().unwrap());
        self.spawn_with(&["run", "--config", config, "--state", state])
    }

    /// The same with other arguments.
    pub(crate) fn spawn_with(&self, args: &[&str]) -> Daemon {
        let place = self.dir.path().join("notify");
        let _ = std::fs::remove_file(&place);
        let socket = UnixDatagram::bind(&place).unwrap();
        socket.set_read_timeout(Some(HEAR_SLICE)).unwrap();
        let mut command = self.command(args);
        command.env("NOTIFY_SOCKET", &place);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Feed::default();
        let stderr = child.stderr.take().unwrap();
        let log_reader = std::thread::spawn({
            let log = log.clone();
            move || read_log(stderr, &log)
        });
        let notified = Feed::default();
        let enough = Arc::new(AtomicBool::new(false));
        let notify_reader = std::thread::spawn({
            let (notified, enough) = (notified.clone(), Arc::clone(&enough));
            move || read_notifications(&socket, &notified, &enough)
        });
        let threads = vec![log_reader, notify_reader];
        Daemon { child, enough, log, notified, port: 0, threads }
    }

    /// Starts the daemon and waits until it says that it serves.
    pub(crate) fn start(&self) -> Daemon {
        let mut daemon = self.spawn();
        daemon.wait_ready();
        daemon
    }
}

fn read_log(stderr: impl Read, log: &Feed) {
    let mut reader = BufReader::new(stderr);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).unwrap_or(0) > 0 {
        log.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        bytes.clear();
    }
    log.end();
}

fn read_notifications(socket: &UnixDatagram, notified: &Feed, enough: &AtomicBool) {
    let mut bytes = [0; 4096];
    while !enough.load(Ordering::Relaxed) {
        if let Ok(length) = socket.recv(&mut bytes) {
            notified.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
    }
    notified.end();
}

/// A running program.
pub(crate) struct Daemon {
    child: Child,
    enough: Arc<AtomicBool>,
    /// Lines of its log.
    pub(crate) log: Feed,
    /// Datagrams to the service manager, in their order.
    pub(crate) notified: Feed,
    /// Its HTTP port, once it is ready.
    pub(crate) port: u16,
    threads: Vec<JoinHandle<()>>,
}

impl Daemon {
    /// Waits for `READY=1`.
    #[track_caller]
    pub(crate) fn wait_ready(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.notified.find(0, "READY=1", Duration::from_millis(20)).is_none() {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < until,
                "not ready ({ended:?}):\n{}",
                self.log.lines().join("\n")
            );
        }
        let line = self.log.wait(0, "daemon.ready");
        self.port = line
            .split_once("http://127.0.0.1:")
            .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>())
            .map_or(0, |port| port.parse().unwrap());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// `kill -9`, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // What it said last is read before anybody looks at it.
                let _ = self.log.find(usize::MAX, "", PATIENCE);
                return status;
            }
            assert!(Instant::now() < until, "does not end:\n{}", self.log.lines().join("\n"));
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Asks it to stop and gives its exit code.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.wait_exit().code().expect("not ended by a signal")
    }

    /// Descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Everything it said, as one text.
    pub(crate) fn said(&self) -> String {
        self.log.lines().join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.enough.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if std::thread::panicking() {
            eprintln!("--- the daemon's log:\n{}\n---", self.said());
        }
    }
}

/// Waits until `found` gives something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
