//! What is said: the script first, then what the schema demands, then the real model behind
//! `--voice`, then made-up sentences.

use serde_json::Value;

use super::{Sim, models::Model, pieces::json_pieces, request::Request, schema};
use crate::sim::{log::Event, scenario::Answer, tokens, voice::Said};

/// A thinking model's thought when nobody scripted one.
const THOUGHT: &str = "Okay, let me think about what is being asked and how to answer it briefly.";

/// Tokens asked from a real model when the client set no limit.
const VOICE_TOKENS: u32 = 256;

/// An answer before it is decoded.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Thinking, token by token.
    pub(super) thinking: Vec<String>,
    /// Text, token by token; of a call, its JSON, which is not shown.
    pub(super) tokens: Vec<String>,
    /// Name and arguments of a tool call, given out after its tokens.
    pub(super) call: Option<(String, Value)>,
}

/// Chooses the answer to a request.
pub(super) fn choose(sim: &Sim, number: u64, request: &Request, model: &Model) -> Words {
    let newest = request.messages.last().map(|message| message.content.as_str());
    let scripted = sim.replies.scripted(newest.unwrap_or_default());
    let mut words = Words::default();
    if model.thinking && request.think != Some(false) {
        words.thinking = match &scripted {
            Some(answer) if !answer.thinking.is_empty() => answer.thinking.clone(),
            _ => tokens::split(THOUGHT),
        };
    }
    if let Some(call) = scripted.as_ref().and_then(|answer| offered_call(answer, request)) {
        words.tokens = json_pieces(&call.1.to_string());
        words.call = Some(call);
        return words;
    }
    words.tokens = match (&request.format, scripted) {
        (None, Some(answer)) => answer.tokens,
        (Some(_), Some(answer)) if is_json(&answer) => answer.tokens,
        (Some(format), _) => {
            let seed = request.sampling.seed.and_then(|seed| u64::try_from(seed).ok());
            let mut rng = fastrand::Rng::with_seed(seed.unwrap_or(sim.seed ^ number));
            json_pieces(&schema::value_for(format, &mut rng).to_string())
        }
        (None, None) => spoken(sim, number, request),
    };
    words
}

fn is_json(answer: &Answer) -> bool {
    serde_json::from_str::<Value>(&answer.tokens.concat()).is_ok()
}

/// The scripted call, if the request offers a tool of that name.
fn offered_call(answer: &Answer, request: &Request) -> Option<(String, Value)> {
    let call = answer.call.as_ref()?;
    let name = call.get("name")?.as_str()?;
    let offers =
        |tool: &Value| tool.pointer("/function/name").and_then(Value::as_str) == Some(name);
    let arguments = call.get("arguments").cloned().unwrap_or_else(|| serde_json::json!({}));
    request.tools.iter().any(offers).then(|| (name.to_owned(), arguments))
}

fn spoken(sim: &Sim, number: u64, request: &Request) -> Vec<String> {
    if let Some(voice) = &sim.voice {
        let messages: Vec<Said> = request
            .messages
            .iter()
            .map(|message| Said { role: message.role.clone(), content: message.content.clone() })
            .collect();
        let limit = request.sampling.num_predict.and_then(|limit| u32::try_from(limit).ok());
        match voice.answer(&messages, limit.filter(|limit| *limit > 0).unwrap_or(VOICE_TOKENS)) {
            Ok(text) => return tokens::split(&text),
            Err(why) => sim.log.add(number, Event::VoiceFailed { why }),
        }
    }
    sim.replies.made_up().tokens
}
