//! The house as the heart sees it: what is true now, who is told, and where it is left for others.
//! The service manager gets a status line at each change of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use jiff::civil;
use tokio::time::Instant;

use super::download::Standing;
use super::machine::Notes;
use super::systemd::Manager;
use super::vitals_file::VitalsFile;
use crate::agent::feelings::Condition;
use crate::agent::service::Agent;
use crate::event::Event;
use crate::heartbeat;
use crate::mood::Channel;
use crate::provider::Provider;
use crate::provider::lent::Notebook;
use crate::snapshot::body::{Body, Level};
use crate::snapshot::{Mood, Publisher, Room, Snapshot};
use crate::store::Store;

/// Notices kept beside those that follow from the state: enough for every part to have one.
const NOTICES_MAX: usize = 8;

/// What helps where nobody can answer because nothing is there that could.
const NO_MODEL: &str = "No model is here. For good answers start Ollama with qwen2.5:1.5b; for a \
     small model inside this program (98 MB): crayfish model fetch";

/// What the snapshot is made of.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) designation: String,
    pub(super) started: Instant,
    pub(super) provider: Arc<Provider>,
    pub(super) agent: Arc<Agent>,
    pub(super) store: Store,
    /// What the sensors of the room say, if there are some.
    pub(super) room: Arc<ArcSwapOption<Room>>,
    /// How a download of the reserve's model is doing.
    pub(super) standing: Standing,
}

/// The note that keeps the last night's date.
const LAST_NIGHT: &str = "heartbeat.night";

/// The last night that began, as it was noted.
pub(super) async fn last_night(store: &Store) -> Option<civil::Date> {
    let page = Notes(store.clone()).read(LAST_NIGHT).await?;
    std::str::from_utf8(&page).ok()?.parse().ok()
}

/// The state in one line, for `systemctl status`.
pub(super) fn status_line(now: &Snapshot) -> String {
    let mut line = match (now.online, &now.last_error) {
        (true, _) => format!("{} answers", now.active_backend),
        (false, Some(error)) => format!("inference offline: {error}"),
        (false, None) => "inference offline".to_owned(),
    };
    for hung in now.backends.iter().filter_map(|backend| backend.hung.as_ref()) {
        line.push_str("; ");
        line.push_str(hung);
    }
    if !now.store_ok {
        line.push_str("; the database cannot be written");
    }
    if let Some(reason) = &now.body.order.reason {
        line.push_str(&format!("; spares itself ({}): {reason}", now.body.order.level.as_str()));
    }
    line
}

/// What a person should read about a happening long after it.
pub(super) fn notice(event: &Event) -> Option<String> {
    match event {
        Event::StoreReplaced { aside } => Some(format!(
            "The database was damaged. It was set aside as {aside} and a new one was started."
        )),
        Event::PromptTruncated { backend, counted, expected } => Some(format!(
            "{backend} read only {counted} of at least {expected} tokens of a prompt: it cuts \
             prompts in silence. Give it a larger context."
        )),
        Event::FieldRefused { backend, model, field: "tools" } => Some(format!(
            "{model} on {backend} does not take tools and is asked without them. A model with \
             the capability \"tools\" would, for example qwen2.5:1.5b on Ollama."
        )),
        Event::TaskFailed { task, outcome } => Some(format!("The {task} task {outcome}.")),
        _ => None,
    }
}

/// The parts that the heart looks at and tells.
pub(super) struct Surroundings {
    pub(super) sources: Sources,
    pub(super) publisher: Arc<Publisher>,
    pub(super) manager: Arc<Manager>,
    pub(super) file: VitalsFile,
    pub(super) heard: Mutex<Heard>,
}

/// What was heard and told.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Sentences worth reading long after.
    pub(super) notices: Vec<String>,
    /// The last status line.
    pub(super) told: String,
}

impl Surroundings {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl heartbeat::House for Surroundings {
    fn facts(&self) -> Snapshot {
        let notices = self.heard().notices.clone();
        self.sources.snapshot(&notices)
    }

    fn heard(&self, event: &Event) {
        let mut heard = self.heard();
        heard.notices.extend(notice(event));
        let surplus = heard.notices.len().saturating_sub(NOTICES_MAX);
        heard.notices.drain(..surplus);
    }

    fn publish(&self, snapshot: Snapshot) {
        self.sources.agent.be_in(condition(&snapshot.body));
        self.sources.provider.set_strained(suffers(&snapshot.body));
        let line = status_line(&snapshot);
        self.publisher.publish(snapshot);
        let mut heard = self.heard();
        if line != heard.told {
            self.manager.status(&line);
            heard.told = line;
        }
    }

