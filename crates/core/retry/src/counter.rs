//! Counters of two sides. Each side counts itself before it reads the other side's counter, so at
//! least one side sees the other.

use crate::primitives::{AtomicU32, Mutex, Ordering::SeqCst};
use std::task::Waker;

/// The number of threads on one side, read and changed with sequential consistency.
#[derive(Debug)]
pub struct Counter(AtomicU32);

impl Default for Counter {
    fn default() -> Counter {
        Counter(AtomicU32::new(0))
    }
}

impl Counter {
    /// Counts one more.
    pub fn enter(&self) {
        self.0.fetch_add(1, SeqCst);
        // Loom treats sequentially consistent accesses as weaker ones, but models fences.
        #[cfg(loom)]
        crate::primitives::fence(SeqCst);
    }

    /// Counts one less. Returns `true` if the count is zero now: the caller then wakes the threads
    /// that wait for zero.
    #[must_use]
    pub fn leave(&self) -> bool {
        let was_last = self.0.fetch_sub(1, SeqCst) == 1;
        #[cfg(loom)]
        crate::primitives::fence(SeqCst);
        was_last
    }

    /// Returns `true` if the count is zero.
    pub fn is_zero(&self) -> bool {
        self.0.load(SeqCst) == 0
    }
}

/// Threads that wait until a counter is zero.
#[derive(Debug)]
pub struct ZeroWaiters {
    waiting: Counter,
    wakers: Mutex<Vec<Waker>>,
}

impl Default for ZeroWaiters {
    fn default() -> ZeroWaiters {
        ZeroWaiters { waiting: Counter::default(), wakers: Mutex::new(Vec::new()) }
    }
}

impl ZeroWaiters {
    /// Calls `sleep` until `is_zero` returns `true`. `sleep` returns when `waker` is woken, or
    /// earlier.
    pub fn wait(&self, waker: &Waker, is_zero: impl Fn() -> bool, sleep: impl Fn()) {
        self.waiting.enter();
        loop {
            self.wakers.lock().push(waker.clone());
            if is_zero() {
                break;
            }
            sleep();
        }
        let _ = self.waiting.leave();
        self.wakers.lock().retain(|other| !other.will_wake(waker));
    }

    /// Wakes the waiting threads, after a counter has become zero. Takes no lock if no thread
    /// waits.
    pub fn wake(&self) {
        if !self.waiting.is_zero() {
            let wakers = core::mem::take(&mut *self.wakers.lock());
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, AtomicBool, Ordering::Relaxed};
    use loom::{sync::Notify, thread};
    use std::task::Wake;

    struct Kick(Notify);

    impl Wake for Kick {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.notify();
        }
    }

    #[derive(Default)]
    struct Sides {
        writes: Counter,
        opens: Counter,
        waiters: ZeroWaiters,
        writing: AtomicBool,
    }

    /// The open of a file waits until no write bypasses the cache. A write that sees an open does
    /// not bypass the cache.
    fn model(looks_first: bool, wake: fn(&ZeroWaiters)) {
        loom::model(move || {
            let sides = Arc::new(Sides { writing: AtomicBool::new(false), ..Sides::default() });
            let other = sides.clone();
            let writer = thread::spawn(move || {
                let is_alone = looks_first && other.opens.is_zero();
                other.writes.enter();
                if is_alone || other.opens.is_zero() {
                    other.writing.store(true, Relaxed);
                    other.writing.store(false, Relaxed);
                }
                if other.writes.leave() {
                    wake(&other.waiters);
                }
            });
            sides.opens.enter();
            let kick = std::sync::Arc::new(Kick(Notify::new()));
            let waker = Waker::from(kick.clone());
            sides.waiters.wait(&waker, || sides.writes.is_zero(), || kick.0.wait());
            assert!(!sides.writing.load(Relaxed), "a write beside what is open");
            writer.join().unwrap();
            assert!(!sides.writing.load(Relaxed));
        });
    }

    #[test]
    fn loom_an_open_and_a_write_see_each_other() {
        model(false, ZeroWaiters::wake);
    }

    #[test]
    #[should_panic(expected = "a write beside what is open")]
    fn loom_canary_a_write_that_looks_before_it_counts_itself_is_caught() {
        model(true, ZeroWaiters::wake);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_an_end_that_wakes_no_thread_is_caught() {
        model(false, |_| {});
    }
}
