//! Constructs the parts and connects them, in the order that `daemon` documents.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::net::TcpListener;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;

use super::alarm;
use super::backends::{self, Lends};
use super::download::Standing;
use super::exit::{self, Exit};
use super::log::{self, LogLevel};
use super::machine::{Machine, Notes};
use super::paths::{Env, PathError, Paths};
use super::reload::{self, settings};
use super::signals::Signals;
use super::starts;
use super::status::{self, Sources};
use super::supervisor::{Moment, Stopping, Supervisor};
use super::systemd::Manager;
use crate::agent::service::{Agent, AgentTask};
use crate::clock::{SystemClock, WallClock};
use crate::config::env::ProcessEnv;
use crate::config::sections::storage::JournalFsync;
use crate::config::{self, Config, Loaded};
use crate::connector::terminal::{self, Socket};
use crate::event::{Event, Events};
use crate::heartbeat::Alarm;
use crate::model::Shelf;
use crate::net::Http;
use crate::net::client::ReqwestHttp;
use crate::provider::Provider;
use crate::session::{MAIN, Sessions};
use crate::snapshot::body::Order;
use crate::snapshot::{self, Publisher, Reader, Room};
use crate::soul::{self, regions};
use crate::store::file::{self, InstanceLock, LockError};
use crate::store::medium::{Medium, Thread};
use crate::store::{self, Options, Store, StoreError, StoreTask};
use crate::vitals::{self, VitalsSource};

/// The file that says who the agent is, in the state directory.
const SOUL_FILE: &str = "soul.md";

/// Why the daemon does not start. The text names the place and the fix.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("{0}")]
    Config(#[from] config::ConfigError),
    #[error("{0}")]
    Path(#[from] PathError),
    #[error("{0}; stop it first, or give this one a directory of its own with --state")]
    Locked(LockError),
    #[error("{path}: {source}")]
    Unlockable { path: PathBuf, source: std::io::Error },
    #[error("the database cannot be used: {0}")]
    Store(#[from] StoreError),
    #[error("cannot listen on {address}: {source}; stop what listens there, or set web_chat.port")]
    Port { address: SocketAddr, source: std::io::Error },
    #[error("{0}")]
    Socket(#[from] terminal::BindError),
    #[error("web_chat: {0}")]
    Access(#[from] crate::http::access::AccessError),
    #[error("the system refuses {what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    #[error("stopped while starting")]
    Stopping(#[from] Stopping),
}

/// What `run` was asked for.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--state`.
    pub state: Option<PathBuf>,
    /// Whether the reserve's model may be fetched without asking, at this start.
    pub fetch: bool,
}

/// What stays the same for the whole life of the process.
pub(super) struct Ground {
    pub(super) wish: Wish,
    pub(super) loaded: Loaded,
    pub(super) paths: Paths,
    pub(super) level: Option<LogLevel>,
    pub(super) manager: Arc<Manager>,
    pub(super) started: Instant,
    /// Held, not read: the kernel frees it when the process ends, however it ends.
    pub(super) _lock: InstanceLock,
}

/// What is not of this house: everything undetermined comes in through here.
pub(super) struct Outside {
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) http: Arc<dyn Http>,
    pub(super) medium: Arc<dyn Medium>,
    pub(super) vitals: Box<dyn VitalsSource>,
    /// What wakes the heart.
    pub(super) alarm: Box<dyn Alarm>,
    /// Root of the file system that shows the machine: its memory, its devices.
    pub(super) machine: PathBuf,
    /// The models of the reserve; absent where there is none.
    pub(super) models: Option<Shelf>,
}

/// The parts of the house.
pub(super) struct House {
    pub(super) provider: Arc<Provider>,
    pub(super) store: Store,
    pub(super) sessions: Sessions,
    pub(super) agent: Arc<Agent>,
    pub(super) identity: String,
    pub(super) events: Events,
    pub(super) publisher: Arc<Publisher>,
    pub(super) reader: Reader,
    pub(super) room: Arc<ArcSwapOption<Room>>,
    pub(super) notices: Vec<String>,
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) vitals: Box<dyn VitalsSource>,
    pub(super) alarm: Box<dyn Alarm>,
    /// The governor's order, for whoever waits for a change of it.
    pub(super) order: watch::Sender<Order>,
    /// Everything told since the house was built, for the recorder.
    pub(super) happenings: broadcast::Receiver<Event>,
    /// How a download of the reserve's model is doing.
    pub(super) standing: Standing,
}

/// Runs the daemon to its end and gives the exit code.
#[must_use]
pub fn run(wish: Wish) -> u8 {
    let level = log::start(tracing::Level::INFO);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // SQLite needs one thread, name look-ups another; the rest is headroom for both.
        .max_blocking_threads(4)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(source) => return refuse(&StartError::System { what: "a runtime", source }),
    };
    let ended = runtime.block_on(Box::pin(live(wish, level)));
    // A blocking call that hangs in the kernel cannot be joined.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => {
            tracing::info!(event = "daemon.stopped", code = exit.code(), "stopped");
            exit.code()
        }
        Err(error) => refuse(&error),
    }
}

