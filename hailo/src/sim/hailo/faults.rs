//! Planned faults of a generation, and the ways it can end before its last line.

use std::time::Duration;

use super::{
    generation::{Generation, Step},
    reply::error,
    routes::{After, reason},
};
use crate::sim::{
    clock::Woke,
    log::{End, Event},
    scenario::{Kind, Phase},
};

impl Generation<'_, '_> {
    /// Does what is planned for this phase. `Err`: the generation is over.
    pub(super) fn act(&mut self, phase: Phase) -> Step {
        let (now, later) =
            std::mem::take(&mut self.faults).into_iter().partition(|fault| fault.phase == phase);
        self.faults = later;
        for fault in now {
            let kind = fault.kind.name().into();
            self.exchange.sim.log.add(self.exchange.id, Event::Fault { kind });
            if phase == Phase::DuringLoad {
                // Whatever becomes of the socket, the load itself goes on, unless it is what fails.
                let loaded = !matches!(fault.kind, Kind::Status { .. });
                self.exchange.life.npu(|npu| npu.end_load(loaded));
            }
            self.one(fault.kind)?;
        }
        Ok(())
    }

    fn one(&mut self, kind: Kind) -> Step {
        let streaming = self.head_sent;
        match kind {
            Kind::Reset => {
                self.exchange.inside = None;
                self.exchange.conn.server().reset(self.exchange.conn.id());
                Err(self.over(End::Reset))
            }
            Kind::Close => Err(self.cut()),
            Kind::Hang => Err(self.hang()),
            Kind::Truncate => {
                self.exchange.inside = None;
                if streaming {
                    let _ = self.exchange.conn.write_last_chunk();
                }
                Err(self.cut())
            }
            Kind::Garbage => {
                if streaming {
                    self.write_line("}\u{1}not json{\"")?;
                }
                Ok(())
            }
            Kind::ErrorLine(text) if streaming => {
                self.exchange.inside = None;
                self.write_line(&error(&text))?;
                let _ = self.exchange.conn.write_last_chunk();
                Err(self.cut())
            }
            Kind::ErrorLine(text) => Err(self.exchange.json(200, &error(&text))),
            Kind::Status { .. } if streaming => Err(self.cut()),
            Kind::Status { code: 500, text } => Err(self.exchange.failed(&[&text])),
            Kind::Status { code, text } => Err(self.exchange.text(code, reason(code), &[&text])),
            Kind::Slow(part) => {
                self.exchange.sim.slow_down(part);
                Ok(())
            }
            Kind::Stall(ms) => self.stall(Duration::from_millis(ms)),
            Kind::Crash => Err(self.crash("planned")),
        }
    }

    /// The process dies.
    pub(super) fn crash(&mut self, why: &str) -> After {
        let after = self.over(End::Reset);
        self.exchange.sim.crash(self.exchange.conn.server(), self.exchange.id, why);
        after
    }

    /// FIN in the middle.
    pub(super) fn cut(&mut self) -> After {
        self.exchange.inside = None;
        self.exchange.conn.shut();
        self.over(End::Cut)
    }

    /// Silence until the client leaves, the simulator is reset, or the life ends.
    fn hang(&mut self) -> After {
        let sim = self.exchange.sim;
        let (conn, epoch) = (&self.exchange.conn, self.epoch);
        let woke = sim.clock.hang(conn.halt(), || conn.peer_gone() || sim.epoch() != epoch);
        if woke == Woke::Halted {
            return self.over(End::Halted);
        }
        let gone = self.exchange.conn.peer_gone();
        self.exchange.inside = None;
        self.exchange.conn.shut();
        self.over(if gone { End::Gone } else { End::Cut })
    }

    /// A pause which only the end of the life or a reset shortens.
    fn stall(&mut self, simulated: Duration) -> Step {
        let sim = self.exchange.sim;
        let until = self.cursor + simulated;
        let halt = self.exchange.conn.halt();
        let woke = sim.clock.sleep_until(until, halt, || sim.epoch() != self.epoch);
        self.cursor = until.min(sim.clock.now());
        if woke == Woke::Halted { Err(self.over(End::Halted)) } else { Ok(()) }
    }

    /// The request has ended as `end`; an answer that had begun leaves the cache ahead of the
    /// record.
    pub(super) fn over(&mut self, end: End) -> After {
        self.exchange.life.npu(|npu| npu.dirty |= self.submitted);
        self.exchange.sim.log.add(self.exchange.id, Event::Ended { end, sent: self.sent });
        After::Ended
    }
}
