//! Delays completions of the backend below.

use super::wakeup::Wakeup;
use crate::{BlockBackend, Completion, Limits, bio::Bio};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, time::Deadline};
use std::sync::Arc;

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// Makes a clock at zero.
    pub fn new() -> Arc<VirtualClock> {
        Arc::default()
    }

    /// Returns the time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Moves on by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, AcqRel);
    }

    /// Moves on to `ns`, unless it is later already.
    pub fn advance_to(&self, ns: u64) {
        self.0.fetch_max(ns, AcqRel);
    }
}

/// Holds each completion back; never sleeps for it.
///
/// A `reap` that has to wait while completions are held does not: it counts as further reaps,
/// or moves the virtual clock on to the next one due.
pub struct Delay<B> {
    inner: B,
    by: By,
    held: Mutex<DelayQueue>,
    wakeup: Wakeup,
}

enum By {
    Reaps(u64),
    Clock(u64, Arc<VirtualClock>),
}

#[derive(Default)]
struct DelayQueue {
    reaps: u64,
    /// When due, in reaps or nanoseconds; in the order they came, which is that of `due`.
    completions: Vec<(u64, Completion)>,
}

impl<B: BlockBackend> Delay<B> {
    /// Holds each completion back for `reaps` further reaps.
    pub fn by_reaps(inner: B, reaps: u64) -> Delay<B> {
        Delay { inner, by: By::Reaps(reaps), held: Mutex::default(), wakeup: Wakeup::default() }
    }

    /// Holds each completion back for `delay_ns` nanoseconds of `clock`.
    pub fn by_clock(inner: B, delay_ns: u64, clock: Arc<VirtualClock>) -> Delay<B> {
        let by = By::Clock(delay_ns, clock);
        Delay { inner, by, held: Mutex::default(), wakeup: Wakeup::default() }
    }

    /// Returns the backend below.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Takes in what is new, gives out what is due; returns when the next one is.
    fn turn(&self, fresh: &mut Vec<Completion>, done: &mut Vec<Completion>) -> Option<u64> {
        let mut held = self.held.lock();
        let (now, delay) = match &self.by {
            By::Reaps(reaps) => (held.reaps, *reaps),
            By::Clock(delay, clock) => (clock.now_ns(), *delay),
        };
        held.reaps += 1;
        held.completions.extend(fresh.drain(..).map(|completion| (now + delay, completion)));
        let due = held.completions.partition_point(|(due, _)| *due <= now);
        done.extend(held.completions.drain(..due).map(|(_, completion)| completion));
        held.completions.first().map(|(due, _)| *due)
    }
}

impl<B: BlockBackend> BlockBackend for Delay<B> {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let held = self.held.lock();
        if held.completions.len() + self.inner.in_flight() >= self.limits().depth {
            return Err(bio);
        }
        self.inner.queue(bio)
    }

    fn commit(&self) {
        self.inner.commit();
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let (before, mut fresh) = (done.len(), Vec::new());
        loop {
            self.inner.reap(&mut fresh, 0, Deadline::NOW)?;
            let next = self.turn(&mut fresh, done);
            if done.len() - before >= min || deadline.has_passed() || self.wakeup.spend() {
                return Ok(());
            }
            match (next, &self.by) {
                (Some(due), By::Clock(_, clock)) => clock.advance_to(due),
                (Some(_), By::Reaps(_)) => {}
                (None, _) => match self.inner.reap(&mut fresh, 1, deadline) {
                    Err(_) if done.len() > before => return Ok(()),
                    result => result?,
                },
            }
        }
    }

    fn wake(&self) {
        self.wakeup.set();
        self.inner.wake();
    }

    fn cancel(&self, token: u64) {
        self.inner.cancel(token);
    }

    fn in_flight(&self) -> usize {
        let held = self.held.lock();
        held.completions.len() + self.inner.in_flight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BioOp, Segments, backends::null::Null};

    fn queue_one(backend: &dyn BlockBackend) {
        // SAFETY: without segments no memory is involved.
        let bio = unsafe { Bio::new(BioOp::Fsync, -1, Segments::NONE, 0, 7) };
        assert!(backend.queue(bio).is_ok());
        backend.commit();
    }

    #[test]
    fn completion_comes_after_so_many_reaps() {
        let delay = Delay::by_reaps(Null::new(8), 2);
        queue_one(&delay);
        let mut done = Vec::new();
        for _ in 0..2 {
            delay.reap(&mut done, 0, Deadline::NOW).unwrap();
            assert_eq!((done.len(), delay.in_flight()), (0, 1));
        }
        delay.reap(&mut done, 0, Deadline::NOW).unwrap();
        assert_eq!((done.len(), delay.in_flight()), (1, 0));
    }

    #[test]
    fn completion_comes_when_its_time_has_come() {
        let clock = VirtualClock::new();
        let delay = Delay::by_clock(Null::new(8), 100, clock.clone());
        queue_one(&delay);
        let mut done = Vec::new();
        delay.reap(&mut done, 0, Deadline::NOW).unwrap();
        clock.advance(99);
        delay.reap(&mut done, 0, Deadline::NOW).unwrap();
        assert!(done.is_empty());
        clock.advance(1);
        delay.reap(&mut done, 0, Deadline::NOW).unwrap();
        assert_eq!(done.len(), 1);
    }

    #[test]
    fn waiting_moves_the_clock_instead_of_sleeping() {
        let clock = VirtualClock::new();
        let delay = Delay::by_clock(Null::new(8), 3_600_000_000_000, clock.clone());
        queue_one(&delay);
        let mut done = Vec::new();
        delay.reap(&mut done, 1, Deadline::NEVER).unwrap();
        assert_eq!((done.len(), clock.now_ns()), (1, 3_600_000_000_000));
    }
}
