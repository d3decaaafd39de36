//! Wakes the heart through a timer of the kernel's: one wake-up for each look. The runtime's own
//! timers wake the process up to three times for a wait of half a minute, to sort it anew.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::heartbeat::{Alarm, RuntimeAlarm};

/// Zero would switch the timer off.
const SOONEST: Duration = Duration::from_nanos(1);

/// The timer.
pub(super) struct KernelAlarm(AsyncFd<OwnedFd>);

/// The kernel's timer, or the runtime's where there is none to be had.
pub(super) fn alarm() -> Box<dyn Alarm> {
    match KernelAlarm::new() {
        Ok(alarm) => Box::new(alarm),
        Err(error) => {
            tracing::warn!(%error, "no timer of the kernel's; the process wakes more often");
            Box::new(RuntimeAlarm)
        }
    }
}

impl KernelAlarm {
    #[expect(deprecated, reason = "unsound for borrowed descriptors only; this one is owned")]
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    async fn ring(&self, when: Instant) -> io::Result<()> {
        let wait = when.saturating_duration_since(Instant::now()).max(SOONEST);
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec::try_from(wait).map_err(|_| io::ErrorKind::InvalidInput)?,
        };
        // This also forgets a ring that nobody waited for.
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            match rustix::io::read(ready.get_inner(), &mut [0_u8; 8]) {
                Ok(_) => return Ok(()),
                // Of an earlier time.
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Alarm for KernelAlarm {
    fn at(&mut self, when: Instant) -> BoxFuture<'_, ()> {
        async move {
            if self.ring(when).await.is_err() {
                tokio::time::sleep_until(when).await;
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_rings_at_its_time_and_a_time_that_was_given_up_does_not_ring() {
        let mut alarm = KernelAlarm::new().unwrap();
        let start = Instant::now();
        alarm.at(start).await;
        // It becomes due, and as a rule nobody takes it.
        let _ = alarm.at(start).now_or_never();
        drop(alarm.0.readable().await.unwrap());
        let when = Instant::now() + Duration::from_millis(30);
        alarm.at(when).await;
        assert!(Instant::now() >= when, "the ring of before is forgotten");
        let far = Instant::now() + Duration::from_secs(3600);
        assert!(alarm.at(far).now_or_never().is_none());
        let when = Instant::now() + Duration::from_millis(1);
        alarm.at(when).await;
        assert!(Instant::now() >= when);
    }
}
