//! How much of a burst of requests is handed over at once.
//!
//! A client whose requests end together sends the next ones together, and a device to which they
//! are given together ends them together: client, server and device take turns, and each rests
//! while the others work. So of a burst that finds the device idle only half is handed over; the
//! other half follows when the first request of that has ended, and from then on the device has one
//! half while client and server exchange the other.

/// Tells how many of those that wait are handed over.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Half was handed over, and this many were under way then.
    held_at: Option<usize>,
}

/// Fewer are not worth a second round.
const REQUESTS_MIN: usize = 8;

impl Burst {
    /// Returns how many of the first of `waiting` requests to hand over while `under_way` others
    /// have not ended. Who holds back is asked again when one has.
    pub(crate) fn share(&mut self, waiting: usize, under_way: usize) -> usize {
        match self.held_at {
            Some(then) if then == under_way => 0,
            None if under_way == 0 && waiting >= REQUESTS_MIN => {
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
        assert_eq!(burst.share(32, 0), 16);
        assert_eq!(burst.share(16, 16), 0, "nothing has ended");
        assert_eq!(burst.share(20, 16), 0, "nor for those behind");
        assert_eq!(burst.share(20, 15), 20);
        assert_eq!(burst.share(9, 35), 9, "the device is busy");
    }

    #[test]
    fn what_was_held_back_is_not_halved_again() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(33, 0), 17);
        assert_eq!(burst.share(16, 0), 16);
        assert_eq!(burst.share(16, 0), 8, "the next burst is");
    }

    #[test]
    fn a_few_go_together() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(REQUESTS_MIN - 1, 0), REQUESTS_MIN - 1);
        assert_eq!(burst.share(0, 7), 0);
        assert_eq!(burst.share(1, 7), 1);
    }
}
