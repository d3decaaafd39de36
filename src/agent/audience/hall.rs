//! The state of the audience (pure but for waking readers).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use super::Said;
use crate::agent::{Answer, TurnEvent};
use crate::limits;

/// What a reader hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Happening {
    /// Somebody else said something in a session.
    Said {
        /// The session.
        session: String,
        /// The turn it opened.
        turn: u64,
        /// What.
        said: Said,
    },
    /// Something happened in a turn.
    Turn {
        /// The session.
        session: String,
        /// The turn.
        turn: u64,
        /// What.
        event: TurnEvent,
    },
    /// A session has a title.
    Titled {
        /// The session.
        session: String,
        /// Its title.
        title: String,
        /// When it was last used, in milliseconds since 1970.
        updated_ms: i64,
    },
    /// A session was taken away.
    Deleted {
        /// The session.
        session: String,
    },
    /// The reader is too far behind to be told more; it must come anew.
    Behind,
}

/// An unfinished turn as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snap {
    /// Its number.
    pub turn: u64,
    /// What the person said.
    pub said: Said,
    /// What was shown so far.
    pub text: String,
    /// Seconds until the first word, as last told, while there is none.
    pub about_s: Option<u32>,
}

/// See the module above.
#[derive(Debug, Default)]
pub(super) struct Hall {
    /// Numbers given out so far, for feeds and places alike.
    numbers: u64,
    feeds: BTreeMap<u64, Feed>,
    places: BTreeMap<u64, Place>,
}

/// One turn, as far as somebody has to be told of it.
#[derive(Debug)]
pub(super) struct Feed {
    session: String,
    turn: u64,
    said: Said,
    about_s: Option<u32>,
    text: String,
    end: Option<TurnEvent>,
}

/// One reader.
#[derive(Debug)]
struct Place {
    wake: Arc<Notify>,
    /// In the order in which they were followed.
    sessions: VecDeque<String>,
    cursors: VecDeque<Cursor>,
    notes: VecDeque<Happening>,
    behind: bool,
}

/// How far a reader is in a turn.
#[derive(Debug)]
struct Cursor {
    feed: u64,
    said: bool,
    about_s: Option<u32>,
    told: usize,
}

impl Hall {
    pub(super) fn enter(&mut self, wake: Arc<Notify>) -> u64 {
        self.numbers += 1;
        let place = Place {
            wake,
            sessions: VecDeque::new(),
            cursors: VecDeque::new(),
            notes: VecDeque::new(),
            behind: false,
        };
        self.places.insert(self.numbers, place);
        self.numbers
    }

    /// How many readers there are.
    #[cfg(test)]
    pub(super) fn readers(&self) -> usize {
        self.places.len()
    }

    pub(super) fn leave(&mut self, place: u64) {
        self.places.remove(&place);
        self.sweep();
    }

    /// Opens a turn for the followers of its session.
    pub(super) fn begin(&mut self, session: &str, turn: u64, said: Said, by: Option<u64>) -> u64 {
        self.numbers += 1;
        let feed = self.numbers;
        for (number, place) in &mut self.places {
            if place.sessions.iter().any(|followed| followed == session) {
                let said = by == Some(*number);
                place.add(Cursor { feed, said, about_s: None, told: 0 });
            }
        }
        let told = Feed {
            session: session.to_owned(),
            turn,
            said,
            about_s: None,
            text: String::new(),
            end: None,
        };
        self.feeds.insert(feed, told);
        feed
    }

    /// Lets a place hear an unfinished turn from its beginning; false if there is none.
    pub(super) fn join(&mut self, place: u64, session: &str, turn: u64) -> bool {
        let wanted =
            |feed: &Feed| feed.session == session && feed.turn == turn && feed.end.is_none();
        let found = self.feeds.iter().find(|(_, feed)| wanted(feed)).map(|(&number, _)| number);
        if let Some(feed) = found {
            self.hear(place, feed);
        }
        found.is_some()
    }

    /// Lets a place, and no other, hear a turn that has ended.
    pub(super) fn retell(&mut self, place: u64, ended: Feed) {
        self.numbers += 1;
        let feed = self.numbers;
        self.feeds.insert(feed, ended);
        self.hear(place, feed);
    }

    /// Whether all turns that a place hears have ended.
    pub(super) fn is_over(&self, place: u64) -> bool {
        let cursors = self.places.get(&place).into_iter().flat_map(|place| &place.cursors);
        let mut feeds = cursors.filter_map(|cursor| self.feeds.get(&cursor.feed));
        feeds.all(|feed| feed.end.is_some())
    }

    /// Lets a place hear one turn whose message it knows.
    pub(super) fn hear(&mut self, place: u64, feed: u64) {
        if let Some(place) = self.places.get_mut(&place) {
            place.add(Cursor { feed, said: true, about_s: None, told: 0 });
        }
    }

    /// Moves what `from` was to hear to `place`, but for what that hears anyway.
    pub(super) fn adopt(&mut self, place: u64, from: u64) {
        let Some(from) = self.places.get_mut(&from) else { return };
        let cursors = std::mem::take(&mut from.cursors);
        let Some(place) = self.places.get_mut(&place) else { return };
        for cursor in cursors {
            if !place.cursors.iter().any(|known| known.feed == cursor.feed) {
                place.add(cursor);
            }
        }
    }

    pub(super) fn waiting(&mut self, feed: u64, about_s: u32) {
        self.tell(feed, |feed| feed.about_s = Some(about_s));
    }

    pub(super) fn text(&mut self, feed: u64, text: &str) {
        self.tell(feed, |feed| feed.text.push_str(text));
    }

