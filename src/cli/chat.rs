//! `crayfish chat`: a conversation in the terminal.
//!
//! # Invariants
//! - What a person typed is never lost: it is in the log, or on the line again.
//! - Ctrl-C stops an answer; the next one leaves.

mod command;
mod recover;
mod screen;
mod sessions;
mod typing;

use std::io::{self, Write};

use clap::Args;
use futures_util::FutureExt;

use self::command::Command;
use self::recover::{Kept, Lost};
pub(super) use self::screen::Look;
use self::screen::Screen;
pub(super) use self::typing::{Editing, Typed, Typing};
use super::clean::Clean;
use super::code;
use super::exchange::{self, End, Interrupts, Known};
use super::link::{Link, LinkError};
use super::place::{PlaceArgs, Places};
use super::status;
use super::{RESERVE, RESERVE_SPEAKS};
use crate::limits;
use crate::session::wire::{ClientFrame, Done, HistoryLine, Metadata, ServerFrame, is_chat_id};

const NOT_A_NAME: &str = "not a session name: use 1 to 64 letters, digits, '_', ':' or '-'";

/// Talk with the agent
#[derive(Debug, Clone, Default, Args)]
pub struct ChatArgs {
    /// Conversation to go on with [default: the main one]
    #[arg(long, value_name = "NAME", conflicts_with = "new")]
    pub session: Option<String>,
    /// Begin a conversation of its own
    #[arg(long)]
    pub new: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Runs the verb with a person or a pipe on standard input.
pub(super) async fn run(
    args: &ChatArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
    look: Look,
    interrupts: &mut Interrupts,
) -> u8 {
    let places = Places::of_process(&args.place);
    let started = match Chat::begin(args, places, look).await {
        Ok(mut chat) => match Editing::new(chat.places.typed.clone()) {
            Ok(mut typing) => return chat.talk(&mut typing, out, interrupts).await,
            Err(error) => (code::FAILED, error.to_string()),
        },
        Err(refused) => refused,
    };
    let (code, words) = started;
    let _unread = writeln!(err, "{}", Clean::text(&words));
    code
}

/// A conversation as its client knows it.
struct Chat {
    places: Places,
    look: Look,
    /// Absent while the daemon is gone.
    link: Option<Link>,
    designation: String,
    /// Absent is the main conversation.
    session: Option<String>,
    backend: Option<String>,
    /// The newest turn that was seen to its end.
    last_turn: u64,
    /// Text that is put on the line again.
    kept: String,
    /// The person knows that the reserve speaks.
    told_of_reserve: bool,
}

/// Whether the conversation goes on.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Line,
    /// The next Ctrl-C leaves.
    Stopped,
    Leave(u8),
}

impl Chat {
    async fn begin(args: &ChatArgs, places: Places, look: Look) -> Result<Self, (u8, String)> {
        if args.session.as_deref().is_some_and(|name| !is_chat_id(name)) {
            return Err((code::USAGE, NOT_A_NAME.to_owned()));
        }
        let refused = |error: LinkError| (code::UNREACHABLE, error.to_string());
        let link = Link::open(&places).await.map_err(refused)?;
        let mut chat = Self {
            places,
            look,
            designation: Clean::text(&link.designation),
            link: Some(link),
            session: args.session.clone(),
            backend: None,
            last_turn: 0,
            kept: String::new(),
            told_of_reserve: false,
        };
        if args.new {
            chat.new_session().await.map_err(refused)?;
        }
        // What was said before this client came is not ours to look for after a loss.
        chat.last_turn = chat.history(1).await.map_err(refused)?.last().map_or(0, |line| line.turn);
        Ok(chat)
    }

