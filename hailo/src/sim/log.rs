//! The event log: everything a simulator did, in order, in simulated and in real time.
//!
//! Tests assert on order and on the planned times inside the events (`prefill_ms`, `load_ms`, …),
//! which do not depend on the machine. The log is bounded; what falls off the front is counted.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::{Condvar, Mutex},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{clock::Clock, server::lock};

/// Entries kept. A token is no entry of its own, so this is some ten thousand generations.
const ENTRIES_MAX: usize = 100_000;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// A complete answer.
    Done,
    /// A complete error answer.
    Error,
    /// The client had left.
    Gone,
    /// The socket was closed in the middle, without the last chunk.
    Cut,
    /// The socket was reset.
    Reset,
    /// The simulated process died, or the simulator stopped.
    Halted,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A request was read completely.
    Seen {
        /// Method and path.
        route: String,
        /// FNV-1a of the body, 16 hex digits.
        body_hash: String,
        /// Model named in the body, if any.
        model: Option<String>,
        /// Number of messages, if any.
        messages: Option<usize>,
        /// Tokens of the rendered prompt, counted as [`super::tokens::count`] does.
        prompt_tokens: u32,
        /// `num_predict` as sent.
        num_predict: Option<i64>,
    },
    /// The request has to wait for the server's lock.
    LockWait,
    /// The request got the lock.
    LockTaken {
        /// Simulated ms spent waiting.
        waited_ms: u64,
        /// The client had already left: a ghost is executed.
        ghost: bool,
    },
    /// The request gave the lock back.
    LockFreed,
    /// A model was loaded.
    Loaded {
        /// Its name.
        model: String,
        /// Planned ms of the load.
        load_ms: u64,
    },
    /// The model was unloaded.
    Unloaded {
        /// Why: `asked`, `expired`, `switched` or `failed`.
        why: String,
    },
    /// Prefill begins.
    Prefill {
        /// Whether the prompt continued what the cache holds.
        continuation: bool,
        /// Tokens that have to be processed.
        tokens: u32,
        /// Tokens found in the cache.
        cached: u32,
        /// Planned ms of prefill.
        prefill_ms: u64,
    },
    /// The response head was sent.
    HeadSent {
        /// Its status.
        status: u16,
    },
    /// The first token was sent.
    FirstToken,
    /// The generation produced its last token.
    Generated {
        /// Tokens produced, with those nobody read.
        tokens: u32,
        /// Planned ms of decoding.
        decode_ms: u64,
        /// `stop`, `length`, or `aborted`.
        reason: String,
    },
    /// The request is over.
    Ended {
        /// How.
        end: End,
        /// Tokens that were written.
        sent: u32,
    },
    /// A field arrived that no client of ours may send.
    Forbidden {
        /// Its name.
        field: String,
    },
    /// A second generation came while another client's was inside.
    Overlap,
    /// A planned fault acted.
    Fault {
        /// Its kind, as in the scenario.
        kind: String,
    },
    /// The simulated process died.
    Crashed {
        /// Why.
        why: String,
    },
    /// The real model behind `--voice` gave no answer; the generator spoke.
    VoiceFailed {
        /// Why.
        why: String,
    },
    /// Something only this simulator has.
    Note {
        /// What.
        what: String,
    },
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Number of the line, from 1.
    pub seq: u64,
    /// Simulated ms since the start.
    pub sim_ms: f64,
    /// Real ms since the start.
    pub real_ms: f64,
    /// Number of the request, from 1; 0 for what belongs to none.
    pub request: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// The log.
#[derive(Debug)]
pub struct Log {
    clock: Clock,
    inner: Mutex<Inner>,
    added: Condvar,
}

#[derive(Debug)]
struct Inner {
    seq: u64,
    entries: VecDeque<Entry>,
    file: Option<File>,
}

impl Log {
    /// A log, also appended to `file` as JSON lines if one is given.
    ///
    /// # Errors
    /// When the file cannot be opened for appending.
    pub fn open(clock: Clock, file: Option<&Path>) -> io::Result<Self> {
        let file = match file {
            Some(path) => Some(OpenOptions::new().create(true).append(true).open(path)?),
            None => None,
        };
        let inner = Mutex::new(Inner { seq: 0, entries: VecDeque::new(), file });
        Ok(Self { clock, inner, added: Condvar::new() })
    }

    /// Appends an event of `request`.
    pub fn add(&self, request: u64, event: Event) {
        let mut inner = lock(&self.inner);
        inner.seq += 1;
        let entry = Entry {
            seq: inner.seq,
            sim_ms: self.clock.now().as_secs_f64() * 1e3,
            real_ms: self.clock.real().as_secs_f64() * 1e3,
            request,
            event,
        };
        if let Some(file) = &mut inner.file
            && let Ok(mut line) = serde_json::to_vec(&entry)
        {
            line.push(b'\n');
            // A full disk must not change what the simulator does on the wire.
            let _ = file.write_all(&line);
        }
        if inner.entries.len() == ENTRIES_MAX {
            inner.entries.pop_front();
        }
        inner.entries.push_back(entry);
        drop(inner);
        self.added.notify_all();
    }

    /// A copy of what is kept.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        lock(&self.inner).entries.iter().cloned().collect()
    }

    /// Forgets everything; numbers go on.
    pub fn clear(&self) {
        lock(&self.inner).entries.clear();
    }

    /// Waits until `seen` is true of the entries, at most `limit` of real time. Returns whether it
    /// became true.
    pub fn wait(&self, limit: Duration, mut seen: impl FnMut(&[Entry]) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut inner = lock(&self.inner);
        loop {
            if seen(inner.entries.make_contiguous()) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inner = self
                .added
                .wait_timeout(inner, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(inner, _)| inner);
        }
    }
}

/// FNV-1a in 64 bits, as 16 hex digits: enough to see whether two bodies are equal.
#[must_use]
pub fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::clock::Pace;

    #[test]
    fn entries_are_numbered_and_written_as_json_lines() {
        let path = std::env::temp_dir().join(format!("hailo-log-{}.jsonl", std::process::id()));
        let log = Log::open(Clock::new(Pace::Instant), Some(&path)).unwrap();
        log.add(1, Event::LockWait);
        log.add(1, Event::Ended { end: End::Done, sent: 3 });
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<Entry> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(lines[1].event, Event::Ended { end: End::Done, sent: 3 });
        assert!(text.contains(r#""event":"ended","end":"done","sent":3"#), "{text}");
    }

    #[test]
    fn fingerprints_are_fnv_1a() {
        assert_eq!(fingerprint(b""), "cbf29ce484222325");
        assert_eq!(fingerprint(b"a"), "af63dc4c8601ec8c");
    }
}
