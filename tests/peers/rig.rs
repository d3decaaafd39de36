//! The programs of a test: crayfish, a llama.cpp server of its own, hailo-sim. Each is ended when
//! its value is dropped.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::wire;

/// The model's name, as the servers know it.
pub(crate) const MODEL: &str = "smollm2:135m";

/// Longer than any wait that ends well on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What `tests/peers/run` says in the environment.
#[track_caller]
pub(crate) fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: bash tests/peers/run"))
}

/// The shared llama.cpp server.
pub(crate) fn llama() -> SocketAddr {
    told("PEERS_LLAMA").parse().unwrap()
}

/// The proxy before it that speaks Ollama.
pub(crate) fn ollama() -> SocketAddr {
    told("PEERS_OLLAMA").parse().unwrap()
}

/// Waits until a look finds what is waited for.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// An address that was free just now.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The one slot of a llama.cpp server: whether it works, its last prompt and what it generated.
pub(crate) fn slot(server: SocketAddr) -> Value {
    let (status, slots) = wire::get(server, "/slots");
    assert_eq!(status, 200, "{slots}");
    slots[0].clone()
}

pub(crate) fn is_working(server: SocketAddr) -> bool {
    slot(server)["is_processing"] == json!(true)
}

/// What the daemon of a test is told.
pub(crate) struct Plan<'a> {
    /// `openai`, `ollama` or `hailo`.
    pub(crate) primary: &'a str,
    /// The server with OpenAI's interface.
    pub(crate) openai: SocketAddr,
    /// Its context.
    pub(crate) context_tokens: u32,
    /// The server that speaks Ollama.
    pub(crate) ollama: SocketAddr,
    /// The model asked of it.
    pub(crate) ollama_model: &'a str,
    /// The server that speaks hailo-ollama; nobody by default.
    pub(crate) hailo: SocketAddr,
    /// Longest answer.
    pub(crate) answer_tokens_max: u32,
    /// Whether the reserve stands behind the servers.
    pub(crate) reserve: bool,
    /// Whether the body is under stress, come what may.
    pub(crate) stressed: bool,
}

impl Plan<'_> {
    /// The shared servers, and answers of at most so many tokens.
    pub(crate) fn of(primary: &str, answer_tokens_max: u32) -> Plan<'_> {
        Plan {
            primary,
            openai: llama(),
            context_tokens: 2048,
            ollama: ollama(),
            ollama_model: MODEL,
            hailo: SocketAddr::from(([127, 0, 0, 1], 9)),
            answer_tokens_max,
            reserve: false,
            stressed: false,
        }
    }

    /// No server that answers: only the reserve, in the program that ships. It gives way at once.
    pub(crate) fn alone() -> Plan<'static> {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
        Plan { openai: nobody, ollama: nobody, reserve: true, ..Plan::of("openai", 320) }
    }

    fn program(&self) -> PathBuf {
        if self.reserve { told("PEERS_RELEASE").into() } else { program().to_owned() }
    }

    /// The machine's own load changes no answer.
    /// Backends that failed are tried again after moments, not after seconds.
    fn config(&self, http: SocketAddr) -> String {
        let Self { primary, openai, context_tokens, ollama, ollama_model, hailo, .. } = self;
        let fallback = if *primary == "ollama" { "" } else { "  fallback_backend: ollama\n" };
        format!(
            "hardware:\n  primary_backend: {primary}\n{fallback}\
             \x20 hailo_ollama_url: http://{hailo}\n\
             \x20 cpu_fallback_url: http://{ollama}\n  cpu_fallback_model: \"{ollama_model}\"\n\
             \x20 cpu_context_tokens: {context_tokens}\n\
             openai:\n  url: http://{openai}/v1\n  model: \"{MODEL}\"\n\
             \x20 context_tokens: {context_tokens}\n\
             web_chat:\n  port: {}\n\
             agent:\n  answer_tokens_max: {}\n  temperature: 0\n\
             governor:\n  enabled: false\n\
             provider:\n  breaker_open_for_s: 0.2\n  breaker_open_max_s: 1\n\
             reserve:\n  enabled: {}\n  unload_after_s: 1\n",
            http.port(),
            self.answer_tokens_max,
            self.reserve,
        )
    }
}

/// crayfish.
pub(crate) struct Daemon {
    child: Child,
    directory: TempDir,
    pub(crate) http: SocketAddr,
}