    pub(super) fn end(&mut self, feed: u64, end: TurnEvent) {
        self.tell(feed, |feed| {
            if let TurnEvent::Done(Answer { text, .. }) = &end
                && let Some(rest) = text.strip_prefix(feed.text.as_str())
            {
                // Answers that no model decoded come whole, without pieces before them.
                let rest = rest.to_owned();
                feed.text.push_str(&rest);
            }
            feed.end = Some(end);
        });
        self.sweep();
    }

    /// Changes a turn that has not ended and wakes its readers.
    fn tell(&mut self, number: u64, change: impl FnOnce(&mut Feed)) {
        let Some(feed) = self.feeds.get_mut(&number).filter(|feed| feed.end.is_none()) else {
            return;
        };
        change(feed);
        for place in self.places.values() {
            if place.cursors.iter().any(|cursor| cursor.feed == number) {
                place.wake.notify_one();
            }
        }
    }

    /// Lets the followers of a session know.
    pub(super) fn note(&mut self, note: &Happening) {
        let (Happening::Titled { session, .. } | Happening::Deleted { session }) = note else {
            return;
        };
        for place in self.places.values_mut() {
            if place.sessions.iter().any(|followed| followed == session) {
                place.behind |= place.notes.len() >= limits::TURNS_BEHIND_MAX;
                place.notes.push_back(note.clone());
                place.wake.notify_one();
            }
        }
    }

    pub(super) fn follow(&mut self, place: u64, session: &str) -> Vec<Snap> {
        let Some(place) = self.places.get_mut(&place) else { return Vec::new() };
        place.sessions.retain(|followed| followed != session);
        place.sessions.push_back(session.to_owned());
        if place.sessions.len() > limits::FOLLOWED_MAX {
            // What was begun in the session that goes is still told to its end.
            place.sessions.pop_front();
        }
        let unfinished =
            self.feeds.iter().filter(|(_, feed)| feed.session == session && feed.end.is_none());
        let mut snaps = Vec::new();
        for (&number, feed) in unfinished {
            let fresh =
                Cursor { feed: number, said: true, about_s: feed.about_s, told: feed.text.len() };
            match place.cursors.iter_mut().find(|cursor| cursor.feed == number) {
                Some(cursor) => *cursor = fresh,
                None => place.add(fresh),
            }
            snaps.push(feed.snap());
        }
        snaps
    }

    pub(super) fn follows(&self, place: u64, session: &str) -> bool {
        let place = self.places.get(&place);
        place.is_some_and(|place| place.sessions.iter().any(|followed| followed == session))
    }

    pub(super) fn untold_from(&self, place: u64, session: &str) -> Option<u64> {
        let cursors = self.places.get(&place)?.cursors.iter();
        let feeds = cursors.filter_map(|cursor| self.feeds.get(&cursor.feed));
        feeds.filter(|feed| feed.session == session).map(|feed| feed.turn).min()
    }

    pub(super) fn is_idle(&self, place: u64) -> bool {
        self.places.get(&place).is_none_or(|place| place.cursors.is_empty())
    }

    /// The next thing to tell a reader: what is true of sessions first, then turn by turn.
    pub(super) fn next(&mut self, place: u64) -> Option<Happening> {
        let place = self.places.get_mut(&place)?;
        if place.behind {
            return Some(Happening::Behind);
        }
        if let Some(note) = place.notes.pop_front() {
            return Some(note);
        }
        let mut ended = None;
        let mut found = None;
        for (index, cursor) in place.cursors.iter_mut().enumerate() {
            let Some(feed) = self.feeds.get(&cursor.feed) else { continue };
            found = cursor.next(feed);
            if let Some(Happening::Turn { event, .. }) = &found
                && event.is_end()
            {
                ended = Some(index);
            }
            if found.is_some() {
                break;
            }
        }
        if let Some(index) = ended {
            place.cursors.remove(index);
            self.sweep();
        }
        found
    }

    /// Lets go of ended turns that nobody has to be told of any more.
    fn sweep(&mut self) {
        let places = &self.places;
        self.feeds.retain(|number, feed| {
            let wanted = |place: &Place| place.cursors.iter().any(|c| c.feed == *number);
            feed.end.is_none() || places.values().any(wanted)
        });
    }
}

impl Place {
    fn add(&mut self, cursor: Cursor) {
        self.behind |= self.cursors.len() >= limits::TURNS_BEHIND_MAX;
        if self.behind {
            // It will be told that it is behind and nothing else.
            self.cursors.clear();
        } else {
            self.cursors.push_back(cursor);
        }
        self.wake.notify_one();
    }
}

impl Cursor {
    fn next(&mut self, feed: &Feed) -> Option<Happening> {
        let (session, turn) = (feed.session.clone(), feed.turn);
        if !self.said {
            self.said = true;
            return Some(Happening::Said { session, turn, said: feed.said.clone() });
        }
        let rest = feed.text.get(self.told..).unwrap_or_default();
        let event = if let Some(about_s) = feed.about_s
            && self.told == 0
            && self.about_s != feed.about_s
        {
            self.about_s = feed.about_s;
            TurnEvent::Waiting { about_s }
        } else if !rest.is_empty() {
            self.told = feed.text.len();
            TurnEvent::Delta(rest.to_owned())
        } else {
            feed.end.clone()?
        };
        Some(Happening::Turn { session, turn, event })
    }
}

impl Feed {
    /// A turn whose end is known.
    pub(super) fn ended(session: &str, turn: u64, text: String, end: TurnEvent) -> Self {
        let said = Said::from("");
        Self { session: session.to_owned(), turn, said, about_s: None, text, end: Some(end) }
    }

    fn snap(&self) -> Snap {
        Snap {
            turn: self.turn,
            said: self.said.clone(),
            text: self.text.clone(),
            about_s: self.about_s.filter(|_| self.text.is_empty()),
        }
    }
}
