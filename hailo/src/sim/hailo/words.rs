//! What the model says: the script, a real model's words, or made-up sentences, with the thinking
//! in the form in which the simulated model shows it.

use std::{sync::Arc, thread};

use super::engine::Sim;
use crate::{
    model::{Model, Thinking},
    sim::{log::Event, scenario::Answer, tokens, voice::Said},
};

/// Tokens asked from a real model at most; the simulator cuts by the request's own limit.
const VOICE_LIMIT: u32 = 512;
/// Tokens of garbage when a request broke the sampler.
const GARBAGE_TOKENS: usize = 48;
/// What a thinking model thinks when nobody wrote it a script.
const THOUGHT: &str = "The person wrote to me and expects a short, friendly answer.";

/// Begins to find the words in a thread of its own: a real model may take its time while the
/// simulated prefill runs.
pub(super) fn start(
    sim: &Arc<Sim>,
    model: &'static Model,
    messages: Vec<Said>,
    newest: String,
) -> thread::JoinHandle<Vec<String>> {
    let sim = Arc::clone(sim);
    thread::spawn(move || find(&sim, model, &messages, &newest))
}

fn find(sim: &Sim, model: &Model, messages: &[Said], newest: &str) -> Vec<String> {
    if let Some(answer) = sim.replies.scripted(newest) {
        return shown(model.thinking, answer);
    }
    if let Some(voice) = &sim.voice {
        match voice.answer(messages, VOICE_LIMIT) {
            Ok(text) => return tokens::split(&text),
            Err(why) => sim.log.add(0, Event::VoiceFailed { why }),
        }
    }
    let mut answer = sim.replies.made_up();
    if model.thinking != Thinking::None && !newest.contains("/no_think") {
        answer.thinking = tokens::split(THOUGHT);
    }
    let empty = answer.thinking.is_empty() && model.thinking == Thinking::Tagged;
    let mut words = shown(model.thinking, answer);
    if empty {
        // The soft switch leaves an empty thought behind.
        words.insert(0, "<think>\n\n</think>\n\n".into());
    }
    words
}

/// Thinking between its tags; a model that starts inside sends only the closing one.
fn shown(thinking: Thinking, answer: Answer) -> Vec<String> {
    if answer.thinking.is_empty() {
        return answer.tokens;
    }
    let open = (thinking != Thinking::StartsInside).then(|| "<think>\n".to_owned());
    let close = "\n</think>\n\n".to_owned();
    open.into_iter().chain(answer.thinking).chain([close]).chain(answer.tokens).collect()
}

/// What comes out of a sampler that divided by zero.
pub(super) fn garbage(random: &mut fastrand::Rng) -> Vec<String> {
    const PIECES: [&str; 6] = ["!", "!!", " the", "\u{fffd}", "0", "##"];
    (0..GARBAGE_TOKENS).map(|_| PIECES[random.usize(..PIECES.len())].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Reply;

    #[test]
    fn thinking_has_the_tags_of_its_model() {
        let answer = || Reply { think: Some("hm".into()), ..Reply::text("yes") }.answer();
        for (thinking, text) in [
            (Thinking::Tagged, "<think>\nhm\n</think>\n\nyes"),
            (Thinking::StartsInside, "hm\n</think>\n\nyes"),
        ] {
            assert_eq!(shown(thinking, answer()).concat(), text);
        }
        assert_eq!(shown(Thinking::None, Reply::text("yes").answer()).concat(), "yes");
    }
}
