//! Bursts of requests: how much of one is handed over at once.
//!
//! A client whose requests end together sends the next ones together, and a device to which they
//! are given together ends them together: client, server and device take turns, and each rests
//! while the others work. So of a burst that finds the device idle only half is handed over; the
//! other half follows when the first request of that has ended, and from then on the device has one
//! half while client and server exchange the other. Long requests occupy the device for longer than
//! their exchange takes, and go together.

/// Tells how many of those that wait are handed over.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Half was handed over, and this many were in flight then.
    held_at: Option<usize>,
}

/// Fewer are not worth a second round.
const REQUESTS_MIN: usize = 8;
/// More keep the device busy.
const BYTES_MAX: usize = 2 << 20;

impl Burst {
    /// Returns how many of the first of `waiting` requests to hand over while `in_flight` others
    /// have not ended; `bytes` tells how much those that wait transfer. A caller that holds back
    /// asks again when one has ended.
    pub(crate) fn share(
        &mut self,
        waiting: usize,
        in_flight: usize,
        bytes: impl FnOnce() -> usize,
    ) -> usize {
        let is_burst = in_flight == 0 && waiting >= REQUESTS_MIN;
        match self.held_at {
            Some(then) if then == in_flight => 0,
            None if is_burst && bytes() <= BYTES_MAX => {
                let half = waiting.div_ceil(2);
                self.held_at = Some(half);
                half
            }
            _ => {
                self.held_at = None;
                waiting
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_burst_waits_for_the_first_end() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(32, 0, || 4096), 16);
        assert_eq!(burst.share(16, 16, || 4096), 0, "nothing has ended");
        assert_eq!(burst.share(20, 16, || 4096), 0, "nor for those behind");
        assert_eq!(burst.share(20, 15, || 4096), 20);
        assert_eq!(burst.share(9, 35, || 4096), 9, "the device is busy");
    }

    #[test]
    fn what_was_held_back_is_not_halved_again() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(33, 0, || 4096), 17);
        assert_eq!(burst.share(16, 0, || 4096), 16);
        assert_eq!(burst.share(16, 0, || 4096), 8, "the next burst is");
    }

    #[test]
    fn a_few_go_together_and_so_do_long_ones() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(32, 0, || BYTES_MAX + 1), 32);
        assert_eq!(burst.share(REQUESTS_MIN - 1, 0, || 4096), REQUESTS_MIN - 1);
        assert_eq!(burst.share(0, 7, || 4096), 0);
        assert_eq!(burst.share(1, 7, || 4096), 1);
    }
}
