//! Counters of a context and the histogram of the time inside submit.
//!
//! Counting is off unless a report was requested. While it is off, an addition costs a branch.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use hdrhistogram::Histogram;
use nowait_sys::mutex::{Mutex, MutexGuard};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of a context.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: Counter,)* }

        impl Counters {
            /// Returns every counter with its name, in a fixed order.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

/// A counter that is never reset.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Returns the sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

counters! {
    /// Calls of submit.
    submits,
    /// Requests accepted.
    requests,
    /// Iterations, completions of bios, and attempts that ended a request inside submit.
    iterations,
    /// Iterations that ended in a wait for an earlier request or for the page cache in user space.
    retries,
    /// Times that a request went on after it had waited for an earlier request in order.
    kicks,
    /// Iterations that still found an earlier request in the way after waiting for it.
    spurious,
    /// Requests that an attempt inside submit completed.
    completed_inline,
    /// Requests whose event was delivered.
    completions,
    /// Deferred requests that a thread carried out when it came for events.
    by_caller,
    /// Deferred requests handed to the engine's threads.
    taken_over,
    /// Requests that the kernel could not serve from the page cache without waiting.
    punt_miss,
    /// Requests above the bytes that submit may still copy.
    punt_large,
    /// Requests for which the file system or a seccomp filter refuses an attempt without waiting.
    punt_unsupported,
    /// Buffered writes that submit did not attempt.
    punt_write,
    /// Buffered writes that must be durable when they end.
    punt_sync,
    /// Direct writes that extend the file, fill a hole, or were refused.
    punt_extend,
    /// fsync and fdatasync requests.
    punt_fsync,
    /// Requests that wait for an earlier request that overlaps or is linked.
    punt_order,
    /// Buffered reads that submit did not try, because the mode is `offload` or earlier attempts
    /// failed.
    punt_offload,
    /// Polls, stream transfers and other direct requests that submit did not put straight into the
    /// own queue.
    punt_driver,
}

/// The kind of a request in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A read through a page cache.
    Read,
    /// A write through a page cache.
    Write,
    /// A read that bypasses the page cache.
    DirectRead,
    /// A write that bypasses the page cache.
    DirectWrite,
    /// fsync or fdatasync.
    Sync,
    /// A poll, or a transfer of a stream.
    Stream,
}

/// The party that completed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The thread that submitted it, inside submit.
    Submit,
    /// The kernel, in the context's own queue.
    Kernel,
    /// A thread that came for events and carried out the deferred request.
    Caller,
    /// The engine's driver.
    Driver,
    /// A worker of the engine.
    Worker,
}

/// Counts of requests by kind and by the party that completed them.
#[derive(Debug, Default)]
pub struct Served([[Counter; Served::BY.len()]; Served::WORK.len()]);

impl Served {
    const WORK: [&'static str; 6] =
        ["read", "write", "direct_read", "direct_write", "sync", "stream"];
    const BY: [&'static str; 5] = ["submit", "kernel", "caller", "driver", "worker"];

    /// Returns the names of all kinds and of all parties.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Served::WORK.into_iter().chain(Served::BY)
    }

    /// Returns each kind that had requests, with the count of every party, zeros included.
    pub fn all(&self) -> Vec<(&'static str, Vec<(&'static str, u64)>)> {
        let row = |counters: &[Counter]| {
            Served::BY.into_iter().zip(counters.iter().map(Counter::get)).collect::<Vec<_>>()
        };
        let rows = Served::WORK.into_iter().zip(self.0.iter().map(|counters| row(counters)));
        rows.filter(|(_, row)| row.iter().any(|(_, count)| *count > 0)).collect()
    }
}

/// Counters and histogram, off or on for the life of a context.
#[derive(Debug)]
pub struct Stats {
    counters: Option<Counters>,
    served: Option<Served>,
    submit_ns: Option<Mutex<Histogram<u64>>>,
}

impl Stats {
    /// Makes counters that count if `enabled`.
    pub fn new(enabled: bool) -> Stats {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000_000, 3).ok();
        Stats {
            counters: enabled.then(Counters::default),
            served: enabled.then(Served::default),
            submit_ns: if enabled { histogram().map(Mutex::new) } else { None },
        }
    }

    /// Returns `true` if counting is on.
    pub fn enabled(&self) -> bool {
        self.counters.is_some()
    }

    /// Adds to a counter, if counting is on.
    #[inline]
    pub fn add(&self, which: impl Fn(&Counters) -> &Counter, count: u64) {
        if let Some(counters) = &self.counters {
            which(counters).add(count);
        }
    }

    /// Counts completed requests, if counting is on.
    #[inline]
    pub fn serve(&self, work: Work, by: Server, count: u64) {
        if let Some(Served(counters)) = &self.served {
            counters[work as usize][by as usize].add(count);
        }
    }

    /// Returns the counts by kind and party, if counting is on.
    pub fn served(&self) -> Option<&Served> {
        self.served.as_ref()
    }

    /// Records the duration of one submit, in nanoseconds, if counting is on.
    pub fn submit_took(&self, ns: u64) {
        if let Some(histogram) = &self.submit_ns {
            histogram.lock().saturating_record(ns.max(1));
        }
    }

    /// Returns the counters, if counting is on.
    pub fn counters(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    /// Returns the histogram of the time inside submit, in nanoseconds, if counting is on. The
    /// guard keeps it locked, because a copy takes much memory.
    pub fn submit_histogram(&self) -> Option<MutexGuard<'_, Histogram<u64>>> {
        self.submit_ns.as_ref().map(Mutex::lock)
    }
}
