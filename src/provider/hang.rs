//! A server that takes connections and answers nothing: noticed, told with the command that
//! helps, and restarted where the configuration allows it (specification 5A.7).

use tokio::time::Instant;

use super::Provider;
use super::engine::Engine;
use super::fault::Class;
use crate::event::Event;
use crate::limits::HUNG_AFTER;

/// What is known of a server's silence (pure).
#[derive(Debug, Default)]
pub(super) struct Hang {
    /// Since when nothing but silence came back.
    since: Option<Instant>,
    /// It was told, in these words.
    told: Option<String>,
    /// A restart was asked for, since the last answer: once is help, more is a loop.
    helped: bool,
}

/// What to do about a server that has been silent for too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Help {
    /// Whether it may be restarted, which is not done twice without an answer in between.
    pub(super) restart: bool,
}

impl Hang {
    /// A request failed this way.
    pub(super) fn failed(&mut self, class: Class, now: Instant) {
        match class {
            Class::Wedged => {
                self.since.get_or_insert(now);
            }
            // We did not ask, or its queue is full: says nothing about its silence.
            Class::Busy | Class::OurBug => {}
            // It has said something, or is gone.
            _ => (self.since, self.told) = (None, None),
        }
    }

    /// When it counts as hung, unless that was told already.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.filter(|_| self.told.is_none()).map(|since| since + HUNG_AFTER)
    }

    /// Notes that it is told, if it is due.
    pub(super) fn tell(&mut self, words: &str, now: Instant) -> Option<Help> {
        self.due().filter(|due| *due <= now)?;
        self.told = Some(words.to_owned());
        Some(Help { restart: !std::mem::replace(&mut self.helped, true) })
    }

    /// The words, while it hangs.
    pub(super) fn words(&self) -> Option<&str> {
        self.told.as_deref()
    }
}

impl Provider {
    /// Watches for servers that hang, for ever.
    pub(super) async fn watch_for_hangs(&self) {
        futures_util::future::join_all(self.engines.iter().map(|engine| watch(engine))).await;
    }
}

async fn watch(engine: &Engine) {
    loop {
        let changed = engine.gate.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match engine.gate.hang_due() {
            None => changed.await,
            Some(due) if due > Instant::now() => {
                tokio::select! {
                    biased;
                    () = &mut changed => {}
                    () = tokio::time::sleep_until(due) => {}
                }
            }
            Some(_) => help(engine).await,
        }
    }
}

