//! A watcher that looks after something periodically, and stops when there is nothing.

use crate::primitives::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
    fence,
};

/// Says whether the watcher looks. A thread that starts something asks each time, which is a fence
/// and a load.
#[derive(Debug)]
pub struct Watch(AtomicBool);

impl Default for Watch {
    fn default() -> Watch {
        Watch(AtomicBool::new(false))
    }
}

impl Watch {
    /// Says that something was started, and made visible. True: no watcher looks after it, and the
    /// caller must have the watch begun.
    #[must_use]
    pub fn started(&self) -> bool {
        // Pairs with that of `ends`: either this finds that the watch is over, or the watcher finds
        // what was started.
        fence(SeqCst);
        self.has_ended()
    }

    fn has_ended(&self) -> bool {
        !self.0.load(Relaxed) && !self.0.swap(true, SeqCst)
    }

    /// Ends the watch, for the watcher that has found nothing. False: `is_idle` says that something
    /// was started meanwhile, and the watcher goes on.
    #[must_use]
    pub fn ends(&self, is_idle: impl Fn() -> bool) -> bool {
        self.0.store(false, SeqCst);
        fence(SeqCst);
        is_idle() || self.0.swap(true, SeqCst)
    }

    /// Tells whether the watcher looks.
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

    /// A thread starts something while the watcher, which has found nothing, is about to stop.
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
