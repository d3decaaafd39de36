//! The command line: one file a verb.
//!
//! The client verbs (`chat`, `ask`, `status`) talk to the daemon over its socket and know nothing
//! else of it; `model` sees to files that the daemon looks at by itself; `run` becomes the daemon.

mod ask;
mod chat;
pub mod check;
mod clean;
mod exchange;
mod link;
mod markdown;
mod model;
mod place;
mod run;
#[cfg(feature = "sim")]
mod sim;
mod status;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

pub use self::ask::AskArgs;
pub use self::chat::ChatArgs;
use self::chat::Look;
use self::check::CheckArgs;
use self::exchange::Interrupts;
pub use self::model::ModelArgs;
pub use self::place::PlaceArgs;
pub use self::run::RunArgs;
pub use self::status::StatusArgs;
use crate::daemon;

/// Exit codes of the client verbs.
mod code {
    /// All went well.
    pub(super) const OK: u8 = 0;
    /// The turn failed.
    pub(super) const FAILED: u8 = 1;
    /// The command line, or what was asked, is wrong.
    pub(super) const USAGE: u8 = 2;
    /// No daemon, or no model, answers.
    pub(super) const UNREACHABLE: u8 = 3;
    /// A person stopped it: 128 + SIGINT, as shells say it.
    pub(super) const INTERRUPTED: u8 = 130;
}

/// The backend that is a small model inside the daemon.
const RESERVE: &str = "reserve";

/// What a person must know before they judge its answers.
const RESERVE_SPEAKS: &str = "a small reserve model answers, and it is often wrong; for good \
     answers start Ollama with qwen2.5:1.5b";

/// A resident companion for a Raspberry Pi 5 with a Hailo-10H NPU
#[derive(Debug, Parser)]
#[command(name = "crayfish", version, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(RunArgs),
    Chat(ChatArgs),
    Ask(AskArgs),
    Status(StatusArgs),
    Check(CheckArgs),
    Model(ModelArgs),
    #[cfg(feature = "sim")]
    Sim(sim::SimArgs),
}

/// A model's Markdown as a terminal gets it, in pieces of one character; for the fuzz targets.
#[cfg(any(test, feature = "sim"))]
#[must_use]
pub fn rendered(text: &str, styled: bool) -> String {
    let mut markdown = markdown::Markdown::new(styled);
    let mut out: String = text.chars().map(|c| markdown.push(&c.to_string())).collect();
    out.push_str(&markdown.finish());
    out
}

/// Runs the verb of a command line, whose first word is the program's name, and gives the
/// process's exit code.
pub fn main(words: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let line = match CommandLine::try_parse_from(&words) {
        Ok(line) => line,
        Err(error) => {
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Nobody reads it: the code says it as well.
            let _unread = error.print();
            return if asked { code::OK } else { usage_code(words.get(1)) };
        }
    };
    match line.verb.unwrap_or(Verb::Run(line.run)) {
        Verb::Run(args) => {
            let fetch = model::offer(&args);
            daemon::run(args.wish(fetch))
        }
        Verb::Check(args) => check::run(&args, &mut io::stdout().lock()),
        #[cfg(feature = "sim")]
        Verb::Sim(args) => sim::run(&args, &mut io::stdout().lock()),
        client => converse(&client),
    }
}

/// A client verb's wrong words are 2, as scripts expect it. Everything else would have been the
/// daemon, whose code is that of `sysexits.h`: a service manager must not start it again.
fn usage_code(verb: Option<&OsString>) -> u8 {
    let client = |verb: &OsString| {
        ["chat", "ask", "status", "check", "model"].iter().any(|known| verb.as_os_str() == *known)
    };
    if verb.is_some_and(client) { code::USAGE } else { daemon::exit::USAGE }
}

/// Runs a verb that talks to the daemon.
fn converse(verb: &Verb) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _unread = writeln!(io::stderr().lock(), "cannot start: {error}");
            return code::FAILED;
        }
    };
    // Not locked: the line editor writes to the terminal as well.
    let (mut out, mut err) = (io::stdout(), io::stderr());
    runtime.block_on(async {
        match verb {
            Verb::Chat(args) => {
                let var = |name| std::env::var(name).ok();
                let (term, no_color) = (var("TERM"), var("NO_COLOR"));
                let tty = out.is_terminal();
                let look = Look::of(tty, term.as_deref(), no_color.as_deref());
                let mut interrupts = Interrupts::of_process();
                chat::run(args, &mut out, &mut err, look, &mut interrupts).await
            }
            Verb::Ask(args) => {
                let mut stdin = io::stdin();
                let input = (!stdin.is_terminal()).then_some(&mut stdin as &mut dyn Read);
                let err_is_tty = err.is_terminal();
                let streams = ask::Streams { out: &mut out, err: &mut err, err_is_tty };
                ask::run(args, input, streams).await
            }
            Verb::Status(args) => status::run(args, &mut out, &mut err).await,
            Verb::Model(args) => model::run(args, &mut out, &mut err).await,
            Verb::Run(_) | Verb::Check(_) => code::USAGE,
            #[cfg(feature = "sim")]
            Verb::Sim(_) => code::USAGE,
        }
    })
}
