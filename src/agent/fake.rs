//! An agent for the tests of the doors: it says what it is told to and remembers what it heard.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::audience::{Audience, Said, Telling};
use super::{Answer, Converse, Refused, Submission, Turn, TurnEvent};
use crate::session::log::Line;
use crate::session::wire::SessionInfo;

/// What happens to the next message.
pub(crate) enum Script {
    /// These events, then the end of the events.
    Say(Vec<TurnEvent>),
    /// It is refused.
    Refuse(Refused),
    /// The test sends the events itself.
    Held(mpsc::Receiver<TurnEvent>),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Fake {
    scripts: Mutex<VecDeque<Script>>,
    heard: Mutex<Vec<Submission>>,
    cancelled: Mutex<Vec<Option<String>>>,
    lines: Mutex<Vec<Line>>,
    listed: Mutex<Vec<SessionInfo>>,
    audience: Arc<Audience>,
}

impl Fake {
    /// Puts a script behind those that wait. Without one a message is echoed.
    pub(crate) fn script(&self, script: Script) {
        self.scripts.lock().unwrap().push_back(script);
    }

    /// The history of every session.
    pub(crate) fn lines(&self, lines: Vec<Line>) {
        *self.lines.lock().unwrap() = lines;
    }

    /// The sessions there are.
    pub(crate) fn list(&self, sessions: Vec<SessionInfo>) {
        *self.listed.lock().unwrap() = sessions;
    }

    /// What was submitted so far, refused or not.
    pub(crate) fn heard(&self) -> Vec<Submission> {
        self.heard.lock().unwrap().clone()
    }

    /// The sessions that were cancelled.
    pub(crate) fn cancelled(&self) -> Vec<Option<String>> {
        self.cancelled.lock().unwrap().clone()
    }
}

/// An answer as a model would give it.
pub(crate) fn answer(text: &str) -> Answer {
    Answer {
        text: text.to_owned(),
        backend: "hailo".into(),
        model: "qwen2:1.5b".into(),
        tokens: Some(2),
        first_word_ms: 10,
        elapsed_ms: 30,
        ..Answer::default()
    }
}

/// A turn that says `words` one after the other.
pub(crate) fn say(words: &[&str]) -> Script {
    let mut events: Vec<_> =
        words.iter().map(|word| TurnEvent::Delta((*word).to_owned())).collect();
    events.push(TurnEvent::Done(answer(&words.concat())));
    Script::Say(events)
}

impl Converse for Fake {
    fn submit(&self, submission: Submission) -> BoxFuture<'_, Result<Turn, Refused>> {
        Box::pin(async move {
            let script = self.scripts.lock().unwrap().pop_front();
            let number = {
                let mut heard = self.heard.lock().unwrap();
                heard.push(submission.clone());
                heard.len() as u64
            };
            let session = submission.session.unwrap_or_else(|| "main".to_owned());
            let script = script.unwrap_or_else(|| say(&[&submission.text]));
            if let Script::Refuse(refused) = script {
                return Err(refused);
            }
            let said = Said { text: submission.text, id: submission.id };
            let (telling, events) = self.audience.begin(&session, number, said, submission.seat);
            match script {
                Script::Refuse(_) => {}
                Script::Say(events) => events.into_iter().for_each(|event| tell(&telling, event)),
                Script::Held(mut events) => {
                    tokio::spawn(async move {
                        while let Some(event) = events.recv().await {
                            tell(&telling, event);
                        }
                    });
                }
            }
            Ok(Turn { session, turn: number, events, again: false })
        })
    }

    fn cancel(&self, session: Option<&str>) -> bool {
        self.cancelled.lock().unwrap().push(session.map(str::to_owned));
        true
    }

    fn history(
        &self,
        _session: Option<&str>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Line>, Refused>> {
        let lines = self.lines.lock().unwrap().clone();
        let skip = lines.len().saturating_sub(limit);
        Box::pin(async move { Ok(lines.into_iter().skip(skip).collect()) })
    }

    fn earlier<'a>(
        &'a self,
        _session: Option<&'a str>,
        before: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Line>, Refused>> {
        let lines = self.lines.lock().unwrap().clone();
        let mut lines: Vec<_> = lines.into_iter().filter(|line| line.turn < before).collect();
        let surplus = lines.len().saturating_sub(limit);
        Box::pin(async move { Ok(lines.split_off(surplus)) })
    }

    fn audience(&self) -> &Arc<Audience> {
        &self.audience
    }

    fn sessions(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Refused>> {
        let listed = self.listed.lock().unwrap().clone();
        Box::pin(async move { Ok(listed) })
    }

    fn rename<'a>(
        &'a self,
        session: &'a str,
        title: &'a str,
    ) -> BoxFuture<'a, Result<SessionInfo, Refused>> {
        Box::pin(async move {
            let mut listed = self.listed.lock().unwrap();
            let found = listed.iter_mut().find(|known| known.chat_id == session);
            let found = found.ok_or(Refused::NoSuchSession)?;
            title.clone_into(&mut found.title);
            self.audience.titled(session, title, 0);
            Ok(found.clone())
        })
    }

    fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), Refused>> {
        Box::pin(async move {
            let mut listed = self.listed.lock().unwrap();
            let before = listed.len();
            listed.retain(|known| known.chat_id != session);
            if listed.len() == before {
                return Err(Refused::NoSuchSession);
            }
            self.audience.deleted(session);
            Ok(())
        })
    }
}

fn tell(telling: &Telling, event: TurnEvent) {
    match event {
        TurnEvent::Waiting { about_s } => telling.waiting(about_s),
        TurnEvent::Delta(text) => telling.text(&text),
        end => telling.end(end),
    }
}