    fn keep(&self, now: &Snapshot) {
        self.file.write(now);
    }

    fn remember_night(&self, night: civil::Date) {
        Notes(self.sources.store.clone()).write(LAST_NIGHT, night.to_string().into_bytes());
    }

    fn feed_watchdog(&self) {
        self.manager.feed_watchdog();
    }
}

impl Sources {
    /// What is true now.
    pub(super) fn snapshot(&self, notices: &[String]) -> Snapshot {
        let backends = self.provider.states();
        let active = self.provider.active();
        let store = self.store.health();
        let mut notices = notices.to_vec();
        notices.extend(backends.iter().filter_map(|backend| backend.hung.clone()));
        if store.degraded {
            notices.push(format!(
                "The database cannot be written; {} writes are kept in memory and tried again.",
                store.kept
            ));
        }
        if store.late > 0 {
            let pieces = match store.late {
                1 => "1 piece of an answer was".to_owned(),
                count => format!("{count} pieces of answers were"),
            };
            notices.push(format!("The disk was slow: {pieces} shown before being stored."));
        }
        match self.standing.sentence() {
            Some(sentence) => notices.push(sentence),
            None if active.is_none() && self.provider.misses_reserve() => {
                notices.push(NO_MODEL.to_owned());
            }
            None => {}
        }
        Snapshot {
            designation: self.designation.clone(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            online: active.is_some(),
            active_backend: active.unwrap_or_else(|| "offline".to_owned()),
            last_error: backends.first().and_then(|first| first.last_error.clone()),
            backends,
            turns: self.agent.turns(),
            quiet: self.agent.quiet(),
            mood: Some(mood(&self.agent)),
            room: self.room.load().as_deref().copied(),
            store_ok: !store.degraded,
            notices,
            ..Snapshot::default()
        }
    }
}

/// What a prompt should know of the body.
fn condition(body: &Body) -> Condition {
    let brief = body.vitals.temperature_c.map(|celsius| format!("{celsius:.0} °C"));
    Condition { stressed: body.stress.active, brief }
}

/// Whether a model in this process would be one burden too many.
fn suffers(body: &Body) -> bool {
    body.stress.active || body.order.level == Level::NoModel
}

/// The mood now.
fn mood(agent: &Agent) -> Mood {
    let (mood, felt) = agent.mood();
    let level = |channel| mood.level(channel) as f32;
    Mood {
        joy: level(Channel::Joy),
        anger: level(Channel::Anger),
        sorrow: level(Channel::Sorrow),
        excitement: level(Channel::Excitement),
        calm: level(Channel::Calm),
        dominant: mood.dominant().as_str().to_owned(),
        active_channel: felt.map_or("none", |(channel, _)| channel.as_str()).to_owned(),
        active_intensity: felt.map_or(0.0, |(_, far)| far as f32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::BackendState;

    #[test]
    fn only_what_outlives_its_moment_becomes_a_notice() {
        let aside = "crayfish.db.damaged".to_owned();
        assert!(notice(&Event::StoreReplaced { aside }).is_some());
        assert!(notice(&Event::StoreRecovered).is_none());
        let refused = |field| Event::FieldRefused {
            backend: "ollama".into(),
            model: "tiny:latest".into(),
            field,
        };
        let told = notice(&refused("tools")).unwrap();
        assert!(told.starts_with("tiny:latest on ollama does not take tools"), "{told}");
        assert_eq!(notice(&refused("thinking")), None, "nobody misses it");
    }

    #[test]
    fn the_status_line_says_who_answers_or_why_nobody_does() {
        let online = Snapshot {
            online: true,
            active_backend: "hailo".into(),
            store_ok: true,
            ..Snapshot::default()
        };
        assert_eq!(status_line(&online), "hailo answers");
        let broken = Snapshot {
            online: false,
            last_error: Some("connection refused".into()),
            store_ok: false,
            ..online
        };
        assert_eq!(
            status_line(&broken),
            "inference offline: connection refused; the database cannot be written"
        );
        let hung = BackendState { hung: Some("It hangs.".into()), ..BackendState::default() };
        let hangs = Snapshot { store_ok: true, backends: vec![hung], ..broken };
        assert_eq!(status_line(&hangs), "inference offline: connection refused; It hangs.");
    }
}