/// Says why there is no start: to the log, and to the person if the log goes elsewhere.
fn refuse(error: &StartError) -> u8 {
    let code = match error {
        StartError::Config(_) | StartError::Access(_) => exit::CONFIG,
        StartError::Path(error) => error.code(),
        StartError::Unlockable { .. } | StartError::Store(_) | StartError::Socket(_) => {
            exit::CANNOT_CREATE
        }
        StartError::Locked(_) | StartError::Port { .. } => exit::CANNOT_CREATE,
        StartError::System { .. } | StartError::Stopping(_) => exit::INTERNAL,
    };
    let _ = writeln!(std::io::stderr().lock(), "crayfish: {error}");
    code
}

/// From the configuration to the exit.
async fn live(wish: Wish, level: Option<LogLevel>) -> Result<Exit, StartError> {
    let started = Instant::now();
    let loaded = config::load(wish.config.as_deref(), &ProcessEnv)?;
    if let Some(level) = &level {
        level.set(loaded.config.log.level);
    }
    reload::log_warnings(&loaded);
    let paths = Paths::choose(&Env::read(wish.state.clone()))?;
    paths.prepare()?;
    let lock = lock(&paths)?;
    let manager = Arc::new(Manager::from_env());
    let ground = Ground { wish, loaded, paths, level, manager, started, _lock: lock };
    let config = Arc::clone(&ground.loaded.config);

    let (house, store_task, agent_task) = build(&ground, Outside::of_this_machine(&ground))?;
    let socket = Socket::bind(&ground.paths.socket())?;
    let listener = match config.web_chat.enabled {
        true => Some(listen(config.web_chat.address).await?),
        false => None,
    };
    // Port 0 has become a real one, to be told and to be kept if the door is opened again.
    let address = listener.as_ref().map(|(_, address)| *address);
    let signals =
        Signals::new().map_err(|source| StartError::System { what: "signal handlers", source })?;
    let supervisor = Supervisor::new(house.events.clone());
    let asked = Arc::new(Notify::new());
    starts::store(&supervisor, &house, store_task)?;
    recover(&house.sessions).await;
    starts::work(&supervisor, &house, agent_task)?;
    starts::doors(&supervisor, &house, &ground, socket, listener)?;
    announce(&ground, &house, address);
    starts::keepers(&supervisor, &ground, house, Arc::clone(&asked)).await?;

    let manager = Arc::clone(&ground.manager);
    let exit = supervisor
        .run(signals, |moment| match moment {
            Moment::Reload => asked.notify_one(),
            Moment::Stopping => {
                tracing::info!(event = "daemon.stopping", "stopping");
                manager.stopping("stopping");
            }
        })
        .await;
    Ok(exit)
}