impl Daemon {
    /// Starts it and waits until a model can answer.
    pub(crate) fn online(plan: &Plan<'_>) -> Self {
        let daemon = Self::start(plan);
        until("a model can answer", || (daemon.state()["online"] == json!(true)).then_some(()));
        daemon
    }

    /// Starts it with the reserve's model and waits until it serves.
    pub(crate) fn with_model(plan: &Plan<'_>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        put_model(&directory.path().join("state"));
        Self::start_in(plan, directory)
    }

    /// Starts it and waits until it serves.
    pub(crate) fn start(plan: &Plan<'_>) -> Self {
        Self::start_in(plan, tempfile::tempdir().unwrap())
    }

    fn start_in(plan: &Plan<'_>, directory: TempDir) -> Self {
        let http = free_address();
        let config = directory.path().join("config.yaml");
        std::fs::write(&config, plan.config(http)).unwrap();
        let child = Command::new(plan.program())
            .arg("run")
            .args(["--config".as_ref(), config.as_os_str()])
            .args(["--state".as_ref(), directory.path().join("state").as_os_str()])
            .envs(plan.stressed.then_some(("CRAYFISH_FORCE_STRESS", "1")))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut daemon = Self { child, directory, http };
        until("the daemon serves", || {
            if let Some(status) = daemon.child.try_wait().unwrap() {
                panic!("the daemon ended: {status}");
            }
            std::net::TcpStream::connect(http).ok()
        });
        daemon
    }

    /// `GET /state`.
    pub(crate) fn state(&self) -> Value {
        let (status, state) = wire::get(self.http, "/state");
        assert_eq!(status, 200, "{state}");
        state
    }

    /// The lines of a conversation, oldest first.
    pub(crate) fn history(&self, session: &str) -> Vec<Value> {
        let (status, told) = wire::get(self.http, &format!("/history?session={session}"));
        assert_eq!(status, 200, "{told}");
        told["turns"].as_array().unwrap().clone()
    }

    /// `crayfish ask` at this daemon, not started yet.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("ask").arg("--state").arg(self.state_directory()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Memory that is present now, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Puts the reserve's model where the daemon looks for it.
    pub(crate) fn put_model(&self) {
        put_model(&self.state_directory());
    }

    /// The terminal's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.state_directory().join("run/crayfish.sock")
    }

    fn state_directory(&self) -> PathBuf {
        self.directory.path().join("state")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A llama.cpp server that a test may kill.
pub(crate) struct Llama {
    child: Child,
    address: SocketAddr,
}

impl Llama {
    /// Starts it and waits until the model is loaded.
    pub(crate) fn start(address: SocketAddr) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/serve.py");
        let mut child = Command::new(told("PEERS_PYTHON"))
            .arg(script)
            .arg(address.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = format!("ready {}", address.port());
        assert!(lines.any(|line| line.unwrap() == ready), "the server ended before it was ready");
        Self { child, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(mut self) {
        end(&mut self.child);
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// hailo-sim.
pub(crate) struct Simulator {
    child: Child,
    pub(crate) address: SocketAddr,
    control: SocketAddr,
}

impl Simulator {
    /// Starts it with these arguments; it says its ports in its first line.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(program().with_file_name("hailo-sim"))
            .args(["--port", "0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut addresses = line.split("http://").skip(1).map(|rest| {
            rest.split_whitespace().next().and_then(|address| address.parse().ok()).unwrap()
        });
        let (address, control) = (addresses.next().unwrap(), addresses.next().unwrap());
        Self { child, address, control }
    }

    /// All that happened, oldest first.
    pub(crate) fn log(&self) -> Vec<Value> {
        let (status, log) = wire::get(self.control, "/__sim/log");
        assert_eq!(status, 200, "{log}");
        log.as_array().unwrap().clone()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The weights of the rig, under the name of a model of a daemon with this state directory.
fn put_model(state: &Path) {
    let models = state.join("models");
    std::fs::create_dir_all(&models).unwrap();
    std::os::unix::fs::symlink(told("PEERS_MODEL"), models.join("smollm2.gguf")).unwrap();
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_crayfish"))
}

fn end(child: &mut Child) {
    // It may have ended already; then there is nothing to do.
    let _ = child.kill();
    let _ = child.wait();
}
