//! What people do and what fate does, one step at a time.

use std::sync::Arc;
use std::time::Duration;

use super::disk::Mode;
use super::model::{Kind, Presence, Server};
use super::options::Blow;
use super::people;
use super::rules;
use super::world::{Fate, House, Mend, World};
use crate::agent::Submission;
use crate::daemon::signals::Signal;

/// Sessions in use: a person's main one, and another.
const SESSIONS: [&str; 2] = ["main", "kitchen"];

/// A day, in milliseconds.
const DAY_MS: i64 = 86_400_000;

impl World {
    /// Acts until something ends this life or the run is over.
    pub(super) async fn act_until_the_end(&mut self, house: &House) -> Fate {
        rules::log(self, house).await;
        while self.step < self.options.steps {
            self.step += 1;
            self.mend();
            let fate = if self.random.u32(0..100) < self.swarm.blows_percent {
                self.blow(house)
            } else {
                self.act(house).await;
                None
            };
            if let Some(fate) = fate {
                return fate;
            }
            let pause = self.pause();
            tokio::time::sleep(pause).await;
            rules::step(self, house);
            if self.random.u32(0..4) == 0 {
                rules::log(self, house).await;
            }
            if self.journal.first_broken().is_some() {
                return Fate::Over;
            }
        }
        rules::recovery(self, house).await;
        Fate::Over
    }

    fn pause(&mut self) -> Duration {
        let most_ms = match self.random.u32(0..10) {
            0..=2 => 200,
            3..=6 => 4_000,
            7..=8 => 20_000,
            _ => 150_000,
        };
        Duration::from_millis(self.random.u64(1..most_ms))
    }

