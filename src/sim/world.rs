//! The world: what there is, and the daemon's lives in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::book::Book;
use super::clock::SimClock;
use super::disk::{self, Mode, SimDisk};
use super::journal::Journal;
use super::model::{Kind, Presence, Server};
use super::network::SimHttp;
use super::nursery::Nursery;
use super::options::{Options, Swarm};
use super::people::Room;
use super::{Report, rules};
use crate::daemon::exit::Exit;
use crate::daemon::rehearsal::{self, Running};
use crate::daemon::signals::Signal;
use crate::event::{Event, Events};
use crate::provider::Provider;
use crate::session::Sessions;
use crate::snapshot::Reader;
use crate::store::Store;

/// Quiet time before background work, in seconds.
pub(super) const BACKGROUND_QUIET_S: f64 = 20.0;

/// Past turns that the model sees at most.
pub(super) const TURNS_MAX: usize = 8;

/// A machine with memory to spare for a model that is loaded ahead of its use.
const MEMINFO: &str = "MemAvailable: 4000000 kB\n";

/// The daemon's configuration: patience in proportion to short answers, so that every limit is
/// reached within a run.
const CONFIG: &str = "
web_chat: {enabled: false}
agent: {answer_tokens_max: 48}
memory: {stm_max_turns: 8}
system: {idle_journal_flush_seconds: 10, timezone: Europe/Berlin}
provider:
  hailo_cold_timeout_s: 20
  ollama_cold_timeout_s: 30
  job_margin_s: 10
  breaker_open_max_s: 60
  background_quiet_s: 20
  openai_head_timeout_s: 30
  openai_first_token_timeout_s: 20
";

/// What is added where Ollama is the fallback. The context is small, so that prompts reach its end:
/// on the NPU it is the time for prefill that bounds them.
const WITH_OLLAMA: &str = "
hardware: {primary_backend: hailo, fallback_backend: ollama, cpu_context_tokens: 1024}
";

/// What is added where the fallback speaks OpenAI's dialect.
const WITH_OPENAI: &str = "
hardware: {primary_backend: hailo, fallback_backend: openai}
openai: {url: 'http://127.0.0.1:8080', model: qwen2.5-1.5b-instruct, context_tokens: 1024}
";

/// When the world begins: an hour before a night in which Berlin puts its clocks back.
const BEGIN_MS: i64 = 1_792_884_600_000;

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fate {
    /// The process is killed.
    Crash,
    /// The power is cut; this share of the log reached the medium.
    PowerCut(f64),
    /// It is stopped as systemd does.
    Stop,
    /// The run is over.
    Over,
}

/// Something that ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mend {
    /// The server's process is up and answers.
    Server(Kind),
    /// The NPU is free.
    Device,
    /// The model is back.
    Model(Kind),
    /// The disk is well.
    Disk,
}

/// Everything there is.
pub(super) struct World {
    pub(super) options: Options,
    pub(super) swarm: Swarm,
    pub(super) random: fastrand::Rng,
    pub(super) journal: Arc<Journal>,
    pub(super) book: Arc<Book>,
    pub(super) clock: Arc<SimClock>,
    pub(super) disk: Arc<SimDisk>,
    pub(super) servers: [Arc<Server>; 2],
    /// Steps done.
    pub(super) step: u32,
    /// What ends by itself, and when.
    pub(super) mends: Vec<(Duration, Mend)>,
    /// The disk was well when this life began, so what the last one left open is closed.
    pub(super) began_well: bool,
    state: PathBuf,
    lives: u32,
}

/// The daemon as the world reaches it during one life.
pub(super) struct House {
    pub(super) room: Room,
    pub(super) provider: Arc<Provider>,
    pub(super) store: Store,
    pub(super) sessions: Sessions,
    pub(super) events: Events,
    pub(super) snapshot: Reader,
    pub(super) deadline: Duration,
    pub(super) nursery: Nursery,
    pub(super) signals: mpsc::Sender<Signal>,
}

