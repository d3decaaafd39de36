//! The faults of a scenario, acting in one generation.

use std::time::Duration;

use super::{
    life::{Life, Stop},
    request::Refusal,
};
use crate::sim::{
    clock::Woke,
    log::Event,
    scenario::{Kind, Phase},
};

/// Whether an error text says that the runner's process is gone, so that it must be.
fn says_runner_died(text: &str) -> bool {
    text.contains("has terminated") || text.contains("unexpectedly stopped")
}

impl Life<'_, '_, '_, '_> {
    /// Lets the faults of a phase act.
    pub(super) fn act(&mut self, phase: Phase) -> Result<(), Stop> {
        let kinds: Vec<Kind> = self
            .accepted
            .faults
            .iter()
            .filter(|fault| fault.phase == phase)
            .map(|fault| fault.kind.clone())
            .collect();
        kinds.into_iter().try_for_each(|kind| self.fault(&kind))
    }

    fn fault(&mut self, kind: &Kind) -> Result<(), Stop> {
        self.log(Event::Fault { kind: kind.name().to_owned() });
        match kind {
            Kind::Reset => Err(Stop::Reset),
            Kind::Close => Err(Stop::Close),
            Kind::Hang => {
                let witness = self.accepted.witness;
                match self.sim.clock.hang(&self.accepted.halt, || witness.peer_gone()) {
                    Woke::Halted => Err(Stop::Halted),
                    Woke::Due | Woke::Asked => Err(Stop::Gone),
                }
            }
            Kind::Truncate => Err(Stop::Short),
            Kind::Garbage => Ok(self.out.garbage()?),
            Kind::ErrorLine(text) => Err(Refusal::new(500, text.as_str()).into()),
            Kind::Status { code, text } => {
                if says_runner_died(text) {
                    self.sim.scheduler.kill(&self.accepted.model.name);
                }
                Err(Refusal::new(*code, text.as_str()).into())
            }
            Kind::Slow(part) => {
                self.sim.set_rate(*part);
                Ok(())
            }
            Kind::Stall(ms) => self.sleep(Duration::from_millis(*ms)),
            Kind::Crash => {
                self.sim.crash(self.out.conn.server());
                Err(Stop::Halted)
            }
        }
    }
}
