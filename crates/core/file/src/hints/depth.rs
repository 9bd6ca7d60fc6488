//! The depth: how many requests a submitter keeps in flight.
//!
//! One that keeps few waits for each of them, and is served best on its own queue: a hand-over
//! would only add two thread switches. One that keeps many is at a low depth too for a moment,
//! when several of its requests have just ended; what it starts then is not waited for, and must
//! not be begun inside submit. A read that misses costs there what the device's doorbell costs:
//! one request in a hundred, 23 to 50 µs each in a virtual machine, was most of what lay above
//! the 99.9th percentile of 4 KiB reads and writes at depth 32.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// With fewer requests outstanding the submitter may be waiting for each.
const LOW: usize = 4;
/// Looks at a low depth in a row until it counts as the submitter's way.
const MOMENTS: u8 = 32;

/// What one context's depth was lately. A hint: threads that submit at once may lose a look.
#[derive(Debug, Default)]
pub(crate) struct Depth {
    /// Low depths that will be taken for a moment's.
    moments: AtomicU8,
}

impl Depth {
    /// Takes a look at `outstanding` requests, and counts it. True: the submitter keeps only a few.
    pub(crate) fn look(&self, outstanding: usize) -> bool {
        let moments = self.moments.load(Relaxed);
        if outstanding >= LOW {
            if moments != MOMENTS {
                self.moments.store(MOMENTS, Relaxed);
            }
            return false;
        }
        if moments > 0 {
            self.moments.store(moments - 1, Relaxed);
        }
        moments == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submitter_that_waits_for_each_is_at_a_low_depth_from_the_first() {
        let depth = Depth::default();
        assert!((0..100).all(|_| depth.look(1)));
    }

    #[test]
    fn a_dip_of_a_deep_submitter_is_not_a_low_depth() {
        let depth = Depth::default();
        for outstanding in [1, 2, 3, 4, 32, 3, 1, 30] {
            let first = outstanding < LOW && depth.moments.load(Relaxed) == 0;
            assert_eq!(depth.look(outstanding), first, "{outstanding}");
        }
        assert_eq!((0..100).filter(|_| depth.look(1)).count(), 100 - usize::from(MOMENTS));
    }
}
