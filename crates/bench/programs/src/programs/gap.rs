//! The longest time for which this machine stops its processors. A longest hold-up that is shorter
//! may be the machine's own.
//!
//! In a virtual machine, the host stops even a thread that has a processor for itself if the host
//! runs something else; the busier all processors are, the longer.

use std::thread;
use std::time::{Duration, Instant};

/// Returns the longest time for which a busy thread on a processor did not run.
pub(crate) fn longest(period: Duration) -> Duration {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(move || watch(period))).collect();
        let gaps = threads.into_iter().map(|it| it.join().unwrap_or_default());
        gaps.max().unwrap_or_default()
    })
}

/// The period begins with the first read: a thread that starts late would else measure nothing.
fn watch(period: Duration) -> Duration {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    let end = last + period;
    while last < end {
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_part_of_the_time_that_was_watched() {
        let (begun, period) = (Instant::now(), Duration::from_millis(2));
        let gap = longest(period);
        assert!(gap > Duration::ZERO && gap <= begun.elapsed(), "{gap:?}");
    }
}
