//! One answer of a model server, from the lock to the last line.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tokio::time::sleep;

use super::said::{Chat, Said, Who};
use super::script::Script;
use super::{Inside, Kind, Line, Record, Server, dialect, wire};
use crate::sim::book::Generation;
use crate::sim::checks;
use crate::sim::options::Flaw;

/// Loading, a little below what is published.
const LOAD: Duration = Duration::from_millis(7_800);

/// One chunk of prefill on the NPU.
const CHUNK: Duration = Duration::from_millis(340);

/// Tokens in a chunk.
const CHUNK_TOKENS: u32 = 96;

/// The server's own limit on the first token.
const GIVES_UP: Duration = Duration::from_secs(10);

/// From token to token, on both.
const TOKEN: Duration = Duration::from_millis(140);

/// Takes a request out of the server, however it ends.
struct Guard<'a> {
    server: &'a Server,
    number: u64,
    _lock: Option<OwnedSemaphorePermit>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut state = self.server.state();
        let found = state.inside.iter().position(|one| one.number == self.number);
        if let Some(at) = found {
            state.inside.remove(at);
        }
    }
}

/// The client has gone, or the answer is over early.
struct Over;

type Step = Result<(), Over>;

impl Server {
    pub(super) async fn chat(&self, line: Line, chat: Chat) {
        let generates = !chat.messages.is_empty();
        let flaw = if generates { self.flaw() } else { None };
        self.note(&match chat.who {
            _ if !generates => format!("keep_alive {}", chat.keep_alive),
            who => {
                let bytes: Vec<_> = chat.messages.iter().map(|one| one.content.len()).collect();
                format!("{who:?} asks, {bytes:?} bytes, {flaw:?}")
            }
        });
        checks::arrival(self, &chat);
        let number = self.enter(&chat, flaw);
        let mut guard = Guard { server: self, number, _lock: None };
        let mut answer = Answer { server: self, line, chat, flaw, number, at: None, gone: false };
        let permit = tokio::select! {
            biased;
            // Others take whoever has left out of their queues; hailo-ollama does not look.
            () = answer.line.gone(), if self.kind != Kind::Hailo => return,
            permit = self.lock() => permit,
        };
        let Ok(permit) = permit else { return };
        guard._lock = Some(permit);
        let _ = if generates { answer.generate().await } else { answer.load_or_unload().await };
        drop(guard);
    }

    fn enter(&self, chat: &Chat, flaw: Option<Flaw>) -> u64 {
        let mut state = self.state();
        state.numbers += 1;
        let number = state.numbers;
        let flawed = flaw.is_some()
            || state.held
            || state.forgot
            || state.inside.iter().any(|one| one.flawed);
        state.inside.push(Inside { number, who: chat.who, ghost: false, flawed });
        number
    }

    async fn lock(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        let lock = Arc::clone(&self.state().lock);
        lock.acquire_owned().await
    }

    /// Tokens of a prompt that are not in the cache.
    fn fresh(&self, chat: &Chat) -> u32 {
        let state = self.state();
        let all = chat.tokens();
        let Some(record) = &state.record else { return all };
        let answer = Said { role: "assistant".into(), content: record.answer.clone() };
        let mut cached = record.messages.clone();
        cached.push(answer);
        let common =
            cached.iter().zip(&chat.messages).take_while(|(one, other)| one == other).count();
        let reused = match self.kind {
            Kind::Hailo if common < cached.len() => 0,
            _ => common,
        };
        chat.messages.iter().skip(reused).map(Said::tokens).sum()
    }
}

/// The work on one request.
struct Answer<'a> {
    server: &'a Server,
    line: Line,
    chat: Chat,
    flaw: Option<Flaw>,
    number: u64,
    /// Its place among the generations.
    at: Option<usize>,
    gone: bool,
}

