//! What an inference engine is to the provider: messages in, deltas out, faults classified.
//!
//! A backend speaks one dialect over HTTP and knows its server's habits. It does not retry, queue
//! or fall back; that is the provider's work.

use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::fault::Fault;
use super::learned::Learned;
use super::pace;
use super::think::ThinkMode;

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The identity block; always the first message, byte-identical for ever.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The word on the wire, the same in all three dialects.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One message of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who it is from.
    pub role: Role,
    /// Text, sanitised (`provider::sanitise`) where it came from outside.
    pub content: String,
}

/// How the next token is chosen. Absent means the server's default for the model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Nucleus sampling, in (0, 1].
    pub top_p: Option<f32>,
    /// At least 1; 0 is undefined on the NPU and never sent.
    pub top_k: Option<u32>,
    /// Makes an answer repeatable.
    pub seed: Option<u32>,
}

/// A tool offered to the model, for dialects that have native tool calls (`openai`, `ollama`).
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Function name, at most 64 of `[A-Za-z0-9_-]`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON schema of its arguments.
    pub parameters: serde_json::Value,
}

/// A prompt that has been fitted to this backend's budget, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// First the system message, then user and assistant in turn, last a user message.
    pub messages: Vec<Message>,
    /// Tokens the answer may take, at least 1.
    pub num_predict: u32,
    /// Pessimistic count of the prompt's tokens; timeouts scale with it.
    pub prompt_tokens: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// JSON schema the answer must follow, sent where the dialect has it.
    pub schema: Option<serde_json::Value>,
    /// Tools the model may call, sent where the dialect has them.
    pub tools: Vec<ToolSpec>,
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatDelta {
    /// The server has accepted the request and sent its head. hailo-ollama sends it before
    /// prefill, Ollama with the first token.
    Head,
    /// Text as decoded, thinking included and not yet filtered; never empty.
    Text(String),
    /// Thinking that the server separated itself (Ollama's `thinking` field); never shown.
    Thinking(String),
    /// A complete native tool call.
    ToolCall {
        /// The call's id, made up where the server sends none.
        id: String,
        /// The tool.
        name: String,
        /// JSON text of the arguments, not validated.
        arguments: String,
    },
    /// The answer is complete. Nothing follows.
    Done(Done),
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoneReason {
    /// The model ended it (also every reason we do not know).
    Stop,
    /// `num_predict` was reached; the last sentence may be cut.
    Length,
    /// The model wants tools to run.
    ToolCalls,
}

/// The end of an answer, with what the server counted. Absent means not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Why it ended.
    pub reason: DoneReason,
    /// Tokens decoded.
    pub tokens: Option<u32>,
    /// Tokens of the prompt as the server counted them.
    pub prompt_tokens: Option<u32>,
}

/// An answer being decoded. Dropping it closes the connection, which is how an answer is
/// cancelled.
pub type ChatStream = Pin<Box<dyn Stream<Item = Result<ChatDelta, Fault>> + Send>>;

/// What a probe found without using the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// What answered, e.g. `hailo-ollama` or `Ollama 0.33.0`.
    pub server: String,
    /// The model's exact name on that server, if one of the accepted names is there.
    pub model: Option<String>,
    /// Names the server offers, for the message that says what is missing.
    pub offered: Vec<String>,
}

/// Upper bounds a backend knows of itself, from the model table or learned from faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Prompt and answer together, in tokens.
    pub context_tokens: u32,
    /// Longest prompt the server can prefill before it gives up, in tokens.
    pub prefill_tokens_max: u32,
}

/// One inference engine.
pub trait Backend: Send + Sync {
    /// The name by which configuration and requests route to it: `hailo`, `ollama`, `openai`.
    fn name(&self) -> &str;

    /// The model's name as configured, for people.
    fn model(&self) -> String;

    /// Bounds for the next request. May shrink as the backend learns.
    fn capacity(&self) -> Capacity;

