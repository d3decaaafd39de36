//! From a turn to its door, without waiting for it.
//!
//! A reader that is slow must not keep the model's slot taken: text that does not fit into the
//! queue is gathered and goes with the next piece. Two places are reserved from the start, for
//! the rest of the text and for the end, so that a turn can always end without waiting.

use tokio::sync::mpsc;

use super::TurnEvent;
use crate::limits;

/// Sends the events of one turn.
pub(super) struct Relay {
    events: mpsc::Sender<TurnEvent>,
    held_back: String,
    last: LastWords,
}

/// The right to send the end, whatever happened to the relay.
pub(super) struct LastWords(mpsc::Sender<TurnEvent>);

/// A relay and its door's end.
pub(super) fn relay() -> (Relay, mpsc::Receiver<TurnEvent>) {
    let (events, receiver) = mpsc::channel(limits::TURN_EVENTS_QUEUE);
    let last = LastWords(events.clone());
    (Relay { events, held_back: String::new(), last }, receiver)
}

impl Relay {
    /// Another right to send the end.
    pub(super) fn last_words(&self) -> LastWords {
        LastWords(self.last.0.clone())
    }

    /// Tells the wait, if the door keeps up.
    pub(super) fn waiting(&self, about_s: u32) {
        if self.events.capacity() > RESERVED {
            let _ = self.events.try_send(TurnEvent::Waiting { about_s });
        }
    }

    /// Passes text on, or holds it back until there is room.
    pub(super) fn text(&mut self, text: &str) {
        self.held_back.push_str(text);
        if self.events.capacity() > RESERVED {
            let text = std::mem::take(&mut self.held_back);
            let _ = self.events.try_send(TurnEvent::Delta(text));
        }
    }

    /// Sends what was held back and the end.
    pub(super) fn end(self, end: TurnEvent) {
        if !self.held_back.is_empty() {
            let _ = self.events.try_send(TurnEvent::Delta(self.held_back));
        }
        self.last.say(end);
    }
}

impl LastWords {
    /// Sends the end.
    pub(super) fn say(self, end: TurnEvent) {
        // A door that is gone needs no end.
        let _ = self.0.try_send(end);
    }
}

/// Places in the queue that only `Relay::end` uses. Nobody else sends, so they stay free.
const RESERVED: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_never_reads_still_finds_all_text_and_the_end() {
        let (mut relay, mut door) = relay();
        relay.waiting(3);
        for _ in 0..10_000 {
            relay.text("word ");
        }
        relay.end(TurnEvent::Cancelled);
        let (mut text, mut end) = (String::new(), None);
        while let Some(event) = door.recv().await {
            match event {
                TurnEvent::Delta(piece) => text.push_str(&piece),
                TurnEvent::Waiting { .. } => {}
                other => assert!(end.replace(other).is_none(), "one end"),
            }
        }
        assert_eq!(text, "word ".repeat(10_000));
        assert_eq!(end, Some(TurnEvent::Cancelled));
    }
}
