//! The daemon for the simulation: the same parts in the same order as in `wiring`, with an outside
//! that is handed in, and without the doors that need sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::Stream;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::exit::Exit;
use super::paths::Paths;
use super::signals::Signal;
use super::starts;
use super::supervisor::{Moment, Supervisor};
use super::systemd::Manager;
use super::wiring::{self, Ground, House, Outside, StartError, Wish};
use crate::agent::service::Agent;
use crate::clock::WallClock;
use crate::config::{self, env::FixedEnv};
use crate::event::Events;
use crate::net::Http;
use crate::provider::Provider;
use crate::session::Sessions;
use crate::snapshot::Reader;
use crate::store::Store;
use crate::store::medium::Medium;

/// The world around the daemon.
pub(crate) struct World {
    pub(crate) clock: Arc<dyn WallClock>,
    pub(crate) http: Arc<dyn Http>,
    pub(crate) medium: Arc<dyn Medium>,
    /// Root of the files that show the machine.
    pub(crate) machine: PathBuf,
}

/// A daemon that was started.
pub(crate) struct Running {
    pub(crate) provider: Arc<Provider>,
    pub(crate) store: Store,
    pub(crate) sessions: Sessions,
    pub(crate) agent: Arc<Agent>,
    pub(crate) identity: String,
    pub(crate) events: Events,
    pub(crate) reader: Reader,
    pub(crate) deadline: std::time::Duration,
    supervisor: Supervisor,
    asked: Arc<Notify>,
    /// The instance lock is in it.
    _ground: Ground,
}

/// Starts the daemon on a state directory, with the `config.yaml` in it.
///
/// # Errors
/// The sentence with which the daemon would have refused.
pub(crate) async fn start(state: &Path, world: World) -> Result<Running, String> {
    begin(state, world).await.map_err(|error| error.to_string())
}

async fn begin(state: &Path, world: World) -> Result<Running, StartError> {
    let file = state.join("config.yaml");
    let mut loaded = config::load(Some(&file), &FixedEnv::default())?;
    // Its changes are told by the kernel, in real time.
    loaded.path = None;
    let paths = Paths { state: state.to_owned(), runtime: state.join("run") };
    let lock = wiring::lock(&paths)?;
    let wish = Wish { config: Some(file), ..Wish::default() };
    let manager = Arc::new(Manager::absent());
    let ground =
        Ground { wish, loaded, paths, level: None, manager, started: Instant::now(), _lock: lock };
    let World { clock, http, medium, machine } = world;
    // Its threads would be real ones, outside of the paused clock.
    let outside = Outside { clock, http, medium, models: None, machine };
    let (house, store_task, agent_task) = wiring::build(&ground, outside)?;
    let supervisor = Supervisor::new(house.events.clone());
    let asked = Arc::new(Notify::new());
    starts::store(&supervisor, &house, store_task)?;
    wiring::recover(&house.sessions).await;
    starts::work(&supervisor, &house, agent_task)?;
    starts::keepers(&supervisor, &ground, &house, Arc::clone(&asked))?;
    let deadline = super::reload::settings(&ground.loaded.config, "").deadline;
    let House { provider, store, sessions, agent, identity, events, reader, .. } = house;
    Ok(Running {
        provider,
        store,
        sessions,
        agent,
        identity,
        events,
        reader,
        deadline,
        supervisor,
        asked,
        _ground: ground,
    })
}

impl Running {
    /// Runs until a stop is asked for or a critical task ends, as `wiring` does.
    pub(crate) fn run(self, signals: mpsc::Receiver<Signal>) -> impl Future<Output = Exit> {
        let Self { supervisor, asked, _ground: ground, .. } = self;
        async move {
            let exit = supervisor
                .run(stream(signals), |moment| match moment {
                    Moment::Reload => asked.notify_one(),
                    Moment::Stopping => {}
                })
                .await;
            drop(ground);
            exit
        }
    }
}

fn stream(mut signals: mpsc::Receiver<Signal>) -> impl Stream<Item = Signal> + Unpin {
    futures_util::stream::poll_fn(move |cx| signals.poll_recv(cx))
}