pub(super) fn lock(paths: &Paths) -> Result<InstanceLock, StartError> {
    file::lock(&paths.state).map_err(|error| match error {
        LockError::Io { path, source } => StartError::Unlockable { path, source },
        held @ LockError::Held { .. } => StartError::Locked(held),
    })
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let refused = |source| StartError::Port { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

/// Builds everything; nothing runs yet.
pub(super) fn build(
    ground: &Ground,
    outside: Outside,
) -> Result<(House, StoreTask, AgentTask), StartError> {
    let config = &ground.loaded.config;
    let events = Events::default();
    let happenings = events.listen();
    let Outside { clock, http, medium, vitals, alarm, models, machine } = outside;
    let (soul, mut notices) = read_soul(&ground.paths.state);
    let options = Options {
        state_dir: ground.paths.state.clone(),
        fsync_always: config.storage.journal_fsync == JournalFsync::Always,
        idle_flush: config.system.idle_flush,
        pages_max: None,
    };
    // Heard before the status task exists: a damaged database is worth a notice.
    let mut early = events.listen();
    let (store, store_task) = Store::open_on(medium, options, Arc::clone(&clock), events.clone())?;
    while let Ok(event) = early.try_recv() {
        notices.extend(status::notice(&event));
    }
    let lends = Lends {
        machine: Arc::new(Machine { root: machine }),
        notes: Arc::new(Notes(store.clone())),
    };
    let engines = backends::engines(config, models.as_ref(), &http, &events, &lends);
    let provider = Provider::new(engines, events.clone());
    let identity = identity(config, &soul, &mut notices);
    let sessions = Sessions::new(store.clone(), Arc::clone(&clock));
    let (agent, agent_task) = Agent::new(
        Arc::clone(&provider),
        sessions.clone(),
        settings(config, &identity),
        Arc::clone(&clock),
        events.clone(),
    );
    let (publisher, reader) = snapshot::channel(snapshot::Snapshot::default());
    let publisher = Arc::new(publisher);
    let room = Arc::default();
    let house = House {
        provider,
        store,
        sessions,
        agent,
        identity,
        events,
        publisher,
        reader,
        room,
        notices,
        clock,
        vitals,
        alarm,
        order: watch::channel(Order::default()).0,
        happenings,
        standing: Standing::default(),
    };
    house.publisher.publish(house.sources(config, ground.started).snapshot(&house.notices));
    Ok((house, store_task, agent_task))
}

/// Reads the soul; a first start writes the shipped one for its owner to edit.
fn read_soul(state: &Path) -> (regions::Soul, Vec<String>) {
    let path = state.join(SOUL_FILE);
    let first_start = !path.exists() && !state.join(store::FILE_NAME).exists();
    if first_start && let Err(error) = file::replace_atomically(&path, regions::BUILT_IN.as_bytes())
    {
        tracing::warn!(path = %path.display(), %error, "the shipped soul could not be written");
    }
    let soul::Loaded { soul, notice } = soul::load(&path);
    (soul, notice.into_iter().collect())
}

/// The identity block, byte-identical until the next start.
fn identity(config: &Config, soul: &regions::Soul, notices: &mut Vec<String>) -> String {
    let system = &config.system;
    let operator = match system.architect_honorific.as_str() {
        "" => system.architect_name.clone(),
        honorific => format!("{honorific} {}", system.architect_name),
    };
    let block = regions::identity_block(soul, &system.individual_designation, &operator);
    notices.extend(block.notices);
    block.text
}

/// Closes what a crash left open. A store that cannot be read does not keep the daemon down.
pub(super) async fn recover(sessions: &Sessions) {
    match sessions.recover().await {
        Ok(0) => {}
        Ok(turns) => tracing::info!(event = "session.recovered", turns, "closed interrupted turns"),
        Err(error) => tracing::error!(%error, "interrupted turns could not be closed"),
    }
    if let Err(error) = sessions.open(MAIN).await {
        tracing::error!(%error, "the main conversation could not be read");
    }
}

/// Tells everybody that the daemon serves.
fn announce(ground: &Ground, house: &House, address: Option<SocketAddr>) {
    for notice in &house.notices {
        tracing::warn!(event = "daemon.notice", "{notice}");
    }
    let address = address.map_or_else(|| "none".to_owned(), |bound| format!("http://{bound}"));
    tracing::info!(
        event = "daemon.ready",
        http = address,
        socket = %ground.paths.socket().display(),
        state = %ground.paths.state.display(),
        backends = house.provider.names().join(" "),
        after_ms = u64::try_from(ground.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "ready"
    );
    ground.manager.ready(&status::status_line(&house.reader.load()));
}

impl Outside {
    fn of_this_machine(ground: &Ground) -> Self {
        let root = &ground.loaded.config.vitals.root;
        Self {
            clock: Arc::new(SystemClock),
            http: Arc::new(ReqwestHttp::new()),
            medium: Arc::new(Thread),
            vitals: Box::new(vitals::Reader::new(root, &ground.paths.state)),
            alarm: alarm::alarm(),
            machine: PathBuf::from("/"),
            models: Some(Shelf::of(&ground.paths.state)),
        }
    }
}

impl House {
    /// What the snapshot is made of.
    pub(super) fn sources(&self, config: &Config, started: Instant) -> Sources {
        Sources {
            designation: config.system.individual_designation.clone(),
            started,
            provider: Arc::clone(&self.provider),
            agent: Arc::clone(&self.agent),
            store: self.store.clone(),
            room: Arc::clone(&self.room),
            standing: self.standing.clone(),
        }
    }
}
