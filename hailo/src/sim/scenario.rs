//! What a simulator says and what goes wrong, as one JSON file.
//!
//! ```json
//! {
//!   "seed": 7,
//!   "cycle": false,
//!   "replies": [
//!     {"text": "Hello."},
//!     {"tokens": ["He", "llo", "."]},
//!     {"json": {"verb": "SAY"}},
//!     {"think": "The person greets me.", "text": "Hello."},
//!     {"emoji": "🦞", "text": "A crayfish."},
//!     {"loop": "and then ", "times": 200},
//!     {"when": "weather", "text": "It rains."}
//!   ],
//!   "faults": [
//!     {"at": 3, "phase": "before_head", "kind": "reset"},
//!     {"at": "next", "phase": {"token": 4}, "kind": {"slow": 0.5}},
//!     {"at": "every", "phase": "after_head", "kind": {"status": {"code": 500, "text": "Boom"}}}
//!   ]
//! }
//! ```
//! A reply with `when` answers every request whose newest message contains that text; the others
//! are used in order, one a generation, again from the start with `cycle`. After the last one
//! seeded sentences are made up.

use std::{fs, path::Path, sync::Mutex};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{server::lock, tokens};

/// A scenario file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Seed of the made-up sentences and of all chance; the command line's seed wins.
    pub seed: Option<u64>,
    /// Whether the replies start again after the last.
    pub cycle: bool,
    /// What is said.
    pub replies: Vec<Reply>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// One scripted answer; parts are joined in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    /// Use it for every request whose newest message contains this.
    pub when: Option<String>,
    /// Thinking, put between think tags (or in the thinking field of a server that has one).
    pub think: Option<String>,
    /// An emoji that needs two tokens: the first is an empty line, the second has it all.
    pub emoji: Option<String>,
    /// Exact tokens.
    pub tokens: Option<Vec<String>>,
    /// Text, cut into tokens by the simulator's rule.
    pub text: Option<String>,
    /// A JSON value, sent as text.
    pub json: Option<Value>,
    /// Text that repeats `times` times, one token each.
    #[serde(rename = "loop")]
    pub repeat: Option<String>,
    /// How often; 400 when absent.
    pub times: Option<u32>,
    /// A tool call, `{"name": …, "arguments": {…}}`, instead of text; only for a server that has
    /// tool calls, and only when the request offers a tool of that name.
    pub call: Option<Value>,
}

/// An answer as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Tokens of thinking, without tags.
    pub thinking: Vec<String>,
    /// Tokens of the answer.
    pub tokens: Vec<String>,
    /// A tool call to make instead.
    pub call: Option<Value>,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Which generation.
    #[serde(default)]
    pub at: At,
    /// When in its life.
    pub phase: Phase,
    /// What.
    pub kind: Kind,
}

/// Which generation a fault hits: a number from 1, `"next"` or `"every"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AtWire", into = "AtWire")]
pub enum At {
    /// The generation with this number since the start.
    Number(u64),
    /// The next one, once.
    #[default]
    Next,
    /// Every one, until the simulator is reset.
    Every,
}

/// When in a generation's life a fault acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The request was read, nothing was done.
    BeforeHead,
    /// The model is being loaded; acts only if it has to be.
    DuringLoad,
    /// The head was sent, prefill begins.
    AfterHead,
    /// So many tokens were sent.
    Token(u32),
    /// All tokens were sent, the last line was not.
    BeforeDone,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The socket ends in RST.
    Reset,
    /// The socket ends in FIN, without the last chunk.
    Close,
    /// Silence for ever, with the socket open.
    Hang,
    /// The body ends properly (last chunk) but without its last line.
    Truncate,
    /// A line that is not JSON; then the generation goes on.
    Garbage,
    /// A line `{"error": text}`, then the end.
    ErrorLine(String),
    /// An error answer, if no head was sent; otherwise the socket is closed.
    Status {
        /// HTTP status.
        code: u16,
        /// What the server says is wrong.
        text: String,
    },
    /// From here on decoding runs at this part of its rate, until the simulator is reset.
    Slow(f64),
    /// Nothing for so many simulated ms, whether the client stays or leaves; then the generation
    /// goes on. A long one is a wedged server: its lock is held by a request nobody waits for.
    Stall(u64),
    /// The process dies: every socket is reset and new ones are refused for a while.
    Crash,
}

impl Fault {
    /// A fault of the next generation.
    #[must_use]
    pub fn next(phase: Phase, kind: Kind) -> Self {
        Self { at: At::Next, phase, kind }
    }

    /// A fault of every generation until the simulator is reset.
    #[must_use]
    pub fn every(phase: Phase, kind: Kind) -> Self {
        Self { at: At::Every, phase, kind }
    }
}

