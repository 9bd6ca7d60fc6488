//! The number of requests that the submitters of a context keep in flight: many, or few.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The weight of the earlier requests in the average.
const PAST: usize = 16;
/// From this average on the depth is high, until the average falls below [`FEW`]: near a single
/// limit a context would use both queues in turn, which costs more than either.
const MANY: usize = 10;
const FEW: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Depth {
    /// The average of the requests in flight, in [`PAST`]ths. If two threads count at once, one of
    /// their requests may not count.
    sum: AtomicUsize,
    is_high: AtomicBool,
}

impl Depth {
    /// Counts a request that finds `in_flight` requests. Returns `true` if the depth is high.
    pub(crate) fn count(&self, in_flight: usize) -> bool {
        let before = self.sum.load(Relaxed);
        let sum = before - before / PAST + in_flight;
        self.sum.store(sum, Relaxed);
        let was_high = self.is_high.load(Relaxed);
        let is_high = sum / PAST >= if was_high { FEW } else { MANY };
        if is_high != was_high {
            self.is_high.store(is_high, Relaxed);
        }
        is_high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(depth: &Depth, in_flight: usize) -> bool {
        (0..200).fold(false, |_, _| depth.count(in_flight))
    }

    #[test]
    fn a_dip_is_not_a_low_depth() {
        let depth = Depth::default();
        assert!(!depth.count(32), "one request says little");
        assert!(after(&depth, 32));
        assert!((0..4).all(|_| depth.count(1)));
        assert!(!after(&depth, 1));
    }

    #[test]
    fn between_the_limits_the_depth_stays_as_it_was() {
        let depth = Depth::default();
        let seen = [9, 12, 9, 6, 4, 9].map(|in_flight| after(&depth, in_flight));
        assert_eq!(seen, [false, true, true, true, false, false]);
    }
}
