//! Starts the tasks of the table, each with what it owns.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::beat;
use super::download::{self, Download};
use super::reload::{self, Reload};
use super::status;
use super::supervisor::Supervisor;
use super::systemd::watchdog_from_env;
use super::tasks;
use super::wiring::{Ground, House, PULSE, StartError};
use crate::agent::Converse;
use crate::agent::feelings::{self, Condition};
use crate::agent::service::AgentTask;
use crate::config::secrets::Secret;
use crate::config::sections::hardware::Backend;
use crate::config::sections::reserve::Fetch;
use crate::connector::terminal::{self, Socket};
use crate::http::access::Access;
use crate::http::server::{self, Service};
use crate::model::Shelf;
use crate::model::fetch::Order;
use crate::session::MAIN;
use crate::store::StoreTask;

/// Gives a listener that was bound before the start to the task's first run; a later run binds
/// its own.
fn once<T>(value: T) -> impl FnMut() -> Option<T> {
    let mut value = Some(value);
    move || value.take()
}

/// The database writer; it comes first, because closing interrupted turns needs it.
///
/// # Errors
/// `Stopping` during a drain.
pub(super) fn store(
    supervisor: &Supervisor,
    house: &House,
    task: StoreTask,
) -> Result<(), StartError> {
    let store = house.store.clone();
    supervisor.spawner().spawn_once(tasks::STORE, move |mut cx| async move {
        let prove = async {
            loop {
                cx.progress.asked().await;
                // Out of the queue and through the database: a hung disk stops it.
                if store.last_turn(MAIN).await.is_ok() {
                    cx.progress.tick();
                }
            }
        };
        tokio::select! {
            biased;
            ended = task.run(cx.stop.clone()) => ended,
            () = prove => Ok(()),
        }
    })?;
    Ok(())
}

/// The agent, and the recovery of backends.
///
/// # Errors
/// `Stopping` during a drain.
pub(super) fn work(
    supervisor: &Supervisor,
    house: &House,
    task: AgentTask,
) -> Result<(), StartError> {
    let agent = Arc::clone(&house.agent);
    supervisor.spawner().spawn_once(tasks::AGENT, move |mut cx| async move {
        let prove = async {
            loop {
                cx.progress.asked().await;
                agent.ping().await;
                cx.progress.tick();
            }
        };
        tokio::select! {
            biased;
            () = task.run(cx.stop.clone()) => Ok::<_, Infallible>(()),
            () = prove => Ok(()),
        }
    })?;
    let provider = Arc::clone(&house.provider);
    supervisor.spawn(tasks::RECOVERY, move |cx| {
        let provider = Arc::clone(&provider);
        async move {
            provider.recover(cx.stop).await;
            Ok::<_, Infallible>(())
        }
    })?;
    Ok(())
}

/// The HTTP door and the terminal's socket, already bound.
///
/// # Errors
/// `Stopping` during a drain.
pub(super) fn doors(
    supervisor: &Supervisor,
    house: &House,
    ground: &Ground,
    socket: Socket,
    listener: Option<(TcpListener, SocketAddr)>,
) -> Result<(), StartError> {
    let (config, path) = (&ground.loaded.config, ground.paths.socket());
    let converse: Arc<dyn Converse> = Arc::clone(&house.agent) as _;
    if let Some((listener, address)) = listener {
        let access = Access::new(
            address,
            &config.web_chat.allowed_hosts,
            config.web_chat.auth_token.as_ref().map(Secret::expose),
        )?;
        let service = Arc::new(Service {
            converse: Arc::clone(&converse),
            snapshot: house.reader.clone(),
            access,
        });
        let mut bound = once(listener);
        supervisor.spawn(tasks::HTTP, move |cx| {
            let (bound, service) = (bound(), Arc::clone(&service));
            async move {
                let listener = match bound {
                    Some(listener) => listener,
                    None => TcpListener::bind(address).await?,
                };
                server::serve(listener, service, cx.stop).await;
                Ok::<_, std::io::Error>(())
            }
        })?;
    }
    let reader = house.reader.clone();
    let mut bound = once(socket);
    supervisor.spawn(tasks::TERMINAL, move |cx| {
        let (bound, converse, reader) = (bound(), Arc::clone(&converse), reader.clone());
        let path = path.clone();
        async move {
            let socket = match bound {
                Some(socket) => socket,
                None => Socket::bind(&path)?,
            };
            terminal::serve(socket, converse, reader, cx.stop).await;
            Ok::<_, terminal::BindError>(())
        }
    })?;
    Ok(())
}

