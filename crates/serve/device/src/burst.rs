//! Bursts of requests: how many requests of a burst the server hands to the device at once.
//!
//! A client sends the next requests together if the last ones completed together, and a device that
//! receives requests together completes them together. So client, server and device take turns, and
//! each idles while the others work. Therefore, if the device is idle, the server hands it only
//! half of a burst. The server hands over the other half when the first request of the first half
//! has completed. From then on the device has one half while client and server exchange the other
//! half. The server does not divide a burst of few requests, nor one of many bytes, which keeps the
//! device busy for longer than the exchange takes.
//!
//! Each image may have a device of its own, and a device may not answer. So the server holds back
//! requests only while all waiting requests are for one image.

#[derive(Debug, Default)]
pub(crate) struct Burst {
    held: Option<Held>,
}

/// A second half that waits.
#[derive(Debug)]
struct Held {
    /// Requests in flight after the first half was handed over.
    in_flight: usize,
    image: usize,
}

/// Waiting requests that are all for one image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    /// The number of the image.
    pub(crate) image: usize,
    /// The bytes of the requests.
    pub(crate) bytes: usize,
}

const REQUESTS_MIN: usize = 8;
const BYTES_MAX: usize = 2 << 20;

impl Burst {
    /// Returns how many of the `waiting` requests the caller hands over now, the oldest first.
    /// `in_flight` other requests have not completed; `single` returns `None` if the waiting
    /// requests are for several images.
    pub(crate) fn share(
        &mut self,
        waiting: usize,
        in_flight: usize,
        single: impl FnOnce() -> Option<Single>,
    ) -> usize {
        let is_burst = in_flight == 0 && waiting >= REQUESTS_MIN;
        let held = self.held.take();
        if !held.as_ref().map_or(is_burst, |held| held.in_flight == in_flight) {
            return waiting;
        }
        match (held, single()) {
            (Some(held), Some(single)) if single.image == held.image => {
                self.held = Some(held);
                0
            }
            (None, Some(Single { image, bytes })) if bytes <= BYTES_MAX => {
                let half = waiting.div_ceil(2);
                self.held = Some(Held { in_flight: half, image });
                half
            }
            _ => waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Option<Single> = Some(Single { image: 1, bytes: 4096 });
    const SECOND: Option<Single> = Some(Single { image: 2, bytes: 4096 });

    #[test]
    fn half_of_a_burst_waits_for_the_first_end() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(32, 0, || FIRST), 16);
        assert_eq!(burst.share(16, 16, || FIRST), 0, "nothing has ended");
        assert_eq!(burst.share(20, 16, || FIRST), 0, "nor for those behind");
        assert_eq!(burst.share(20, 15, || FIRST), 20);
        assert_eq!(burst.share(9, 35, || FIRST), 9, "the device is busy");
    }

    #[test]
    fn the_second_half_is_not_halved_again() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(33, 0, || FIRST), 17);
        assert_eq!(burst.share(16, 0, || FIRST), 16);
        assert_eq!(burst.share(16, 0, || FIRST), 8, "the next burst is");
    }

    #[test]
    fn small_bursts_and_long_requests_are_not_halved() {
        let mut burst = Burst::default();
        assert_eq!(burst.share(32, 0, || Some(Single { image: 1, bytes: BYTES_MAX + 1 })), 32);
        assert_eq!(burst.share(REQUESTS_MIN - 1, 0, || FIRST), REQUESTS_MIN - 1);
        assert_eq!(burst.share(0, 7, || FIRST), 0);
        assert_eq!(burst.share(1, 7, || FIRST), 1);
    }

    #[test]
    fn a_half_is_held_only_while_no_other_image_has_requests() {
        for (then, next) in [(FIRST, None), (FIRST, SECOND)] {
            let mut burst = Burst::default();
            assert_eq!(burst.share(16, 0, || then), 8);
            assert_eq!(burst.share(8, 8, || then), 0);
            assert_eq!(burst.share(9, 8, || next), 9, "{next:?}");
            assert_eq!(burst.share(1, 17, || next), 1);
        }
        assert_eq!(Burst::default().share(16, 0, || None), 16, "a burst for several images");
    }
}