impl World {
    /// A world with nobody in it.
    pub(super) fn new(options: &Options) -> Self {
        let mut random = fastrand::Rng::with_seed(options.seed);
        let swarm = Swarm::of(&mut random);
        let journal = Arc::new(Journal::new(options.trace));
        let book = Arc::new(Book::default());
        let begin_ms = if random.u32(0..4) == 0 { 3_600_000 } else { BEGIN_MS };
        let clock = Arc::new(SimClock::new(Arc::clone(&journal), begin_ms));
        let disk = Arc::new(SimDisk::new(Arc::clone(&journal), random.fork()));
        // A draw of its own, so that the other seeds are what they were.
        let mut draw = fastrand::Rng::with_seed(!options.seed);
        let fallback = if draw.u32(0..3) == 0 { Kind::OpenAi } else { Kind::Ollama };
        let servers = [Kind::Hailo, fallback].map(|kind| {
            let (journal, book) = (Arc::clone(&journal), Arc::clone(&book));
            Server::new(kind, journal, book, swarm.clone(), random.fork())
        });
        let state = options.scratch.join(format!("{:x}-0", options.seed));
        Self {
            options: options.clone(),
            swarm,
            random,
            journal,
            book,
            clock,
            disk,
            servers,
            step: 0,
            mends: Vec::new(),
            began_well: true,
            state,
            lives: 0,
        }
    }

    /// Lives on until the run is over or a rule is broken.
    pub(super) fn run(mut self) -> Report {
        let fallback = self.fallback().name();
        self.journal.note(&format!("seed {}, then {fallback}, {}", self.options.seed, self.swarm));
        if let Err(error) = self.settle() {
            self.journal.broken(&format!("the scratch directory cannot be used: {error}"));
        }
        while self.journal.first_broken().is_none() {
            self.lives += 1;
            self.book.open().life = self.lives;
            // The daemon takes its jitter from the thread's own generator.
            fastrand::seed(self.random.u64(..));
            let fate = match runtime() {
                Ok(runtime) => runtime.block_on(Box::pin(async {
                    let fate = self.live().await;
                    // Here, because outside of the runtime time is the machine's.
                    self.journal.end_life();
                    fate
                })),
                Err(error) => {
                    self.journal.broken(&format!("no runtime: {error}"));
                    Fate::Over
                }
            };
            if fate == Fate::Over {
                break;
            }
            self.between(fate);
        }
        let _ = std::fs::remove_dir_all(&self.state);
        let _ = std::fs::remove_dir_all(self.machine());
        let facts = self.book.open();
        let accepted = facts.questions.values().filter(|one| one.accepted_at.is_some());
        let (questions, answers) = accepted
            .fold((0, 0), |(all, ended), one| (all + 1, ended + usize::from(one.end.is_some())));
        Report {
            seed: self.options.seed,
            swarm: self.swarm.to_string(),
            broken: self.journal.first_broken(),
            trace: self.journal.lines(),
            lives: self.lives,
            questions,
            answers,
        }
    }

    /// Where the files of the simulated machine are.
    fn machine(&self) -> PathBuf {
        self.options.scratch.join(format!("{:x}-machine", self.options.seed))
    }

    /// The server that is asked when the NPU's cannot answer.
    pub(super) fn fallback(&self) -> Kind {
        self.servers[1].kind
    }

    fn settle(&self) -> std::io::Result<()> {
        let _ = std::fs::remove_dir_all(&self.state);
        std::fs::create_dir_all(&self.state)?;
        std::fs::create_dir_all(self.machine().join("proc"))?;
        disk::put(&self.machine().join("proc/meminfo"), MEMINFO.as_bytes())?;
        let with = match self.fallback() {
            Kind::OpenAi => WITH_OPENAI,
            Kind::Hailo | Kind::Ollama => WITH_OLLAMA,
        };
        let config = format!("{CONFIG}{with}");
        disk::put(&self.state.join("config.yaml"), config.as_bytes())
    }

    /// After a life: what is left of the files, and of the questions.
    fn between(&mut self, fate: Fate) {
        for server in &self.servers {
            server.orphaned();
            if matches!(fate, Fate::PowerCut(_)) {
                // It is one machine.
                server.die(Presence::Up);
            }
        }
        let folded_at = self.disk.folded_at();
        let mut facts = self.book.open();
        for question in facts.questions.values_mut() {
            // What one life left open is closed in the next one, so its age says nothing.
            let safe = question.ended_at.is_some_and(|at| at < folded_at);
            let torn = matches!(fate, Fate::PowerCut(_)) && !safe;
            let unknown = question.accepted_at.is_none();
            question.loose |= torn || unknown;
        }
        drop(facts);
    }

    /// The files that the next life finds; taken while the daemon still runs.
    pub(super) fn take_files(&mut self, fate: Fate) {
        let cut = match fate {
            Fate::Crash => None,
            Fate::PowerCut(share) => Some(share),
            Fate::Stop | Fate::Over => return,
        };
        let next = self.options.scratch.join(format!("{:x}-{}", self.options.seed, self.lives));
        let taken = disk::survive(&self.state, &next, cut);
        let _ = std::fs::remove_dir_all(&self.state);
        self.state = next;
        if let Err(error) = taken {
            self.journal.broken(&format!("the scratch directory cannot be used: {error}"));
        }
    }

