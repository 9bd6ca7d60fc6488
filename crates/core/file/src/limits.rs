//! Limits on requests in flight, and on the bytes of the program's memory that they use.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use nowait_sys::Errno;

/// The most requests and bytes in flight at a time. Requests that end inside submit do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests.
    pub requests: usize,
    /// Bytes that the requests read or write.
    pub bytes: u64,
}

impl Limits {
    /// No limit.
    pub const NONE: Limits = Limits { requests: usize::MAX, bytes: u64::MAX };
}

/// Source: `aio_nr`, `reqs_available`, fs/aio.c.
#[derive(Debug)]
pub(crate) struct Throttle {
    limits: Limits,
    /// The slots of contexts whose requests are not counted: counting would make all threads write
    /// one cache line. At most half of the limit.
    exempt: AtomicUsize,
    requests: AtomicUsize,
    bytes: AtomicU64,
}

impl Throttle {
    pub(crate) fn new(limits: Limits) -> Throttle {
        let (requests, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
        Throttle { limits, exempt: AtomicUsize::new(0), requests, bytes }
    }

    /// Returns `false` if the context's requests must be counted.
    pub(crate) fn exempt(&self, slots: usize) -> bool {
        let half = self.limits.requests / 2;
        let fits = |exempt: usize| exempt.checked_add(slots).filter(|all| *all <= half);
        self.limits.bytes == u64::MAX && self.exempt.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    pub(crate) fn end_exemption(&self, slots: usize) {
        self.exempt.fetch_sub(slots, Relaxed);
    }

    /// A request larger than the limit on bytes is admitted while no bytes are in flight: it could
    /// never start otherwise.
    pub(crate) fn enter(&self, bytes: u64) -> Result<(), Errno> {
        let requests = self.requests.fetch_add(1, Relaxed);
        let before = match self.limits.bytes {
            u64::MAX => 0,
            _ => self.bytes.fetch_add(bytes, Relaxed),
        };
        let too_many = requests >= self.limits.requests - self.exempt.load(Relaxed);
        let too_large = before > 0 && before.saturating_add(bytes) > self.limits.bytes;
        if too_many || too_large {
            self.leave(1, bytes);
            return Err(Errno::AGAIN);
        }
        Ok(())
    }

    pub(crate) fn leave(&self, requests: usize, bytes: u64) {
        self.requests.fetch_sub(requests, Relaxed);
        if self.limits.bytes != u64::MAX {
            self.bytes.fetch_sub(bytes, Relaxed);
        }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }
}

/// The requests of one context, counted against its own limits and the engine's.
#[derive(Debug)]
pub(crate) struct ContextThrottle {
    own: Throttle,
    /// The number of slots whose requests the engine does not count; 0: the engine counts them.
    exempt_slots: usize,
}

impl ContextThrottle {
    /// Makes the throttle of a context with `slots` slots; 0: it has no fixed number of slots.
    pub(crate) fn new(limits: Limits, engine: &Throttle, slots: usize) -> ContextThrottle {
        let is_exempt = slots > 0 && engine.exempt(slots);
        ContextThrottle {
            own: Throttle::new(limits),
            exempt_slots: if is_exempt { slots } else { 0 },
        }
    }

    /// Counts a request of `bytes`.
    ///
    /// # Errors
    /// `EAGAIN`: the limit of this context or of the engine is reached.
    pub(crate) fn enter(&self, engine: &Throttle, bytes: u64) -> Result<(), Errno> {
        self.own.enter(bytes)?;
        if self.exempt_slots > 0 {
            return Ok(());
        }
        engine.enter(bytes).inspect_err(|_| self.own.leave(1, bytes))
    }

    /// Subtracts requests that have ended, before their events are visible.
    pub(crate) fn leave(&self, engine: &Throttle, requests: usize, bytes: u64) {
        self.own.leave(requests, bytes);
        if self.exempt_slots == 0 {
            engine.leave(requests, bytes);
        }
    }

    pub(crate) fn requests(&self) -> usize {
        self.own.requests()
    }

    /// Ends the exemption: the context is dropped.
    pub(crate) fn end(&self, engine: &Throttle) {
        engine.end_exemption(self.exempt_slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_limit_refuses_and_a_large_request_passes_alone() {
        let throttle = Throttle::new(Limits { requests: 3, bytes: 100 });
        assert_eq!(throttle.enter(60), Ok(()));
        assert_eq!(throttle.enter(41), Err(Errno::AGAIN));
        assert_eq!(throttle.enter(40), Ok(()));
        assert_eq!(throttle.enter(0), Ok(()));
        assert_eq!(throttle.enter(0), Err(Errno::AGAIN), "a fourth request");
        throttle.leave(3, 100);
        assert_eq!(throttle.enter(1000), Ok(()), "nothing else is in flight");
        assert_eq!(throttle.enter(1), Err(Errno::AGAIN));
        throttle.leave(1, 1000);
        assert_eq!(throttle.requests(), 0);
    }

    #[test]
    fn contexts_that_cannot_reach_half_of_the_limit_are_exempt() {
        let throttle = Throttle::new(Limits { requests: 10, bytes: u64::MAX });
        assert!(throttle.exempt(3) && !throttle.exempt(3) && throttle.exempt(2));
        assert!((0..5).all(|_| throttle.enter(1).is_ok()));
        assert_eq!(throttle.enter(1), Err(Errno::AGAIN), "their slots are counted as full");
        throttle.end_exemption(2);
        assert_eq!(throttle.enter(1), Ok(()));
        let of_bytes = Throttle::new(Limits { requests: 10, bytes: 10 });
        assert!(!of_bytes.exempt(1));
    }
}
