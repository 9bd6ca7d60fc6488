//! Bursts of requests: how many requests of a burst the server hands to the device at once.
//!
//! A client sends the next requests together if the last ones completed together, and a device that
//! receives requests together completes them together. So client, server and device take turns, and
//! each idles while the others work. Therefore, if the device is idle, the server hands it only
//! half of a burst. The server hands over the other half when the first request of the first half
//! has completed. From then on the device has one half while client and server exchange the other
//! half. The server does not divide a burst of few requests, nor one of many bytes, which keeps the
//! device busy for longer than the exchange takes.

#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Requests in flight after the first half was handed over; `None`: no second half waits.
    held_at: Option<usize>,
}

const REQUESTS_MIN: usize = 8;
const BYTES_MAX: usize = 2 << 20;

impl Burst {
    /// Returns how many of the `waiting` requests the caller hands over now, the oldest first.
    /// `in_flight` other requests have not completed; `bytes` returns the bytes of the waiting
    /// requests.
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
    fn the_second_half_is_not_halved_again() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(33, 0, || 4096), 17);
        assert_eq!(burst.share(16, 0, || 4096), 16);
        assert_eq!(burst.share(16, 0, || 4096), 8, "the next burst is");
    }

    #[test]
    fn small_bursts_and_long_requests_are_not_halved() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(32, 0, || BYTES_MAX + 1), 32);
        assert_eq!(burst.share(REQUESTS_MIN - 1, 0, || 4096), REQUESTS_MIN - 1);
        assert_eq!(burst.share(0, 7, || 4096), 0);
        assert_eq!(burst.share(1, 7, || 4096), 1);
    }
}