    /// One life of the daemon.
    async fn live(&mut self) -> Fate {
        self.journal.begin_life();
        self.journal.note(&format!("life {} begins", self.lives));
        self.began_well = self.disk.mode() == Mode::Well;
        let nursery = Nursery::default();
        self.disk.mount(&self.state);
        let http = Arc::new(SimHttp::new(self.servers.to_vec(), nursery.clone()));
        let world = rehearsal::World {
            clock: Arc::clone(&self.clock) as _,
            http: Arc::clone(&http) as _,
            medium: Arc::clone(&self.disk) as _,
            machine: self.machine(),
        };
        let running = tokio::select! {
            biased;
            running = rehearsal::start(&self.state, world) => running,
            () = nursery.run() => return Fate::Over,
        };
        let running = match running {
            Ok(running) => running,
            Err(why) => {
                self.journal.broken(&format!("the daemon does not start: {why}"));
                return Fate::Over;
            }
        };
        http.watch(&running.provider);
        self.check_identity(&running.identity);
        let (house, end) = self.enter(running, nursery.clone());
        listen(&house, &self.journal);
        self.spend(house, end, nursery).await
    }

    /// The system block is the same in every life.
    fn check_identity(&self, identity: &str) {
        let known = self.book.open().system.get_or_insert_with(|| identity.to_owned()).clone();
        if known != identity {
            self.journal.broken("the system block of this life is another one");
        }
    }

    fn enter(
        &self,
        running: Running,
        nursery: Nursery,
    ) -> (House, impl Future<Output = Exit> + use<>) {
        let (signals, receiver) = mpsc::channel(4);
        let room = Room {
            journal: Arc::clone(&self.journal),
            book: Arc::clone(&self.book),
            disk: Arc::clone(&self.disk),
            agent: Arc::clone(&running.agent),
        };
        let house = House {
            room,
            provider: Arc::clone(&running.provider),
            store: running.store.clone(),
            sessions: running.sessions.clone(),
            events: running.events.clone(),
            snapshot: running.reader.clone(),
            deadline: running.deadline,
            nursery,
            signals,
        };
        (house, running.run(receiver))
    }

    /// Runs the acts until one of them ends the life.
    async fn spend(
        &mut self,
        house: House,
        end: impl Future<Output = Exit>,
        nursery: Nursery,
    ) -> Fate {
        let journal = Arc::clone(&self.journal);
        let mut asked = false;
        let mut acts = Box::pin(async {
            let fate = self.act_until_the_end(&house).await;
            (fate, self, house)
        });
        tokio::pin!(end);
        let people = nursery.run();
        tokio::pin!(people);
        let mut stopped = None;
        loop {
            tokio::select! {
                biased;
                exit = &mut end, if stopped.is_none() || asked => {
                    if exit != Exit::Stopped || !asked {
                        journal.broken(&format!("the daemon ended: {exit:?}"));
                        return Fate::Over;
                    }
                    break;
                }
                () = &mut people => return Fate::Over,
                (fate, world, house) = &mut acts, if stopped.is_none() => {
                    if fate != Fate::Stop {
                        world.take_files(fate);
                        return fate;
                    }
                    asked = true;
                    let _ = house.signals.try_send(Signal::Stop);
                    stopped = Some((world, house));
                }
            }
        }
        // The last words are on their way.
        tokio::select! {
            biased;
            () = &mut people => {}
            () = tokio::time::sleep(Duration::from_secs(2)) => {}
        }
        if let Some((world, _)) = stopped {
            rules::all_ended(world);
        }
        Fate::Stop
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
}

/// Writes happenings down.
fn listen(house: &House, journal: &Arc<Journal>) {
    let mut heard = house.events.listen();
    let journal = Arc::clone(journal);
    house.nursery.start(async move {
        loop {
            match heard.recv().await {
                Ok(event) => {
                    journal.note(&format!("{event:?}"));
                    match event {
                        Event::TaskFailed { .. } | Event::StoreReplaced { .. } => {
                            journal.broken(&format!("{event:?}"));
                        }
                        _ => {}
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

/// Whether the disk is well, for rules that depend on it.
pub(super) fn disk_is_well(world: &World) -> bool {
    world.disk.mode() == Mode::Well
}