/// The status, the download, the reload and the beat.
///
/// # Errors
/// `Stopping` during a drain.
pub(super) fn keepers(
    supervisor: &Supervisor,
    ground: &Ground,
    house: &House,
    asked: Arc<Notify>,
) -> Result<(), StartError> {
    let sources = house.sources(&ground.loaded.config, ground.started);
    let (publisher, manager) = (Arc::clone(&house.publisher), Arc::clone(&ground.manager));
    supervisor.spawn(tasks::STATUS, move |cx| {
        let (sources, publisher) = (sources.clone(), Arc::clone(&publisher));
        let manager = Arc::clone(&manager);
        async move {
            status::run(sources, publisher, manager, cx.stop).await;
            Ok::<_, Infallible>(())
        }
    })?;
    let download = download(ground, house);
    supervisor.spawn(tasks::MODEL, move |cx| {
        let download = download.clone();
        async move {
            download::run(download, cx.stop).await;
            Ok::<_, Infallible>(())
        }
    })?;
    let reload = Reload {
        flag: ground.wish.config.clone(),
        loaded: Arc::new(Mutex::new(ground.loaded.clone())),
        agent: Arc::clone(&house.agent),
        identity: house.identity.clone(),
        level: ground.level.clone(),
        manager: Arc::clone(&ground.manager),
        events: house.events.clone(),
        asked,
    };
    supervisor.spawn(tasks::RELOAD, move |cx| {
        let reload = reload.clone();
        async move {
            reload::run(reload, cx.stop).await;
            Ok::<_, Infallible>(())
        }
    })?;
    mood(supervisor, house)?;
    #[cfg(all(feature = "gpio", target_arch = "aarch64"))]
    super::panel::start(supervisor, house, &ground.loaded.config.gpio)?;
    let manager = Arc::clone(&ground.manager);
    let watchdog = watchdog_from_env();
    beat::start(&supervisor.spawner(), PULSE, watchdog, manager)?;
    Ok(())
}

/// The mood. With `CRAYFISH_FORCE_STRESS=1` the body counts as stressed, so that the effects can be
/// tried on a cool machine.
fn mood(supervisor: &Supervisor, house: &House) -> Result<(), StartError> {
    let forced = std::env::var_os("CRAYFISH_FORCE_STRESS").is_some_and(|value| value == "1");
    house.agent.be_in(Condition { stressed: forced, brief: None });
    let (agent, events) = (Arc::clone(&house.agent), house.events.clone());
    supervisor.spawn(tasks::MOOD, move |cx| {
        feelings::keep(Arc::clone(&agent), PULSE, events.clone(), cx.stop)
    })?;
    Ok(())
}

/// A download of the reserve's model, if somebody allowed it beforehand.
fn download(ground: &Ground, house: &House) -> Option<Download> {
    let config = &ground.loaded.config;
    let may = match config.model.fetch {
        Fetch::Auto => true,
        Fetch::Ask | Fetch::Never => ground.wish.fetch,
    };
    let has_reserve = house.provider.has(Backend::Reserve.as_str());
    (may && has_reserve).then(|| Download {
        shelf: Shelf::of(&ground.paths.state),
        order: Order {
            url: config.model.url.as_str().to_owned(),
            sha256: config.model.sha256.clone(),
        },
        provider: Arc::clone(&house.provider),
        events: house.events.clone(),
        standing: house.standing.clone(),
    })
}
