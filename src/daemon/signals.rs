//! Signals as values: SIGTERM and SIGINT ask for the drain (a second one for the immediate exit,
//! which is the supervisor's decision), SIGHUP for a reload.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use tokio::signal::unix::{self, SignalKind};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals of this process, as a stream that never ends. Signals of one kind that come faster
/// than they are read count once, as everywhere in Unix.
#[derive(Debug)]
pub struct Signals {
    term: unix::Signal,
    int: unix::Signal,
    hup: unix::Signal,
}

impl Signals {
    /// Takes the signals over. From now on they do not end the process any more, so this comes
    /// when somebody is about to read them.
    ///
    /// # Errors
    /// The system refused to register a handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            term: unix::signal(SignalKind::terminate())?,
            int: unix::signal(SignalKind::interrupt())?,
            hup: unix::signal(SignalKind::hangup())?,
        })
    }
}

impl Stream for Signals {
    type Item = Signal;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Signal>> {
        // A kind that is pending has kept the waker, so the next of any kind wakes the reader.
        if self.term.poll_recv(cx).is_ready() || self.int.poll_recv(cx).is_ready() {
            return Poll::Ready(Some(Signal::Stop));
        }
        if self.hup.poll_recv(cx).is_ready() {
            return Poll::Ready(Some(Signal::Reload));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt;
    use rustix::process::{Signal as Kind, getpid, kill_process};

    use super::*;

    /// One test for all kinds: the signals are those of the whole test process.
    #[tokio::test]
    async fn each_kind_of_signal_arrives_as_what_it_asks_for() {
        let mut signals = Signals::new().unwrap();
        for (kind, expected) in [
            (Kind::HUP, Signal::Reload),
            (Kind::TERM, Signal::Stop),
            (Kind::INT, Signal::Stop),
            (Kind::TERM, Signal::Stop),
        ] {
            kill_process(getpid(), kind).unwrap();
            let next = tokio::time::timeout(Duration::from_secs(20), signals.next()).await;
            assert_eq!(next.unwrap(), Some(expected), "{kind:?}");
        }
    }
}