impl Kind {
    /// Its name as in a scenario.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Close => "close",
            Self::Hang => "hang",
            Self::Truncate => "truncate",
            Self::Garbage => "garbage",
            Self::ErrorLine(_) => "error_line",
            Self::Status { .. } => "status",
            Self::Slow(_) => "slow",
            Self::Stall(_) => "stall",
            Self::Crash => "crash",
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum AtWire {
    Number(u64),
    Word(String),
}

impl TryFrom<AtWire> for At {
    type Error = String;

    fn try_from(wire: AtWire) -> Result<Self, String> {
        match wire {
            AtWire::Number(number) => Ok(Self::Number(number)),
            AtWire::Word(word) if word == "next" => Ok(Self::Next),
            AtWire::Word(word) if word == "every" => Ok(Self::Every),
            AtWire::Word(word) => Err(format!("{word:?} is neither a number, next nor every")),
        }
    }
}

impl From<At> for AtWire {
    fn from(at: At) -> Self {
        match at {
            At::Number(number) => Self::Number(number),
            At::Next => Self::Word("next".into()),
            At::Every => Self::Word("every".into()),
        }
    }
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// What is wrong with the file, with its name.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl Reply {
    /// A reply of plain text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// The reply as tokens.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let mut out = Vec::new();
        if let Some(emoji) = &self.emoji {
            out.extend([String::new(), emoji.clone()]);
        }
        out.extend(self.tokens.iter().flatten().cloned());
        out.extend(self.text.iter().flat_map(|text| tokens::split(text)));
        out.extend(self.json.iter().flat_map(|json| tokens::split(&json.to_string())));
        if let Some(repeat) = &self.repeat {
            let times = usize::try_from(self.times.unwrap_or(REPEATS)).unwrap_or(usize::MAX);
            out.extend(std::iter::repeat_n(repeat.clone(), times));
        }
        let thinking = self.think.as_deref().map(tokens::split).unwrap_or_default();
        Answer { thinking, tokens: out, call: self.call.clone() }
    }
}

/// Where answers come from: the script first, then made-up sentences.
#[derive(Debug)]
pub struct Replies {
    seed: u64,
    cycle: bool,
    when: Vec<Reply>,
    ordered: Vec<Reply>,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    scripted: usize,
    made_up: u64,
}

impl Replies {
    /// The replies of a scenario.
    #[must_use]
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let (when, ordered) =
            scenario.replies.iter().cloned().partition(|reply: &Reply| reply.when.is_some());
        Self { seed, cycle: scenario.cycle, when, ordered, used: Mutex::default() }
    }

    /// The scripted answer to a conversation whose newest message is `newest`, if there is one.
    #[must_use]
    pub fn scripted(&self, newest: &str) -> Option<Answer> {
        let matches =
            |reply: &&Reply| reply.when.as_ref().is_some_and(|part| newest.contains(part.as_str()));
        if let Some(reply) = self.when.iter().find(matches) {
            return Some(reply.answer());
        }
        let mut used = lock(&self.used);
        if self.cycle && used.scripted >= self.ordered.len() {
            used.scripted = 0;
        }
        let reply = self.ordered.get(used.scripted)?;
        used.scripted += 1;
        Some(reply.answer())
    }

    /// Two or three plain sentences, 20 to 40 words, the same for the same seed and turn.
    #[must_use]
    pub fn made_up(&self) -> Answer {
        let turn = {
            let mut used = lock(&self.used);
            used.made_up += 1;
            used.made_up
        };
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000_003) ^ turn);
        let mut pick = |from: &[&'static str]| from[random.usize(..from.len())];
        let text = format!("{} {} {}", pick(&OPENINGS), pick(&MIDDLES), pick(&CLOSINGS));
        Answer { tokens: tokens::split(&text), ..Answer::default() }
    }

    /// Starts the script and the sentences from the beginning.
    pub fn reset(&self) {
        *lock(&self.used) = Used::default();
    }
}

/// Repetitions of a loop when the scenario does not say: far beyond any patience.
const REPEATS: u32 = 400;

/// Each opening, middle and closing has 7 to 13 words, so that their sum is 20 to 40.
const OPENINGS: [&str; 6] = [
    "That is a good question, and I have thought about it.",
    "I am here, and I have read what you wrote to me.",
    "Thank you for telling me; I will keep that in mind.",
    "Let me say it in plain words, as briefly as I can.",
    "I hear you, and I think there is a simple way.",
    "Here is what I can tell you about that right now.",
];
const MIDDLES: [&str; 6] = [
    "The usual answer is to take one small step and look again.",
    "Most of it depends on how much time you have today.",
    "Start with the part you understand best and leave the rest for later.",
    "Two things matter here: what you need now, and what can wait.",
    "I would write it down first, because a written plan is easier to change.",
    "Nothing about it is urgent, so we can go through it slowly.",
];
const CLOSINGS: [&str; 6] = [
    "Tell me if you would like to hear more about it.",
    "If that does not help, ask me again in other words.",
    "Would you like me to go on from there with you?",
    "I am only a simulated voice, but I answer at true speed.",
    "Say the word and we will look at the next part.",
    "That is all I know, and I am glad you asked.",
];