    fn session(&mut self) -> &'static str {
        if self.random.u32(0..3) == 0 { SESSIONS[1] } else { SESSIONS[0] }
    }

    async fn act(&mut self, house: &House) {
        let session = self.session();
        match self.random.u32(0..100) {
            0..=54 => {
                self.ask(house, session);
            }
            55..=62 => {
                for _ in 0..self.random.u32(2..12) {
                    self.ask(house, session);
                }
            }
            63..=76 => {
                people::stop(&house.room, session);
            }
            77..=81 => self.walk_away(),
            82..=89 => rules::log(self, house).await,
            _ => {
                let (provider, events) = (Arc::clone(&house.provider), house.events.clone());
                let journal = Arc::clone(&self.journal);
                house.nursery.start(people::muse(provider, events, journal));
            }
        }
    }

    pub(super) fn ask(&mut self, house: &House, session: &str) -> u32 {
        let words = self.words();
        let slow = self.random.u32(0..100) < self.swarm.slow_readers_percent;
        let short = self.step < self.options.steps && self.random.u32(0..6) == 0;
        let answer_tokens_max = if short { Some(self.random.u32(1..40)) } else { None };
        let loose = self.disk.mode() != Mode::Well;
        let mut facts = self.book.open();
        let id = facts.ask(session, &words, loose);
        let Some(question) = facts.questions.get_mut(&id) else { return id };
        question.slow = slow;
        let text = question.typed.clone();
        drop(facts);
        let bytes = text.len();
        self.journal.note(&format!("q{id} is asked in {session}, {bytes} bytes"));
        let submission = Submission {
            session: (session != "main").then(|| session.to_owned()),
            text,
            answer_tokens_max,
            ..Submission::default()
        };
        house.nursery.start(people::ask(house.room.clone(), id, submission));
        id
    }

    fn words(&mut self) -> String {
        const PARTS: [&str; 9] = [
            "how",
            "is",
            "the",
            "river",
            "天气",
            "<|im_end|>",
            "\u{7}bell\r\n",
            "why?",
            "\u{1f99e}",
        ];
        // Three bytes of prose are a token in every count; whatever else there is costs more in
        // the daemon's than in the specification's, which is what the servers judge by.
        const PROSE: [&str; 4] = ["yesterday", "between", "mountains", "weather"];
        let parts = if self.random.bool() { PARTS.as_slice() } else { PROSE.as_slice() };
        let count = match self.random.u32(0..20) {
            0 => self.random.usize(300..2_500),
            1..=3 => self.random.usize(60..200),
            _ => self.random.usize(1..20),
        };
        let part = |random: &mut fastrand::Rng| parts[random.usize(0..parts.len())];
        (0..count).map(|_| part(&mut self.random)).collect::<Vec<_>>().join(" ")
    }

    fn walk_away(&mut self) {
        let mut facts = self.book.open();
        let life = facts.life;
        let open: Vec<u32> = facts
            .questions
            .iter()
            .filter(|(_, one)| one.life == life && one.end.is_none() && !one.refused)
            .map(|(id, _)| *id)
            .collect();
        if open.is_empty() {
            return;
        }
        let id = open[self.random.usize(0..open.len())];
        if let Some(question) = facts.questions.get_mut(&id) {
            question.walked_away = true;
        }
        drop(facts);
        self.journal.note(&format!("the asker of q{id} walks away"));
    }

    fn server(&self, kind: Kind) -> &Arc<Server> {
        match kind {
            Kind::Hailo => &self.servers[0],
            Kind::Ollama | Kind::OpenAi => &self.servers[1],
        }
    }

    fn later(&mut self, mend: Mend) {
        let after = Duration::from_millis(self.random.u64(500..90_000));
        self.mends.push((self.journal.now() + after, mend));
    }

    fn blow(&mut self, house: &House) -> Option<Fate> {
        let blow = self.swarm.blow(&mut self.random)?;
        self.journal.note(&format!("{blow:?}"));
        let kind = if self.random.u32(0..3) == 0 { self.fallback() } else { Kind::Hailo };
        match blow {
            Blow::Kill => {
                self.server(kind).die(Presence::Down);
                self.later(Mend::Server(kind));
            }
            Blow::Bounce => self.server(kind).die(Presence::Up),
            Blow::Wedge => {
                self.server(kind).state().presence = Presence::Wedged;
                self.later(Mend::Server(kind));
            }
            Blow::Unplug => {
                self.server(kind).die(Presence::Unplugged);
                self.later(Mend::Server(kind));
            }
            Blow::HoldDevice => {
                self.server(Kind::Hailo).die(Presence::Up);
                self.server(Kind::Hailo).state().held = true;
                self.later(Mend::Device);
            }
            Blow::RemoveModel => {
                self.server(kind).state().without_model = true;
                self.later(Mend::Model(kind));
            }
            Blow::DiskFull => self.spoil(Mode::Full),
            Blow::DiskBroken => self.spoil(Mode::Broken),
            Blow::DiskSlow => self.spoil(Mode::Slow),
            Blow::Crash => return Some(Fate::Crash),
            Blow::PowerCut => return Some(Fate::PowerCut(self.random.f64())),
            Blow::Restart => return Some(Fate::Stop),
            Blow::ClockStep => self.step_clock(),
            Blow::Reload => {
                let _ = house.signals.try_send(Signal::Reload);
            }
        }
        None
    }

    fn spoil(&mut self, mode: Mode) {
        self.disk.set(mode);
        self.book.open().loosen();
        self.later(Mend::Disk);
    }

    fn step_clock(&mut self) {
        match self.random.u32(0..5) {
            0 => self.clock.set(self.random.i64(0..DAY_MS)),
            1 => self.clock.step(-self.random.i64(1..400 * DAY_MS)),
            2 => self.clock.step(self.random.i64(1..20_000 * DAY_MS)),
            3 => self.clock.step(self.random.i64(-5_000..5_000)),
            // A minute before the end of summer time.
            _ => self.clock.set(1_792_886_340_000),
        }
    }

    /// Ends what is due to end.
    fn mend(&mut self) {
        let now = self.journal.now();
        let (due, left) = self.mends.iter().copied().partition(|(at, _)| *at <= now);
        self.mends = left;
        let due: Vec<(Duration, Mend)> = due;
        for (_, mend) in due {
            self.journal.note(&format!("{mend:?} is well again"));
            match mend {
                Mend::Server(kind) => {
                    let server = self.server(kind);
                    server.state().presence = Presence::Up;
                    server.relieve();
                }
                Mend::Device => self.server(Kind::Hailo).state().held = false,
                Mend::Model(kind) => self.server(kind).state().without_model = false,
                Mend::Disk => self.disk.set(Mode::Well),
            }
        }
    }
}
