//! `crayfish ask`: one question, one answer, for scripts and pipes.
//!
//! # Invariants
//! - Standard output has the answer and nothing else; how it goes is told on standard error.
//! - A reader that goes away is no fault of the answer.

use std::io::{self, Read, Write};

use clap::Args;
use serde::Serialize;

use super::clean::Clean;
use super::code;
use super::exchange::{self, End, Interrupts, Known, Show};
use super::link::Link;
use super::place::{PlaceArgs, Places};
use super::{RESERVE, RESERVE_SPEAKS};
use crate::limits;
use crate::session::wire::{ClientFrame, Metadata};

/// Ask one question; what comes on standard input is appended to it
#[derive(Debug, Clone, Default, Args)]
pub struct AskArgs {
    /// The question
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// One JSON object instead of the answer's text
    #[arg(long)]
    pub json: bool,
    /// Conversation to ask in [default: the main one]
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Backend to use [default: the configured order]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Why there is no question.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NoQuestion {
    #[error("nothing was asked: crayfish ask \"...\", or send text on standard input")]
    Empty,
    #[error("the question is too long; at most {} bytes are taken", limits::MESSAGE_BYTES_MAX)]
    TooLong,
    #[error("standard input cannot be read: {0}")]
    Input(String),
}

/// Standard streams, and whether a person looks at them.
pub(super) struct Streams<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) err: &'a mut dyn Write,
    pub(super) err_is_tty: bool,
}

/// What `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Report {
    reply: String,
    backend: Option<String>,
    model: Option<String>,
    session: Option<String>,
    turn: Option<u64>,
    elapsed_ms: Option<u64>,
    first_word_ms: Option<u64>,
    cut: bool,
    clipped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the verb. `input` is standard input unless a person sits there.
pub(super) async fn run(args: &AskArgs, input: Option<&mut dyn Read>, streams: Streams<'_>) -> u8 {
    let question = match question(&args.text, input) {
        Ok(question) => question,
        Err(no) => {
            let _unread = writeln!(streams.err, "{no}");
            return code::USAGE;
        }
    };
    match Link::open(&Places::of_process(&args.place)).await {
        Ok(mut link) => {
            // Only from here on: reading standard input may be ended by Ctrl-C as always.
            let mut interrupts = Interrupts::of_process();
            ask(args, question, &mut link, streams, &mut interrupts).await
        }
        Err(error) => {
            let _unread = writeln!(streams.err, "{error}");
            code::UNREACHABLE
        }
    }
}

/// The words of the command line, and behind them what was piped in.
fn question(words: &[String], input: Option<&mut dyn Read>) -> Result<String, NoQuestion> {
    let mut question = words.join(" ");
    if let Some(input) = input {
        let mut bytes = Vec::new();
        // One byte more than fits tells that there is more.
        let bound = limits::MESSAGE_BYTES_MAX as u64 + 1;
        input.take(bound).read_to_end(&mut bytes).map_err(|e| NoQuestion::Input(e.to_string()))?;
        let piped = String::from_utf8_lossy(&bytes);
        let piped = piped.trim_end();
        if !question.trim().is_empty() && !piped.trim().is_empty() {
            question.push_str("\n\n");
        }
        question.push_str(piped);
        if bytes.len() > limits::MESSAGE_BYTES_MAX {
            return Err(NoQuestion::TooLong);
        }
    }
    if question.trim().is_empty() {
        return Err(NoQuestion::Empty);
    }
    if question.len() > limits::MESSAGE_BYTES_MAX {
        return Err(NoQuestion::TooLong);
    }
    Ok(question)
}

async fn ask(
    args: &AskArgs,
    question: String,
    link: &mut Link,
    streams: Streams<'_>,
    interrupts: &mut Interrupts,
) -> u8 {
    let message = ClientFrame::Message {
        chat_id: args.session.clone(),
        content: question,
        metadata: Metadata::for_backend(args.backend.clone()),
        id: None,
    };
    let mut known = Known { chat_id: args.session.clone(), turn: None };
    let mut page = Page { streams, json: args.json, clean: Clean::default(), text: String::new() };
    let end = exchange::exchange(link, &message, &mut page, interrupts, &mut known).await;
    page.finish(end, known)
}

/// Where the answer goes.
struct Page<'a> {
    streams: Streams<'a>,
    json: bool,
    clean: Clean,
    /// All that was said.
    text: String,
}

impl Show for Page<'_> {
    fn waiting(&mut self, about_s: u32) -> io::Result<()> {
        if self.streams.err_is_tty {
            write!(self.streams.err, "\rthinking, about {about_s} s\x1b[K")?;
            self.streams.err.flush()?;
        }
        Ok(())
    }

    fn words(&mut self, text: &str) -> io::Result<()> {
        if self.streams.err_is_tty && self.text.is_empty() {
            write!(self.streams.err, "\r\x1b[K")?;
            self.streams.err.flush()?;
        }
        self.text.push_str(text);
        if self.json {
            return Ok(());
        }
        let shown: String = text.chars().filter_map(|c| self.clean.keep(c)).collect();
        self.streams.out.write_all(shown.as_bytes())?;
        self.streams.out.flush()
    }
}

impl Page<'_> {
    fn finish(mut self, end: End, known: Known) -> u8 {
        let mut report = Report {
            reply: std::mem::take(&mut self.text),
            session: known.chat_id,
            turn: known.turn,
            ..Report::default()
        };
        if self.streams.err_is_tty && report.reply.is_empty() {
            let _unread = write!(self.streams.err, "\r\x1b[K");
        }
        let (code, says) = match end {
            End::Done(done) => {
                let cut = done.cut.then_some("the answer was cut at its longest");
                let reserve = (done.backend == RESERVE).then_some(RESERVE_SPEAKS);
                let says: Vec<&str> = cut.into_iter().chain(reserve).collect();
                let says = (!says.is_empty()).then(|| says.join("\n"));
                report.session = Some(done.chat_id);
                report.turn = Some(done.turn);
                report.backend = Some(done.backend);
                report.model = Some(done.model);
                report.elapsed_ms = Some(done.elapsed_ms);
                report.first_word_ms = Some(done.first_word_ms);
                report.cut = done.cut;
                report.clipped = done.clipped;
                (code::OK, says.filter(|_| self.streams.err_is_tty))
            }
            End::Failed { detail, code } => {
                let exit = exchange::exit_code(&code);
                report.error = Some(code);
                (exit, Some(detail))
            }
            End::Cancelled | End::Left => {
                report.error = Some("cancelled".into());
                (code::INTERRUPTED, Some("stopped".to_owned()))
            }
            End::Lost(error) => {
                report.error = Some("lost".into());
                (code::UNREACHABLE, Some(error.to_string()))
            }
            // Whoever read enough of the answer does not want to hear of it.
            End::NoOutput(error) if error.kind() == io::ErrorKind::BrokenPipe => return code::OK,
            End::NoOutput(error) => {
                let _unread = writeln!(self.streams.err, "cannot write: {error}");
                return code::FAILED;
            }
        };
        let written = if self.json {
            let object = serde_json::to_string(&report).unwrap_or_else(|_| "{}".to_owned());
            writeln!(self.streams.out, "{object}")
        } else if report.reply.is_empty() || report.reply.ends_with('\n') {
            Ok(())
        } else {
            writeln!(self.streams.out)
        };
        let _unread = written.and_then(|()| self.streams.out.flush());
        if let Some(says) = says {
            let _unread = writeln!(self.streams.err, "{}", Clean::text(&says));
        }
        code
    }
}

#[cfg(test)]
mod tests;