    /// How long from sending a prompt to its first token, as far as is known.
    /// `fresh_tokens` is the part of the prompt that the server has not cached.
    fn first_token_estimate(&self, fresh_tokens: u32) -> Duration;

    /// Sends a prompt. Resolves when it was sent and the first item can be awaited; the stream
    /// applies the phase timeouts and ends after `Done` or a fault.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream closes the connection.
    fn chat(&self, request: ChatRequest) -> BoxFuture<'_, Result<ChatStream, Fault>>;

    /// Asks whether the server is there and has the model, without touching the model.
    fn presence(&self) -> BoxFuture<'_, Result<Presence, Fault>>;

    /// Loads the model and keeps it loaded.
    fn load(&self) -> BoxFuture<'_, Result<(), Fault>>;

    /// Releases the model, which also heals a server poisoned by a failed load.
    fn unload(&self) -> BoxFuture<'_, Result<(), Fault>>;

    /// How long the slot stays taken on the server after a stream was dropped.
    /// `before_token` tells whether the drop happened before anything was decoded.
    fn ghost(&self, before_token: bool, prompt_tokens: u32) -> Duration;

    /// Whether the server keeps a record of its model and last prompt that outlives a failure
    /// (hailo-ollama): an answer aborted half way leaves a cache on which a literal extension
    /// would be decoded, and a failed load leaves a model that only an unload clears away.
    fn record_outlives_failure(&self) -> bool;

    /// Whether answers begin inside their thinking, because the model's template opens it.
    fn think_mode(&self) -> ThinkMode {
        ThinkMode::MayOpen
    }

    /// Whether the server's count of a prompt always includes the part that it had in its cache.
    fn counts_cached_tokens(&self) -> bool {
        false
    }

    /// What a look at this machine says about why the server may fail, for a person: a device
    /// that is not there. It proves nothing either way, because a simulator needs no device.
    fn hint(&self) -> Option<String> {
        None
    }

    /// The system service that runs the server, if it runs on this machine.
    fn service(&self) -> Option<&str> {
        None
    }

    /// Where the server is, for telling one from another.
    fn address(&self) -> &str {
        ""
    }

    /// Whether the model is in memory now, asked of the server if that costs it nothing.
    fn holds_model(&self) -> BoxFuture<'_, bool> {
        let loaded = self.learned().is_some_and(|learned| learned.is_loaded(Instant::now()));
        Box::pin(std::future::ready(loaded))
    }

    /// Memory of this machine that must be free for its model to be loaded ahead of its use, in
    /// bytes; absent if it is loaded when it is needed.
    fn memory_to_load(&self) -> Option<u64> {
        None
    }

    /// What was learned about the server's speed, for backends that learn.
    fn learned(&self) -> Option<&Learned> {
        None
    }

    /// Measured decode rate in tokens a second, once there was something to measure.
    fn tokens_per_s(&self) -> Option<f32> {
        self.learned()?.measured_tokens_per_s().map(|rate| rate as f32)
    }

    /// How its answers arrive, by our own clock.
    fn pace(&self) -> pace::Figures {
        self.learned().map(Learned::pace).unwrap_or_default()
    }

    /// Whether the last answers were all much slower than this backend used to be.
    fn is_degraded(&self) -> bool {
        self.learned().is_some_and(Learned::is_degraded)
    }

    /// Hears whether the machine suffers (heat, no memory). A model in this process is then not
    /// loaded, and let go when nobody uses it; servers have their own care.
    fn strained(&self, _strained: bool) {}

    /// Whether it only stands in for others, and when it lets go of its model.
    fn gives_way(&self) -> GivesWay {
        GivesWay::Never
    }
}

/// When a backend that only stands in lets go of its model, if it has it loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivesWay {
    /// It does not, or it has none loaded.
    Never,
    /// When one before it has been usable for so long.
    After(Duration),
    /// As soon as nobody uses it: the machine suffers.
    Now,
}