    async fn talk(
        &mut self,
        typing: &mut dyn Typing,
        out: &mut dyn Write,
        interrupts: &mut Interrupts,
    ) -> u8 {
        let mut next = Next::Line;
        loop {
            let prompt = format!("{}> ", self.designation);
            let typed = typing.read(&prompt, &std::mem::take(&mut self.kept));
            let said = match typed {
                Typed::Line(line) => self.act(&line, out, interrupts).await,
                Typed::Interrupt if next == Next::Stopped => return code::INTERRUPTED,
                Typed::Interrupt => {
                    self.note(out, "Ctrl-C again or /quit leaves").map(|()| Next::Stopped)
                }
                Typed::End => return code::OK,
                Typed::Failed(error) => Err(error),
            };
            match said {
                Ok(Next::Leave(code)) => return code,
                Ok(other) => next = other,
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return code::OK,
                Err(_) => return code::FAILED,
            }
        }
    }

    fn note(&self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        Screen::new(out, self.look).note(text)
    }

    async fn act(
        &mut self,
        line: &str,
        out: &mut dyn Write,
        interrupts: &mut Interrupts,
    ) -> io::Result<Next> {
        let asked = match command::parse(line) {
            Command::Nothing => return Ok(Next::Line),
            Command::Quit => return Ok(Next::Leave(code::OK)),
            Command::Say(text) => return self.say(&text, out, interrupts).await,
            Command::Help => Ok(command::HELP.to_owned()),
            Command::Unknown(name) => {
                self.kept = line.to_owned();
                Ok(format!("there is no {name}; /help names what there is"))
            }
            Command::Backend(name) => {
                let words = match &name {
                    Some(name) => format!("from now on {name} answers"),
                    None => "from now on the configured order answers".to_owned(),
                };
                self.backend = name;
                Ok(words)
            }
            Command::New => self.new_session().await.map(|name| format!("new conversation {name}")),
            Command::Stop => self.stop().await,
            Command::Sessions => self.sessions().await,
            Command::Session(name) if name.as_deref().is_some_and(|name| !is_chat_id(name)) => {
                self.kept = line.to_owned();
                Ok(NOT_A_NAME.to_owned())
            }
            Command::Session(name) => self.go_on_with(name).await,
            Command::Status => self.status().await,
            Command::History => self.history(limits::HISTORY_LINES_DEFAULT).await.map(|lines| {
                let lines = lines.iter().map(|line| self.told(line)).collect::<Vec<_>>();
                lines.join("\n")
            }),
        };
        match asked {
            Ok(text) => self.note(out, &text)?,
            Err(error) => {
                if matches!(error, LinkError::Lost(_)) {
                    self.link = None;
                }
                self.note(out, &error.to_string())?;
            }
        }
        Ok(Next::Line)
    }

    /// The connection, opened again if it was lost before.
    async fn link(&mut self) -> Result<&mut Link, LinkError> {
        let link = match self.link.take() {
            Some(link) => link,
            None => Link::open(&self.places).await?,
        };
        Ok(self.link.insert(link))
    }

    async fn new_session(&mut self) -> Result<String, LinkError> {
        let attached = |frame| match frame {
            ServerFrame::Attached { chat_id } => Some(chat_id),
            _ => None,
        };
        let name = self.link().await?.request(&ClientFrame::NewChat, attached).await?;
        self.session = Some(name.clone());
        self.last_turn = 0;
        Ok(name)
    }

    async fn history(&mut self, limit: usize) -> Result<Vec<HistoryLine>, LinkError> {
        let session = self.session.clone();
        recover::history(self.link().await?, session, limit).await
    }

    async fn status(&mut self) -> Result<String, LinkError> {
        status::ask(self.link().await?).await.map(|status| status::table(&status))
    }

    async fn stop(&mut self) -> Result<String, LinkError> {
        let frame = ClientFrame::Cancel { chat_id: self.session.clone() };
        let acknowledged = |frame| match frame {
            ServerFrame::StopAck { stopped, .. } => Some(stopped),
            _ => None,
        };
        let stopped = self.link().await?.request(&frame, acknowledged).await?;
        Ok(if stopped { "stopped" } else { "nothing runs in this conversation" }.to_owned())
    }

    fn told(&self, line: &HistoryLine) -> String {
        let who = if line.role == "user" { "you" } else { &self.designation };
        let how = match line.outcome.as_deref() {
            None | Some("done") => String::new(),
            Some(outcome) => format!(" [{outcome}]"),
        };
        format!("{who}: {}{how}", line.content)
    }

