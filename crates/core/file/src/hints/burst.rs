//! The burst: the bytes that submit has copied for a program since the program last looked for
//! events.
//!
//! A copy inside submit is the quickest way to an event, but it holds the program up. The bound is
//! on all calls between two looks for events, because a program may make a call for each request:
//! 512 calls of aio_read(3), each for 64 KiB that were cached, took 17 ms.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The bytes that submit may copy in one burst.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// The longest burst of a program that need not look for events, in nanoseconds.
const BURST_NS: u64 = 5_000_000;

/// The bytes that submit has copied for one context. Two threads that submit at once may together
/// copy more than the limit.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    copied: AtomicUsize,
    /// How often the program had looked for events when the burst began.
    looks: AtomicU64,
    /// The time when the burst ends, in nanoseconds, for programs that need not look for events.
    ends: AtomicU64,
}

impl Burst {
    /// A new burst begins if `looks` has changed, or if the program has no events left to look for
    /// (`is_idle`).
    pub(crate) fn left(&self, looks: u64, is_idle: bool) -> usize {
        if is_idle || self.looks.load(Relaxed) != looks {
            self.looks.store(looks, Relaxed);
            self.copied.store(0, Relaxed);
        }
        INLINE_BYTES_MAX.saturating_sub(self.copied.load(Relaxed))
    }

    /// Returns the bytes left for a program that need not look for events, because it is told of
    /// each end or ignores them. Its bursts last at most `BURST_NS`; `now` is the time in
    /// nanoseconds.
    pub(crate) fn left_at(&self, looks: u64, now: u64) -> usize {
        let is_over = self.ends.load(Relaxed) <= now;
        if is_over {
            self.ends.store(now + BURST_NS, Relaxed);
        }
        self.left(looks, is_over)
    }

    pub(crate) fn copied(&self, bytes: usize) {
        self.copied.fetch_add(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_when_the_program_looks_or_has_taken_all() {
        let burst = Burst::default();
        assert_eq!(burst.left(0, false), INLINE_BYTES_MAX);
        burst.copied(INLINE_BYTES_MAX - 1);
        assert_eq!(burst.left(0, false), 1);
        burst.copied(4096);
        assert_eq!(burst.left(0, false), 0, "no less than nothing");
        assert_eq!(burst.left(1, false), INLINE_BYTES_MAX, "it has looked");
        burst.copied(7);
        assert_eq!(burst.left(1, true), INLINE_BYTES_MAX, "all events are taken");
    }

    #[test]
    fn a_program_that_never_looks_has_another_burst_after_a_while() {
        let burst = Burst::default();
        let now = 7;
        assert_eq!(burst.left_at(0, now), INLINE_BYTES_MAX);
        burst.copied(INLINE_BYTES_MAX);
        assert_eq!(burst.left_at(0, now + BURST_NS - 1), 0);
        assert_eq!(burst.left_at(0, now + BURST_NS), INLINE_BYTES_MAX);
        burst.copied(INLINE_BYTES_MAX);
        assert_eq!(burst.left_at(1, now + BURST_NS), INLINE_BYTES_MAX, "it has looked");
    }
}
