//! Counters and latencies of one image.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nowait_sys::eventfd::EventFd;
use std::sync::{Arc, OnceLock};

/// Kinds of requests with counters of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
    /// Zeroing.
    Zero,
    /// Queries for extents, and prefetches.
    Other,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 6] =
        [Kind::Read, Kind::Write, Kind::Flush, Kind::Discard, Kind::Zero, Kind::Other];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Flush => "flush",
            Kind::Discard => "discard",
            Kind::Zero => "zero",
            Kind::Other => "other",
        }
    }
}

/// The counters of an image, which any thread may read.
#[derive(Debug, Default)]
pub struct Stats {
    kinds: [OfKind; Kind::ALL.len()],
    in_flight: AtomicU64,
    connections: AtomicU64,
    last_gone: OnceLock<Arc<EventFd>>,
}

#[derive(Debug, Default)]
struct OfKind {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    latency: Latencies,
}

/// A copy of the counters of one kind of request.
#[derive(Clone, Debug, Default)]
pub struct KindCounts {
    /// Requests that ended, with success or not.
    pub requests: u64,
    /// Bytes of the requests that succeeded.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The latencies of all ended requests.
    pub latency: Distribution,
}

impl Stats {
    /// Counts a request that begins.
    pub fn begin(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Counts a request that ended after `ns` nanoseconds; `bytes` count only if it succeeded.
    pub fn end(&self, kind: Kind, bytes: u64, ns: u64, failed: bool) {
        let of_kind = &self.kinds[kind as usize];
        of_kind.requests.fetch_add(1, Relaxed);
        let (counter, count) = if failed { (&of_kind.errors, 1) } else { (&of_kind.bytes, bytes) };
        counter.fetch_add(count, Relaxed);
        of_kind.latency.add(ns);
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Stops counting a dropped request as in flight, and counts no end of it.
    pub fn forget(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Counts a client that has connected.
    pub fn connect(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// Counts a client that has disconnected. If it was the last client, signals the eventfd that
    /// [`Stats::tell_when_last_gone`] has stored.
    pub fn disconnect(&self) {
        if self.connections.fetch_sub(1, Relaxed) == 1 {
            self.last_gone.get().into_iter().for_each(|bell| bell.signal());
        }
    }

    /// Makes the image signal `bell` each time its last client disconnects. Only the first call has
    /// an effect.
    pub fn tell_when_last_gone(&self, bell: Arc<EventFd>) {
        let _ = self.last_gone.set(bell);
    }

    /// Returns how many requests are in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Returns how many clients are connected.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Copies the counters of `kind`.
    pub fn of(&self, kind: Kind) -> KindCounts {
        let of_kind = &self.kinds[kind as usize];
        KindCounts {
            requests: of_kind.requests.load(Relaxed),
            bytes: of_kind.bytes.load(Relaxed),
            errors: of_kind.errors.load(Relaxed),
            latency: of_kind.latency.copy(),
        }
    }
}

/// The number of buckets for each power of two from 8 ns on. For latencies below 2^42 ns, the
/// largest value of a bucket is at most an eighth above each latency in it.
const STEPS: usize = 8;
const BUCKETS: usize = 40 * STEPS;

#[derive(Debug)]
struct Latencies([AtomicU64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Latencies {
    fn add(&self, ns: u64) {
        self.0[bucket(ns)].fetch_add(1, Relaxed);
    }

    fn copy(&self) -> Distribution {
        Distribution(self.0.iter().map(|count| count.load(Relaxed)).collect())
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2() as usize;
    let step = (ns >> (power - 3)) as usize & (STEPS - 1);
    ((power - 2) * STEPS + step).min(BUCKETS - 1)
}

/// The last bucket also counts all larger values.
fn upper_ns(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (power, step) = (bucket / STEPS + 2, bucket % STEPS);
    (((STEPS + step + 1) as u64) << (power - 3)) - 1
}

/// The latencies of requests, as a histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution(Vec<u64>);

impl Distribution {
    /// Returns the count of each bucket that is not empty, with the bucket's largest value in
    /// nanoseconds, in ascending order.
    pub fn entries(&self) -> Vec<(u64, u64)> {
        let all = self.0.iter().enumerate().map(|(index, count)| (upper_ns(index), *count));
        all.filter(|entry| entry.1 > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_values() {
        for ns in (0..2000).chain([1 << 20, (1 << 30) + 12345, 1 << 38]) {
            let bucket = bucket(ns);
            assert!(ns <= upper_ns(bucket), "{ns}");
            assert!(bucket == 0 || ns > upper_ns(bucket - 1), "{ns}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_large() {
        let stats = Stats::default();
        for ns in 1..=1000 {
            stats.begin();
            stats.end(Kind::Read, 4096, ns * 1000, ns == 1000);
        }
        let read = stats.of(Kind::Read);
        assert_eq!((read.requests, read.bytes, read.errors), (1000, 999 * 4096, 1));
        let entries = read.latency.entries();
        let below = |ns| entries.iter().filter(move |entry| entry.0 < ns).map(|entry| entry.1);
        assert!(below(500_000).sum::<u64>() <= 500 && below(562_501).sum::<u64>() >= 500);
        assert_eq!(below(u64::MAX).sum::<u64>(), 1000);
        assert_eq!(stats.in_flight(), 0);
    }
}