    /// Sends what was typed and shows the answer.
    async fn say(
        &mut self,
        text: &str,
        out: &mut dyn Write,
        interrupts: &mut Interrupts,
    ) -> io::Result<Next> {
        let message = ClientFrame::Message {
            chat_id: self.session.clone(),
            content: text.to_owned(),
            metadata: Metadata::for_backend(self.backend.clone()),
            id: None,
        };
        let mut known = Known { chat_id: self.session.clone(), turn: None };
        // A Ctrl-C that came too late for the last answer does not stop the next.
        while interrupts.next().now_or_never().is_some() {}
        let look = self.look;
        let link = match self.link().await {
            Ok(link) => link,
            Err(error) => {
                text.clone_into(&mut self.kept);
                self.note(out, &error.to_string())?;
                return Ok(Next::Line);
            }
        };
        let mut screen = Screen::new(out, look);
        let end = exchange::exchange(link, &message, &mut screen, interrupts, &mut known).await;
        match end {
            End::NoOutput(error) => return Err(error),
            End::Left => {
                screen.end()?;
                return Ok(Next::Leave(code::INTERRUPTED));
            }
            End::Cancelled => {
                screen.end()?;
                screen.note("stopped")?;
                return Ok(Next::Stopped);
            }
            End::Failed { detail, code } => {
                screen.end()?;
                screen.note(&detail)?;
                // A refused message is not in the log; it must not be typed again.
                if known.turn.is_none() && code != "offline" {
                    text.clone_into(&mut self.kept);
                }
            }
            End::Done(done) => {
                screen.end()?;
                after(&mut screen, &done)?;
                let is_reserve = done.backend == RESERVE;
                if is_reserve && !self.told_of_reserve {
                    screen.note(RESERVE_SPEAKS)?;
                }
                // Told again when it takes over again.
                self.told_of_reserve = is_reserve;
                self.last_turn = done.turn;
            }
            End::Lost(error) => {
                screen.end()?;
                screen.note(&format!("{error}; trying again"))?;
                return self.find(text, &known, out, interrupts).await;
            }
        }
        Ok(Next::Line)
    }

    /// After a loss: waits for the daemon and tells what became of the message.
    async fn find(
        &mut self,
        text: &str,
        known: &Known,
        out: &mut dyn Write,
        interrupts: &mut Interrupts,
    ) -> io::Result<Next> {
        self.link = None;
        let lost = Lost {
            session: self.session.as_deref(),
            text,
            turn: known.turn,
            after: self.last_turn,
        };
        let mut screen = Screen::new(out, self.look);
        let Some((link, kept)) = recover::recover(&self.places, &lost, interrupts).await else {
            // A turn that was seen is in the log; sending it again would ask twice.
            if known.turn.is_some() {
                screen.note("crayfish is not back; what was said so far is in its log")?;
            } else {
                text.clone_into(&mut self.kept);
                screen.note("crayfish is not back; your message stays on the line")?;
            }
            return Ok(Next::Line);
        };
        self.link = Some(link);
        match kept {
            Kept::Nothing => {
                text.clone_into(&mut self.kept);
                screen.note("back; your message did not arrive and is on the line again")?;
            }
            Kept::Message { turn } => {
                self.last_turn = turn;
                screen.note("back; your message arrived and has no answer")?;
            }
            Kept::Answer { turn, text, outcome } => {
                self.last_turn = turn;
                screen.note("back; this was kept of the answer")?;
                exchange::Show::words(&mut screen, &text)?;
                screen.end()?;
                if outcome != "done" {
                    screen.note(&outcome)?;
                }
            }
        }
        Ok(Next::Line)
    }
}

/// What a person should know about an answer.
fn after(screen: &mut Screen<'_>, done: &Done) -> io::Result<()> {
    if done.clipped {
        screen.note("your message was too long for the model; its middle was left out")?;
    }
    if done.cut {
        screen.note("… cut at its longest; ask to continue")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
