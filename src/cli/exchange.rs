//! One message and its answer, from a client's side.
//!
//! # Invariants
//! - The first interrupt stops the answer, the second leaves.
//! - However it ends, what was shown before the end was shown once.

use std::time::Duration;

use super::code;
use super::link::{Link, LinkError};
use crate::session::wire::{ClientFrame, Done, ServerFrame};

/// How long a stopped answer may take to end before we leave without it.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Where an answer is shown as it comes. A failed write ends the exchange.
pub(super) trait Show {
    /// The person has to wait for about so many seconds.
    fn waiting(&mut self, about_s: u32) -> std::io::Result<()>;
    /// Words of the answer.
    fn words(&mut self, text: &str) -> std::io::Result<()>;
}

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum End {
    /// The answer is complete.
    Done(Done),
    /// The turn failed, or the message was refused.
    Failed {
        /// For the person.
        detail: String,
        /// For programs.
        code: String,
    },
    /// It was stopped.
    Cancelled,
    /// The person left without waiting for the end.
    Left,
    /// The daemon is gone.
    Lost(LinkError),
    /// Nobody takes the output any more.
    NoOutput(std::io::Error),
}

/// Where interrupts (Ctrl-C) come from.
pub(super) enum Interrupts {
    /// The process's.
    Signal(tokio::signal::unix::Signal),
    /// A test's.
    #[cfg(test)]
    Channel(tokio::sync::mpsc::Receiver<()>),
    /// None will come: they could not be set up, and the default action holds.
    None,
}

impl Interrupts {
    /// From now on interrupts do not end the process. Needs a running tokio runtime.
    pub(super) fn of_process() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::interrupt()).map_or(Self::None, Self::Signal)
    }

    /// The next interrupt.
    ///
    /// # Cancel safety
    /// None is lost.
    pub(super) async fn next(&mut self) {
        let came = match self {
            Self::Signal(signal) => signal.recv().await.is_some(),
            #[cfg(test)]
            Self::Channel(channel) => channel.recv().await.is_some(),
            Self::None => false,
        };
        if !came {
            std::future::pending::<()>().await;
        }
    }
}

/// What is known of a turn that runs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// The conversation's name, once the daemon said it.
    pub(super) chat_id: Option<String>,
    /// The turn's number, likewise.
    pub(super) turn: Option<u64>,
}

/// Sends a message and shows its answer.
pub(super) async fn exchange(
    link: &mut Link,
    message: &ClientFrame,
    show: &mut dyn Show,
    interrupts: &mut Interrupts,
    known: &mut Known,
) -> End {
    if let Err(error) = link.send(message).await {
        return End::Lost(error);
    }
    let mut stopping = false;
    let patience = tokio::time::sleep(STOP_MAX);
    let mut patience = std::pin::pin!(patience);
    loop {
        let frame = tokio::select! {
            biased;
            () = interrupts.next() => {
                if stopping {
                    return End::Left;
                }
                stopping = true;
                patience.as_mut().reset(tokio::time::Instant::now() + STOP_MAX);
                let stop = ClientFrame::Cancel { chat_id: known.chat_id.clone() };
                if let Err(error) = link.send(&stop).await {
                    return End::Lost(error);
                }
                continue;
            }
            () = patience.as_mut(), if stopping => return End::Left,
            frame = link.next() => frame,
        };
        let shown = match frame {
            Err(error) => return End::Lost(error),
            Ok(ServerFrame::Waiting { about_s, chat_id, turn }) => {
                *known = Known { chat_id: Some(chat_id), turn: Some(turn) };
                show.waiting(about_s)
            }
            Ok(ServerFrame::Delta { text, chat_id, stream_id }) => {
                *known = Known { chat_id: Some(chat_id), turn: Some(stream_id) };
                show.words(&text)
            }
            Ok(ServerFrame::Done(done)) => {
                known.chat_id = Some(done.chat_id.clone());
                return End::Done(done);
            }
            Ok(ServerFrame::Error { detail, code, .. }) => return End::Failed { detail, code },
            Ok(ServerFrame::Cancelled { .. }) => return End::Cancelled,
            Ok(_) => Ok(()),
        };
        if let Err(error) = shown {
            return End::NoOutput(error);
        }
    }
}

/// The exit code for a failure with this word.
pub(super) fn exit_code(word: &str) -> u8 {
    match word {
        "offline" | "stopping" => code::UNREACHABLE,
        "empty" | "too_long" | "bad_session" | "no_such_backend" | "bad_frame" => code::USAGE,
        "cancelled" => code::INTERRUPTED,
        _ => code::FAILED,
    }
}

#[cfg(test)]
pub(super) mod tests;