/// The planned faults.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// The faults of a scenario.
    #[must_use]
    pub fn new(faults: Vec<Fault>) -> Self {
        Self(Mutex::new(faults))
    }

    /// Adds one.
    pub fn add(&self, fault: Fault) {
        lock(&self.0).push(fault);
    }

    /// Takes what shall happen to generation `number`: its own, one `next` for each phase, and a
    /// copy of every `every`.
    #[must_use]
    pub fn take(&self, number: u64) -> Vec<Fault> {
        let mut planned = lock(&self.0);
        let mut taken: Vec<Fault> = Vec::new();
        planned.retain(|fault| {
            let (hit, keep) = match fault.at {
                At::Every => (true, true),
                At::Number(own) => (own == number, own != number),
                At::Next => {
                    let first = !taken.iter().any(|t| t.at == At::Next && t.phase == fault.phase);
                    (first, !first)
                }
            };
            if hit {
                taken.push(fault.clone());
            }
            keep
        });
        taken
    }

    /// Forgets all.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Scenario, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn the_example_in_the_documentation_is_a_scenario() {
        let source = include_str!("scenario.rs");
        let example: String = source
            .lines()
            .skip_while(|line| *line != "//! ```json")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .map(|line| line.trim_start_matches("//! "))
            .collect();
        let scenario = read(&example).unwrap();
        assert_eq!(scenario.replies.len(), 7);
        assert_eq!(scenario.faults[0].at, At::Number(3));
        assert_eq!(scenario.faults[1].phase, Phase::Token(4));
        assert_eq!(scenario.faults[2].kind, Kind::Status { code: 500, text: "Boom".into() });
        let again = serde_json::to_string(&scenario).unwrap();
        assert_eq!(read(&again).unwrap(), scenario);
    }

    #[test]
    fn unknown_words_are_refused() {
        for text in [
            r#"{"reply": []}"#,
            r#"{"faults": [{"at": "later", "phase": "before_head", "kind": "reset"}]}"#,
            r#"{"faults": [{"phase": "whenever", "kind": "reset"}]}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn replies_are_used_in_order_and_matching_ones_at_any_time() {
        let scenario = Scenario {
            replies: vec![
                Reply::text("one"),
                Reply { when: Some("rain".into()), ..Reply::text("wet") },
                Reply::text("two"),
            ],
            ..Scenario::default()
        };
        let replies = Replies::new(&scenario, 1);
        let said = |newest| replies.scripted(newest).map(|answer| answer.tokens.concat());
        assert_eq!(said("hello").as_deref(), Some("one"));
        assert_eq!(said("will it rain?").as_deref(), Some("wet"));
        assert_eq!(said("hello").as_deref(), Some("two"));
        assert_eq!(said("hello"), None);
    }

    #[test]
    fn made_up_answers_have_twenty_to_forty_words_and_repeat_with_their_seed() {
        let speak = |seed| {
            let replies = Replies::new(&Scenario::default(), seed);
            (0..50).map(|_| replies.made_up().tokens.concat()).collect::<Vec<_>>()
        };
        let first = speak(3);
        assert_eq!(first, speak(3));
        assert_ne!(first, speak(4));
        for text in first {
            let words = text.split_whitespace().count();
            assert!((20..=40).contains(&words), "{words}: {text}");
        }
    }

    #[test]
    fn faults_hit_their_number_once_next_once_and_every_always() {
        let fault = |at, kind| Fault { at, phase: Phase::BeforeHead, kind };
        let faults = Faults::new(vec![
            fault(At::Number(2), Kind::Reset),
            fault(At::Next, Kind::Close),
            fault(At::Next, Kind::Hang),
            fault(At::Every, Kind::Garbage),
        ]);
        let names =
            |number| faults.take(number).iter().map(|fault| fault.kind.name()).collect::<Vec<_>>();
        assert_eq!(names(1), ["close", "garbage"]);
        assert_eq!(names(2), ["reset", "hang", "garbage"]);
        assert_eq!(names(3), ["garbage"]);
    }

    #[test]
    fn an_emoji_comes_as_an_empty_token_and_a_whole_one() {
        let reply = Reply { emoji: Some("🦞".into()), ..Reply::text("yes") };
        assert_eq!(reply.answer().tokens[..2], [String::new(), "🦞".to_owned()]);
    }
}
