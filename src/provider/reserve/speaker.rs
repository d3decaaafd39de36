//! One answer from beginning to end: the chat format, what need not be read again, decoding.
//!
//! # Invariants
//! - Whether somebody still listens is asked before every token and every layer of reading.
//! - What a message says never becomes a control token.

use tokio::time::Instant;

use super::gguf::{Head, ModelError};
use super::model::{GivenUp, Model};
use super::sample::Chooser;
use super::shape::Shape;
use super::vocabulary::Vocabulary;
use crate::provider::backend::{ChatDelta, ChatRequest, Done, DoneReason};
use crate::provider::fault::{Class, Fault, Phase};

/// A model that is loaded, with its words.
pub(crate) struct Speaker {
    model: Model,
    vocabulary: Vocabulary,
    context_tokens: usize,
}

/// What an answer took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Took {
    /// Tokens of the prompt that had to be read.
    pub(crate) read: usize,
    pub(crate) read_s: f32,
    /// Tokens decoded after the first.
    pub(crate) decoded: usize,
    pub(crate) decoded_s: f32,
}

/// Why an answer has no end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Nobody listens.
    GivenUp,
    /// It cannot be given.
    Fault(Fault),
}

impl From<GivenUp> for Broken {
    fn from(_: GivenUp) -> Self {
        Self::GivenUp
    }
}

/// Where an answer goes.
pub(crate) trait Listener {
    /// Whether nobody listens any more.
    fn is_gone(&self) -> bool;
    /// Hears a piece; pieces sent to nobody are lost.
    fn hear(&self, delta: ChatDelta);
}

impl Speaker {
    /// A speaker over the bytes of a model's file.
    pub(crate) fn new(
        file: Vec<u8>,
        context_tokens: usize,
        memory_max_mb: u64,
    ) -> Result<Self, ModelError> {
        let head = Head::parse(&file)?;
        let vocabulary = Vocabulary::read(&head, &file)?;
        let model = Model::new(file, &head)?;
        let context_tokens = context_tokens.min(model.shape.context);
        let bytes = model.file().len() + context_tokens * model.shape.cache_bytes();
        let needs_mb = u64::try_from(bytes / 1_000_000).unwrap_or(u64::MAX);
        if needs_mb > memory_max_mb {
            return Err(ModelError::TooLarge { needs_mb, max_mb: memory_max_mb });
        }
        if model.shape.vocabulary != vocabulary.len() {
            return Err(ModelError::Damaged("it has another number of words than of vectors"));
        }
        Ok(Self { model, vocabulary, context_tokens })
    }

    /// Answers. Must run inside the thread pool that shall do the work.
    pub(crate) fn answer(
        &mut self,
        request: &ChatRequest,
        listener: &dyn Listener,
    ) -> Result<Took, Broken> {
        let prompt = self.prompt(request);
        let shape = match &request.schema {
            Some(schema) => {
                Some(Shape::begin(schema).map_err(|why| fault(Class::OurBug, Phase::Head, why))?)
            }
            None => None,
        };
        if prompt.len() >= self.context_tokens {
            let detail = format!("{} tokens do not fit into {}", prompt.len(), self.context_tokens);
            return Err(fault(Class::PrefillTimeout, Phase::Head, detail));
        }
        listener.hear(ChatDelta::Head);
        let started = Instant::now();
        let known = self.model.fed().iter().zip(&prompt).take_while(|(a, b)| a == b).count();
        // The last token is read in any case: what follows it is what is asked.
        let known = known.min(prompt.len() - 1);
        self.model.keep(known);
        let logits = self.model.feed(&prompt[known..], &|| listener.is_gone())?;
        let read_s = started.elapsed().as_secs_f32();
        let room = self.context_tokens - prompt.len();
        let most = usize::try_from(request.num_predict).unwrap_or(room).min(room).max(1);
        let decoding = Instant::now();
        let (tokens, reason) = self.decode(logits, most, request, shape, listener)?;
        let done = Done {
            reason,
            tokens: u32::try_from(tokens).ok(),
            prompt_tokens: u32::try_from(prompt.len()).ok(),
        };
        listener.hear(ChatDelta::Done(done));
        let decoded_s = decoding.elapsed().as_secs_f32();
        Ok(Took { read: prompt.len() - known, read_s, decoded: tokens, decoded_s })
    }

    /// The conversation in the chat format, up to where the model goes on.
    fn prompt(&self, request: &ChatRequest) -> Vec<u32> {
        let Vocabulary { open, close, .. } = self.vocabulary;
        let mut tokens = Vec::new();
        for message in &request.messages {
            tokens.push(open);
            let text = format!("{}\n{}", message.role.as_str(), message.content);
            tokens.extend(self.vocabulary.encode(&text));
            tokens.push(close);
            tokens.extend(self.vocabulary.encode("\n"));
        }
        tokens.push(open);
        tokens.extend(self.vocabulary.encode("assistant\n"));
        tokens
    }

    fn decode(
        &mut self,
        mut logits: Vec<f32>,
        most: usize,
        request: &ChatRequest,
        mut shape: Option<Shape>,
        listener: &dyn Listener,
    ) -> Result<(usize, DoneReason), Broken> {
        let structured = shape.is_some();
        let mut chooser = Chooser::new(request.sampling, structured);
        let mut came = Vec::new();
        let mut bytes = Vec::new();
        let reason = loop {
            if listener.is_gone() {
                return Err(Broken::GivenUp);
            }
            if let Some(shape) = &shape {
                shape.restrict(&mut logits, &self.vocabulary, self.model.file());
            }
            let token = chooser.choose(&mut logits, &came);
            if [self.vocabulary.close, self.vocabulary.end].contains(&token) {
                break DoneReason::Stop;
            }
            came.push(token);
            let spelled: Vec<u8> = self.vocabulary.decode(self.model.file(), token).collect();
            bytes.extend(&spelled);
            let complete = match &mut shape {
                Some(shape) => shape.take(&spelled),
                None => {
                    say(&mut bytes, false, listener);
                    false
                }
            };
            if complete {
                break DoneReason::Stop;
            }
            if came.len() >= most {
                break DoneReason::Length;
            }
            logits = self.model.feed(&[token], &|| listener.is_gone())?;
        };
        if structured && reason == DoneReason::Length {
            let detail = "the structured answer was cut by its token bound".to_owned();
            return Err(fault(Class::BadOutput, Phase::Stream, detail));
        }
        say(&mut bytes, true, listener);
        Ok((came.len(), reason))
    }
}

fn fault(class: Class, phase: Phase, detail: String) -> Broken {
    Broken::Fault(Fault::new(class, phase, detail))
}

/// Says what is whole of these bytes; at the end, all of them.
fn say(bytes: &mut Vec<u8>, all: bool, listener: &dyn Listener) {
    let whole = match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        // The rest of a character is still to come.
        Err(error) if !all && error.error_len().is_none() => error.valid_up_to(),
        Err(_) => bytes.len(),
    };
    let said: Vec<u8> = bytes.drain(..whole).collect();
    if !said.is_empty() {
        listener.hear(ChatDelta::Text(String::from_utf8_lossy(&said).into_owned()));
    }
}
