//! Counters of a context and the histogram of the time inside submit.
//!
//! Counting is off unless a report was asked for: then an addition costs nothing but a branch.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use hdrhistogram::Histogram;
use nowait_sys::mutex::{Mutex, MutexGuard};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a context counted.
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

/// A number that only grows.
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
    /// Calls of io_submit.
    submits,
    /// Requests accepted.
    requests,
    /// Runs of an operation, the first one included.
    iterations,
    /// Iterations that ended waiting.
    retries,
    /// Wake-ups of waiting operations.
    kicks,
    /// Wake-ups after which the operation had to wait for the same thing again.
    spurious,
    /// Requests that ended inside io_submit.
    completed_inline,
    /// Requests that ended.
    completions,
    /// Deferred requests that a thread which waited for events carried out.
    by_caller,
    /// Deferred requests that the engine's threads carried out.
    taken_over,
    /// Handed on: the data was not in the page cache.
    punt_miss,
    /// Handed on: more than a submit may copy itself.
    punt_large,
    /// Handed on: the file system cannot try this without waiting.
    punt_unsupported,
    /// Handed on: buffered write.
    punt_write,
    /// Handed on: write that must be durable when it ends.
    punt_sync,
    /// Handed on: direct write that extends the file, fills a hole, or was refused.
    punt_extend,
    /// Handed on: fsync or fdatasync.
    punt_fsync,
    /// Handed on: an earlier request on the same bytes is not over.
    punt_order,
    /// Handed on: submit mode offload, or auto found the file uncached.
    punt_offload,
    /// Handed on: only an event counter or the ring's reader will collect the completion.
    punt_driver,
}

/// What a request asks for, as reports tell requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A read through a page cache.
    Read,
    /// A write through a page cache.
    Write,
    /// A read past it.
    DirectRead,
    /// A write past it.
    DirectWrite,
    /// fsync or fdatasync.
    Sync,
    /// A poll, or a transfer of a stream.
    Stream,
}

/// Who has carried a request to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The thread that submitted it, inside submit.
    Submit,
    /// The context's own queue, whose completions the program fetches.
    Kernel,
    /// A thread that waited for events.
    Caller,
    /// The engine's driver.
    Driver,
    /// A worker of the engine.
    Worker,
}

/// Requests by what they ask for and by who has carried them to their end.
#[derive(Debug, Default)]
pub struct Served([[Counter; Served::BY.len()]; Served::WORK.len()]);

impl Served {
    /// The names of what is asked for.
    const WORK: [&'static str; 6] =
        ["read", "write", "direct_read", "direct_write", "sync", "stream"];
    /// The names of who carries it.
    const BY: [&'static str; 5] = ["submit", "kernel", "caller", "driver", "worker"];

    /// Returns the names of all kinds, and of all who carry requests out.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Served::WORK.into_iter().chain(Served::BY)
    }

    /// Returns each kind of which there were requests, and by whom how many, none left out.
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
    /// Counts if `enabled`.
    pub fn new(enabled: bool) -> Stats {
        // Three digits up to a minute; the parameters are constants that the crate accepts.
        let histogram = || Histogram::new_with_bounds(1, 60_000_000_000, 3).ok();
        Stats {
            counters: enabled.then(Counters::default),
            served: enabled.then(Served::default),
            submit_ns: if enabled { histogram().map(Mutex::new) } else { None },
        }
    }

    /// Tells whether anything is counted.
    pub fn enabled(&self) -> bool {
        self.counters.is_some()
    }

    /// Adds to a counter, if counting.
    #[inline]
    pub fn add(&self, which: impl Fn(&Counters) -> &Counter, count: u64) {
        if let Some(counters) = &self.counters {
            which(counters).add(count);
        }
    }

    /// Counts requests that were carried to their end, if counting.
    #[inline]
    pub fn serve(&self, work: Work, by: Server, count: u64) {
        if let Some(Served(counters)) = &self.served {
            counters[work as usize][by as usize].add(count);
        }
    }

    /// Returns who has carried out what, if counting.
    pub fn served(&self) -> Option<&Served> {
        self.served.as_ref()
    }

    /// Records the time one submit took, in nanoseconds.
    pub fn submit_took(&self, ns: u64) {
        if let Some(histogram) = &self.submit_ns {
            histogram.lock().saturating_record(ns.max(1));
        }
    }

    /// Returns the counters, if counting.
    pub fn counters(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    /// Returns the histogram of the time inside submit, in nanoseconds, if counting: locked, as a
    /// copy takes much memory.
    pub fn submit_histogram(&self) -> Option<MutexGuard<'_, Histogram<u64>>> {
        self.submit_ns.as_ref().map(Mutex::lock)
    }
}