impl Answer<'_> {
    /// Waits; all but hailo-ollama notice meanwhile when nobody listens any more.
    async fn wait(&mut self, time: Duration) -> Step {
        let time = if self.flaw == Some(Flaw::Slow) { time * 2 } else { time };
        if self.server.kind == Kind::Hailo {
            sleep(time).await;
            return Ok(());
        }
        tokio::select! {
            biased;
            () = self.line.gone() => {
                self.leave();
                if self.server.kind == Kind::Ollama {
                    sleep(Duration::from_millis(100)).await;
                }
                Err(Over)
            }
            () = sleep(time) => Ok(()),
        }
    }

    /// Nobody listens any more.
    fn leave(&mut self) {
        if !self.gone {
            self.gone = true;
            self.server.note("works for nobody");
            let number = self.number;
            for inside in self.server.state().inside.iter_mut().filter(|one| one.number == number) {
                inside.ghost = true;
            }
        }
    }

    async fn respond(&mut self, status: u16, headers: &str, body: &str) -> Step {
        let _ = wire::answer(&mut self.line.write, status, headers, body).await;
        Err(Over)
    }

    async fn refuse(&mut self, status: u16, headers: &str, cause: &str) -> Step {
        let body = dialect::refusal(self.server.kind, status, cause);
        self.respond(status, headers, &body).await
    }

    /// Makes sure of the model; the reasons why not are told.
    async fn model(&mut self) -> Step {
        let (held, poisoned, loaded, missing) = {
            let state = self.server.state();
            (state.held, state.poisoned, state.loaded, state.without_model)
        };
        if missing || self.flaw == Some(Flaw::Missing) {
            let cause = format!("model '{}' not found", self.server.kind.model());
            return self.refuse(404, "", &cause).await;
        }
        if self.server.kind == Kind::Hailo {
            if poisoned {
                return self.refuse(500, "", "LLM not loaded").await;
            }
            if held && !loaded {
                self.server.state().poisoned = true;
                return self.refuse(500, "", "Failed to create VDevice").await;
            }
        }
        if !loaded {
            if self.server.kind == Kind::OpenAi {
                self.loads_by_itself().await?;
            } else {
                self.wait(LOAD).await?;
            }
            let mut state = self.server.state();
            state.loaded = true;
            state.forgot = false;
            state.record = None;
        }
        Ok(())
    }

    /// llama.cpp loads at its start and refuses meanwhile; in this world it starts when it is
    /// first asked for something.
    async fn loads_by_itself(&mut self) -> Step {
        let now = self.server.journal.now();
        let since = *self.server.state().loading_since.get_or_insert(now);
        if now < since + LOAD {
            return self.refuse(503, "", "Loading model").await;
        }
        Ok(())
    }

    async fn load_or_unload(&mut self) -> Step {
        if self.chat.keep_alive == 0 {
            let mut state = self.server.state();
            state.loaded = false;
            state.poisoned = false;
            state.record = None;
        } else if !self.server.state().poisoned {
            self.model().await?;
        }
        self.respond(200, "", r#"{"done":true}"#).await
    }

    async fn generate(&mut self) -> Step {
        match self.flaw {
            Some(Flaw::Stall) => {
                self.server.hang().await;
                return Err(Over);
            }
            Some(Flaw::Refuses) => {
                let cause = match self.server.kind {
                    Kind::Hailo => "Failed to generate",
                    Kind::Ollama => "llama runner process has terminated",
                    Kind::OpenAi => "Compute error.",
                };
                return self.refuse(500, "", cause).await;
            }
            Some(Flaw::Busy) => {
                let cause = "server busy, please try again.  maximum pending requests exceeded";
                return self.refuse(503, "Retry-After: 1\r\n", cause).await;
            }
            Some(Flaw::ErrorIn200) => {
                let headers = "Content-Type: application/json\r\n";
                return self.refuse(200, headers, "something went wrong").await;
            }
            _ => {}
        }
        self.model().await?;
        let fresh = self.server.fresh(&self.chat);
        if self.flaw == Some(Flaw::Slow) {
            // Prompts are kept as short as a slow device needs.
            self.server.book.open().pace_changed.insert(self.server.kind.name());
        }
        let script = {
            let thinks = self.server.thinks();
            let mut state = self.server.state();
            Script::of(&mut state.random, self.flaw, thinks, self.chat.num_predict)
        };
        self.begin(&script);
        if self.server.kind == Kind::Hailo {
            self.head().await;
        }
        self.prefill(fresh).await?;
        if self.server.kind != Kind::Hailo {
            self.wait(TOKEN).await?;
            self.head().await;
        }
        self.speak(&script, fresh).await
    }

    /// From here on the cache holds this prompt, and half an answer until it is complete.
    fn begin(&mut self, script: &Script) {
        let messages = self.chat.messages.clone();
        self.server.state().record =
            Some(Record { messages: messages.clone(), answer: String::new(), dirty: true });
        let Who::Owner(question) = self.chat.who else { return };
        let kind = self.server.kind;
        let mut book = self.server.book.open();
        self.at = Some(book.generations.len());
        let visible = script.known.then(|| {
            script.tokens.iter().filter(|(_, seen)| *seen).map(|(text, _)| text.as_str()).collect()
        });
        book.generations.push(Generation {
            server: kind.name(),
            question,
            messages,
            raw: script
                .tokens
                .iter()
                .map(|(text, seen)| dialect::text(kind, text, *seen))
                .collect(),
            visible,
            complete: false,
        });
    }

    async fn head(&mut self) {
        let kind = dialect::stream_type(self.server.kind);
        if wire::head(&mut self.line.write, kind).await.is_err() {
            self.leave();
        }
    }

    async fn prefill(&mut self, fresh: u32) -> Step {
        match self.server.kind {
            Kind::Hailo => {
                let whole = CHUNK * fresh.div_ceil(CHUNK_TOKENS).max(1);
                let whole = if self.flaw == Some(Flaw::Slow) { whole * 2 } else { whole };
                if self.flaw == Some(Flaw::PrefillCut) || whole > GIVES_UP {
                    self.server.book.open().pace_changed.insert("hailo");
                    sleep(GIVES_UP).await;
                    return Err(Over);
                }
                sleep(whole).await;
                Ok(())
            }
            Kind::Ollama | Kind::OpenAi => {
                self.wait(Duration::from_millis(u64::from(fresh) * 15)).await
            }
        }
    }

    async fn say(&mut self, text: &str) -> Step {
        if !self.gone && wire::chunk(&mut self.line.write, text).await.is_err() {
            self.leave();
        }
        if self.gone { Err(Over) } else { Ok(()) }
    }

    async fn speak(&mut self, script: &Script, fresh: u32) -> Step {
        let breaks_at = self.server.state().random.usize(0..8);
        let kind = self.server.kind;
        for (at, (text, seen)) in script.tokens.iter().enumerate() {
            self.wait(TOKEN).await?;
            if at == breaks_at {
                match self.flaw {
                    Some(Flaw::Cut) => {
                        self.failed();
                        return Err(Over);
                    }
                    Some(Flaw::NoEnd) => {
                        self.failed();
                        let _ = wire::last_chunk(&mut self.line.write).await;
                        return Err(Over);
                    }
                    Some(Flaw::StallMidway) => {
                        self.server.hang().await;
                        return Err(Over);
                    }
                    Some(Flaw::BadLine) => return self.say(dialect::torn(kind)).await,
                    _ => {}
                }
            }
            let Some(piece) = dialect::piece(kind, text, *seen) else { continue };
            if self.say(&piece).await.is_err() {
                if kind != Kind::OpenAi {
                    // The recovery token, before the lock is free.
                    sleep(TOKEN).await;
                }
                return Err(Over);
            }
            if let Some(record) = &mut self.server.state().record {
                record.answer.push_str(dialect::text(kind, text, *seen));
            }
        }
        self.finish(script, fresh).await
    }

    /// A person's answer fails now, and whoever listens must see it.
    fn failed(&self) {
        if matches!(self.chat.who, Who::Owner(_)) && !self.gone {
            let now = self.server.journal.now();
            self.server.state().failures.push(now);
        }
    }

    async fn finish(&mut self, script: &Script, fresh: u32) -> Step {
        self.wait(TOKEN).await?;
        let kind = self.server.kind;
        let (count, prompt) = match self.flaw {
            Some(Flaw::Lies) => (4_000_000_000_u64, 1),
            _ if kind == Kind::OpenAi => (script.tokens.len() as u64, self.chat.tokens()),
            _ => (script.tokens.len() as u64, fresh),
        };
        let now = self.server.journal.now();
        {
            let mut state = self.server.state();
            if let Some(record) = &mut state.record {
                record.dirty = false;
            }
            state.failures.clear();
        }
        if let Some(at) = self.at
            && let Some(one) = self.server.book.open().generations.get_mut(at)
        {
            one.complete = true;
        }
        let last = dialect::end(kind, script.cut, count, prompt);
        self.say(&last).await?;
        // Only somebody who still listens was here until now.
        if matches!(self.chat.who, Who::Owner(_)) {
            self.server.state().owner_at = Some(now);
        }
        let _ = wire::last_chunk(&mut self.line.write).await;
        Ok(())
    }
}