async fn help(engine: &Engine) {
    let backend = engine.backend.name().to_owned();
    let cure = engine.backend.service().map_or_else(
        || "Restart it where it runs.".to_owned(),
        |service| format!("Restart it: sudo systemctl restart {service}"),
    );
    let detail = format!(
        "{backend} takes connections and has answered nothing for {} minutes. {cure}",
        HUNG_AFTER.as_secs() / 60
    );
    let Some(help) = engine.gate.tell_hang(&detail) else { return };
    if let (true, Some(door)) = (help.restart, &engine.lent.restart) {
        let outcome = match door.restart().await {
            Ok(()) => "the restart was asked for".to_owned(),
            Err(why) => format!("it could not be restarted: {why}"),
        };
        engine.gate.tell(Event::BackendRestarted { backend, outcome });
        engine.gate.hurry();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use tokio::sync::broadcast::Receiver;
    use tokio_util::sync::CancellationToken;

    use crate::event::Events;
    use crate::provider::backend::Backend;
    use crate::provider::breaker::Policy;
    use crate::provider::engine::SlotName;
    use crate::provider::fake::Fake;
    use crate::provider::lent::{Lent, Restart};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_its_first_fault_and_any_sound_ends_it() {
        let start = Instant::now();
        let mut hang = Hang::default();
        assert_eq!(hang.due(), None);
        hang.failed(Class::Wedged, start);
        hang.failed(Class::Busy, start + SECOND);
        hang.failed(Class::Wedged, start + 2 * SECOND);
        assert_eq!(hang.due(), Some(start + HUNG_AFTER));
        assert_eq!(hang.tell("hangs", start + SECOND), None, "not yet");
        for sound in [Class::Down, Class::Crashed, Class::ServerError, Class::ModelMissing] {
            hang.failed(Class::Wedged, start);
            hang.failed(sound, start + SECOND);
            assert_eq!(hang.due(), None, "{sound:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_told_once_and_helped_once_until_it_has_answered() {
        let start = Instant::now();
        let mut hang = Hang::default();
        hang.failed(Class::Wedged, start);
        let late = start + HUNG_AFTER;
        assert_eq!(hang.tell("hangs", late), Some(Help { restart: true }));
        assert_eq!((hang.words(), hang.due()), (Some("hangs"), None));
        assert_eq!(hang.tell("hangs", late), None, "once");
        hang.failed(Class::Down, late);
        assert_eq!(hang.words(), None, "gone is not hung");
        hang.failed(Class::Wedged, late);
        let later = late + HUNG_AFTER;
        assert_eq!(hang.tell("hangs", later), Some(Help { restart: false }));
    }

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Restart for Counted {
        fn restart(&self) -> BoxFuture<'_, Result<(), String>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            async { Err("not allowed".to_owned()) }.boxed()
        }
    }

    struct Rig {
        hailo: Arc<Fake>,
        provider: Arc<Provider>,
        heard: Receiver<Event>,
    }

    fn rig(restart: Option<Arc<dyn Restart>>) -> Rig {
        let (hailo, events) = (Fake::new("hailo"), Events::default());
        let heard = events.listen();
        let backend: Arc<dyn Backend> = Arc::clone(&hailo) as _;
        let engine =
            Engine::new(SlotName::Primary, backend, Policy::default(), SECOND, events.clone());
        let provider =
            Provider::new(vec![engine.with(Lent { restart, ..Lent::default() })], events);
        Rig { hailo, provider, heard }
    }

    impl Rig {
        fn told(&mut self) -> Vec<Event> {
            let ours = |event: &Event| {
                matches!(event, Event::BackendHung { .. } | Event::BackendRestarted { .. })
            };
            std::iter::from_fn(|| self.heard.try_recv().ok()).filter(ours).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_hangs_is_told_with_the_command_and_helped_once() {
        let door = Arc::new(Counted::default());
        let mut rig = rig(Some(Arc::clone(&door) as _));
        rig.hailo.hangs.store(true, Ordering::SeqCst);
        let stop = CancellationToken::new();
        let recovery = tokio::spawn(Arc::clone(&rig.provider).recover(stop.clone()));
        tokio::time::sleep(HUNG_AFTER - SECOND).await;
        assert_eq!(rig.told(), [], "a long answer for somebody else looks the same");
        tokio::time::sleep(2 * SECOND).await;
        let detail = "hailo takes connections and has answered nothing for 3 minutes. Restart it: \
                      sudo systemctl restart hailo-ollama";
        let hung = Event::BackendHung { backend: "hailo".into(), detail: detail.into() };
        let outcome = "it could not be restarted: not allowed".to_owned();
        let restarted = Event::BackendRestarted { backend: "hailo".into(), outcome };
        assert_eq!(rig.told(), [hung.clone(), restarted]);
        assert_eq!(rig.provider.states()[0].hung.as_deref(), Some(detail));
        tokio::time::sleep(10 * HUNG_AFTER).await;
        assert_eq!((rig.told(), door.0.load(Ordering::SeqCst)), (vec![], 1));
        rig.hailo.hangs.store(false, Ordering::SeqCst);
        tokio::time::sleep(HUNG_AFTER).await;
        let state = &rig.provider.states()[0];
        assert_eq!((state.breaker, &state.hung), ("closed", &None));
        stop.cancel();
        recovery.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_gone_or_missing_its_model_is_not_hung() {
        let mut rig = rig(None);
        rig.hailo.present.store(false, Ordering::SeqCst);
        let stop = CancellationToken::new();
        let recovery = tokio::spawn(Arc::clone(&rig.provider).recover(stop.clone()));
        tokio::time::sleep(3 * HUNG_AFTER).await;
        assert_eq!(rig.told(), []);
        stop.cancel();
        recovery.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_device_is_in_the_words_and_the_answer_stays_the_proof() {
        let rig = rig(None);
        *rig.hailo.hint.lock().unwrap() = Some("and there is no device".to_owned());
        rig.hailo.present.store(false, Ordering::SeqCst);
        let stop = CancellationToken::new();
        let recovery = tokio::spawn(Arc::clone(&rig.provider).recover(stop.clone()));
        let error = || rig.provider.states()[0].last_error.clone();
        tokio::time::sleep(SECOND).await;
        assert_eq!(error().as_deref(), Some("refused; and there is no device"), "at the start");
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(error().as_deref(), Some("refused; and there is no device"), "by the probes");
        rig.hailo.present.store(true, Ordering::SeqCst);
        tokio::time::sleep(HUNG_AFTER).await;
        assert_eq!((rig.provider.states()[0].breaker, error()), ("closed", None));
        stop.cancel();
        recovery.await.unwrap();
    }
}
