//! A watcher that checks for work periodically, and stops when there is none.

use crate::primitives::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
    fence,
};

/// The state of the watcher, on or off.
#[derive(Debug)]
pub struct Watch(AtomicBool);

impl Default for Watch {
    fn default() -> Watch {
        Watch(AtomicBool::new(false))
    }
}

impl Watch {
    /// Announces work that is visible already. Returns `true` if no watcher is on; the caller must
    /// then start one. Costs a fence and a load while a watcher is on.
    #[must_use]
    pub fn started(&self) -> bool {
        // Pairs with the fence of `ends`: either this thread sees that the watch is over, or the
        // watcher sees the work.
        fence(SeqCst);
        self.has_ended()
    }

    fn has_ended(&self) -> bool {
        !self.0.load(Relaxed) && !self.0.swap(true, SeqCst)
    }

    /// Ends the watch of a watcher that found no work. Returns `false` if the watcher must go on:
    /// `is_idle` returned `false`, and no other watcher has begun.
    #[must_use]
    pub fn ends(&self, is_idle: impl Fn() -> bool) -> bool {
        self.0.store(false, SeqCst);
        fence(SeqCst);
        is_idle() || self.0.swap(true, SeqCst)
    }

    /// Returns `true` if the watcher is on.
    pub fn is_on(&self) -> bool {
        self.0.load(SeqCst)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{
        Arc,
        Ordering::{Acquire, Release},
    };
    use loom::thread;

    fn model(started: fn(&Watch) -> bool) {
        loom::model(move || {
            let shared = Arc::new((Watch(AtomicBool::new(true)), AtomicBool::new(false)));
            let other = shared.clone();
            let starter = thread::spawn(move || {
                let (watch, busy) = &*other;
                busy.store(true, Release);
                started(watch)
            });
            let (watch, busy) = &*shared;
            let over = watch.ends(|| !busy.load(Acquire));
            let begins = starter.join().unwrap();
            assert!(begins || !over, "no watcher looks after it");
            assert!(watch.is_on() && begins == over, "one of them watches");
        });
    }

    #[test]
    fn loom_what_is_started_is_looked_after() {
        model(Watch::started);
    }

    #[test]
    #[should_panic(expected = "no watcher looks after it")]
    fn loom_canary_looking_without_a_fence_is_caught() {
        model(Watch::has_ended);
    }
}
