//! Starts the tasks of the table, each with what it owns.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use jiff::civil;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;

use super::download::{self, Download};
use super::record::{self, Recorder};
use super::reload::{self, Reload};
use super::status::{Heard, Surroundings, last_night};
use super::supervisor::Supervisor;
use super::systemd::watchdog_from_env;
use super::tasks;
use super::vitals_file::VitalsFile;
use super::wiring::{Ground, House, StartError};
use crate::agent::Converse;
use crate::agent::feelings;
use crate::agent::service::AgentTask;
use crate::config::secrets::Secret;
use crate::config::sections::hardware::Backend;
use crate::config::sections::reserve::Fetch;
use crate::connector::terminal::{self, Socket};
use crate::event::Event;
use crate::heartbeat::pulse::Rhythm;
use crate::heartbeat::{self, Heart};
use crate::http::access::Access;
use crate::http::server::{self, Service};
use crate::model::Shelf;
use crate::model::fetch::Order;
use crate::store::StoreTask;
use crate::vitals::governor::Ladder;
use crate::vitals::stress::Limits;

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
                // Out of the queue, which a hung disk stops as soon as somebody needs the disk. A
                // call to the disk itself would wake two threads at each beat.
                if store.ping().await.is_ok() {
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

/// The recorder, the download, the reload and the heart.
///
/// # Errors
/// `Stopping` during a drain.
pub(super) async fn keepers(
    supervisor: &Supervisor,
    ground: &Ground,
    mut house: House,
    asked: Arc<Notify>,
) -> Result<(), StartError> {
    let later = house.events.listen();
    let happenings = std::mem::replace(&mut house.happenings, later);
    record(supervisor, ground, &house, happenings)?;
    let download = download(ground, &house);
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
    mood(supervisor, ground, &house)?;
    #[cfg(all(feature = "gpio", target_arch = "aarch64"))]
    super::panel::start(supervisor, &house, &ground.loaded.config.gpio)?;
    let liveness = supervisor.spawner().liveness();
    let last_night = last_night(&house.store).await;
    let heart = heart(ground, house, last_night);
    supervisor
        .spawner()
        .spawn_once(tasks::HEARTBEAT, move |cx| heartbeat::run(cx, heart, liveness))?;
    Ok(())
}

/// The recorder. Its first run also gets what was told before it.
fn record(
    supervisor: &Supervisor,
    ground: &Ground,
    house: &House,
    happenings: Receiver<Event>,
) -> Result<(), StartError> {
    let recorder = Recorder {
        events: house.events.clone(),
        store: house.store.clone(),
        clock: Arc::clone(&house.clock),
        kept: ground.loaded.config.events,
    };
    let mut heard = once(happenings);
    supervisor.spawn(tasks::RECORD, move |cx| {
        let recorder = recorder.clone();
        let happenings = heard().unwrap_or_else(|| recorder.events.listen());
        async move {
            record::run(recorder, happenings, cx.stop).await;
            Ok::<_, Infallible>(())
        }
    })?;
    Ok(())
}

/// The mood's keeper.
fn mood(supervisor: &Supervisor, ground: &Ground, house: &House) -> Result<(), StartError> {
    let pulse = ground.loaded.config.system.pulse;
    let (agent, events) = (Arc::clone(&house.agent), house.events.clone());
    supervisor.spawn(tasks::MOOD, move |cx| {
        feelings::keep(Arc::clone(&agent), pulse, events.clone(), cx.stop)
    })?;
    Ok(())
}

/// The heart, from the house's parts.
fn heart(ground: &Ground, house: House, last_night: Option<civil::Date>) -> Heart {
    let config = &ground.loaded.config;
    let system = &config.system;
    let sources = house.sources(config, ground.started);
    let heard = Heard { notices: house.notices, ..Heard::default() };
    let surroundings = Surroundings {
        sources,
        publisher: house.publisher,
        manager: Arc::clone(&ground.manager),
        file: VitalsFile::new(&ground.paths.runtime, config, house.clock.now()),
        heard: Mutex::new(heard),
    };
    let rhythm = Rhythm {
        pulse: system.pulse,
        duty_start: system.duty_start,
        sleep_start: system.sleep_start,
        idle: system.idle,
        stress: Limits::of(config, stress_is_forced()),
        ladder: Ladder::of(config),
    };
    Heart {
        rhythm,
        last_night,
        zone: system.timezone.zone.clone(),
        on_guard: config.hardware.vitals_ttl,
        watchdog: watchdog_from_env(),
        source: house.vitals,
        alarm: house.alarm,
        house: Arc::new(surroundings),
        governed: vec![Arc::clone(&house.agent) as _, house.provider as _],
        order: house.order,
        clock: house.clock,
        events: house.events,
        stirred: house.agent.stirred(),
    }
}

/// Stress without a reason, for trying its effects on a cool machine.
fn stress_is_forced() -> bool {
    std::env::var_os("CRAYFISH_FORCE_STRESS").is_some_and(|value| value == "1")
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
