//! What was learned of a server, kept over a restart: how fast it is, how long a prompt it
//! survives. Learning anew costs some answers with wrong estimates, and on the NPU a prompt that is
//! too long costs ten seconds.
//!
//! Figures belong to one server, version and model. Those of another are dropped, at the start and
//! whenever a look at the server finds another one.

use serde::{Deserialize, Serialize};

use super::Provider;
use super::backend::Presence;
use super::engine::Engine;
use super::learned::{Learned, Measured};
use crate::limits::LEARNED_KEPT_EVERY;

/// What figures are about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The server's name with its version, as far as it tells one.
    server: String,
    address: String,
    /// Its own name of the model.
    model: String,
}

/// A page of the notebook.
#[derive(Serialize, Deserialize)]
struct Page {
    of: Identity,
    measured: Measured,
}

/// What an engine knows of its notes.
#[derive(Debug, Default)]
pub(super) struct Known {
    identity: Option<Identity>,
    written: Option<Measured>,
}

/// Takes figures up once it is known whose they are, and drops those of another server or model.
pub(super) async fn recognise(engine: &Engine, presence: &Presence) {
    let (Some(model), Some(learned)) = (&presence.model, engine.backend.learned()) else { return };
    let identity = Identity {
        server: presence.server.clone(),
        address: engine.backend.address().to_owned(),
        model: model.clone(),
    };
    let before = engine.known().identity.replace(identity.clone());
    match before {
        Some(before) if before == identity => {}
        Some(_) => {
            let backend = engine.backend.name();
            tracing::info!(backend, "another server or model: its figures are learned anew");
            learned.start_over();
        }
        None => {
            let Some(notebook) = &engine.lent.notebook else { return };
            let Some(text) = notebook.read(&name(engine)).await else { return };
            // A page in a form of another version is no page.
            if let Ok(page) = serde_json::from_slice::<Page>(&text)
                && page.of == identity
            {
                learned.take_up(&page.measured);
                engine.known().written = Some(page.measured);
            }
        }
    }
}

fn name(engine: &Engine) -> String {
    format!("provider.learned.{}", engine.backend.name())
}

impl Provider {
    /// Writes down now and then what has changed, for ever.
    pub(super) async fn keep_notes(&self) {
        loop {
            tokio::time::sleep(LEARNED_KEPT_EVERY).await;
            self.write_notes();
        }
    }

    /// Writes down what has changed.
    pub(super) fn write_notes(&self) {
        for engine in &self.engines {
            let Some(notebook) = &engine.lent.notebook else { continue };
            let measured = engine.backend.learned().and_then(Learned::measured);
            let mut known = engine.known();
            if measured.is_none() || measured == known.written {
                continue;
            }
            if let (Some(of), Some(measured)) = (known.identity.clone(), measured) {
                known.written = Some(measured.clone());
                if let Ok(text) = serde_json::to_vec(&Page { of, measured }) {
                    notebook.write(&name(engine), text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use tokio_util::sync::CancellationToken;

    use crate::event::Events;
    use crate::provider::backend::Backend;
    use crate::provider::breaker::Policy;
    use crate::provider::engine::SlotName;
    use crate::provider::fake::Fake;
    use crate::provider::fault::{Class, Fault, Phase};
    use crate::provider::lent::{Lent, Notebook};

    #[derive(Default)]
    struct Book(Mutex<BTreeMap<String, Vec<u8>>>, Mutex<u32>);

    impl Notebook for Book {
        fn read(&self, name: &str) -> BoxFuture<'_, Option<Vec<u8>>> {
            let page = self.0.lock().unwrap().get(name).cloned();
            async move { page }.boxed()
        }

        fn write(&self, name: &str, page: Vec<u8>) {
            *self.1.lock().unwrap() += 1;
            self.0.lock().unwrap().insert(name.to_owned(), page);
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// One life of a daemon with this backend: what happens in it is up to `live`.
    async fn life(book: &Arc<Book>, fake: &Arc<Fake>, live: impl AsyncFnOnce(&Provider)) {
        let events = Events::default();
        let backend: Arc<dyn Backend> = Arc::clone(fake) as _;
        let lent = Lent { notebook: Some(Arc::clone(book) as _), ..Lent::default() };
        let engine =
            Engine::new(SlotName::Primary, backend, Policy::default(), SECOND, events.clone());
        let provider = Provider::new(vec![engine.with(lent)], events);
        let stop = CancellationToken::new();
        let recovery = tokio::spawn(Arc::clone(&provider).recover(stop.clone()));
        tokio::time::sleep(SECOND).await;
        live(&provider).await;
        stop.cancel();
        recovery.await.unwrap();
    }

    fn measure(fake: &Fake, seconds: u32) {
        fake.learned.answered(&[], 31, seconds * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn figures_outlive_the_daemon_and_are_written_when_they_have_changed() {
        let book = Arc::new(Book::default());
        let first = Fake::new("hailo");
        life(&book, &first, async |_: &Provider| {
            assert_eq!(*book.1.lock().unwrap(), 0, "nothing was measured");
            measure(&first, 10);
            tokio::time::sleep(3 * LEARNED_KEPT_EVERY).await;
            assert_eq!(*book.1.lock().unwrap(), 1, "once");
            measure(&first, 11);
        })
        .await;
        assert_eq!(*book.1.lock().unwrap(), 2, "and at the end");
        let next = Fake::new("hailo");
        life(&book, &next, async |_: &Provider| {
            assert_eq!(next.learned.measured(), first.learned.measured());
        })
        .await;
        assert_eq!(*book.1.lock().unwrap(), 2, "nothing has changed");
    }

    #[tokio::test(start_paused = true)]
    async fn figures_of_another_version_or_a_page_of_another_form_are_dropped() {
        let book = Arc::new(Book::default());
        let first = Fake::new("hailo");
        life(&book, &first, async |_: &Provider| measure(&first, 10)).await;
        let newer = Fake::new("hailo");
        *newer.version.lock().unwrap() = "2";
        life(&book, &newer, async |_: &Provider| assert_eq!(newer.learned.measured(), None)).await;
        for page in [b"{}".to_vec(), b"not JSON".to_vec(), Vec::new()] {
            book.write("provider.learned.hailo", page);
            let fake = Fake::new("hailo");
            life(&book, &fake, async |_: &Provider| assert_eq!(fake.learned.measured(), None))
                .await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_changes_while_the_daemon_runs_is_learned_anew() {
        let book = Arc::new(Book::default());
        let fake = Fake::new("hailo");
        life(&book, &fake, async |provider: &Provider| {
            measure(&fake, 10);
            let gone = Fault::new(Class::Down, Phase::Connect, "refused");
            provider.engines[0].gate.found_gone(&gone);
            tokio::time::sleep(60 * SECOND).await;
            assert!(fake.learned.measured().is_some(), "it came back as it was");
            *fake.version.lock().unwrap() = "2";
            provider.engines[0].gate.found_gone(&gone);
            tokio::time::sleep(60 * SECOND).await;
            assert_eq!(fake.learned.measured(), None);
        })
        .await;
    }
}
