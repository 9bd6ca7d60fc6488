//! Counts the threads inside a part of the code, and waits until none is inside.

use crate::primitives::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    futex_wait, futex_wake,
};
use nowait_sys::time::Deadline;

/// Set before a thread sleeps until no thread is inside.
const IS_AWAITED: u32 = 1 << 31;

/// The number of threads inside. Waiting takes no lock and allocates no memory.
#[derive(Debug)]
pub struct Presence(AtomicU32);

impl Default for Presence {
    fn default() -> Presence {
        Presence(AtomicU32::new(0))
    }
}

/// A thread that is inside until this is dropped.
#[must_use]
pub struct Present<'a>(&'a AtomicU32);

impl Presence {
    /// Counts the calling thread as inside.
    pub fn enter(&self) -> Present<'_> {
        self.0.fetch_add(1, SeqCst);
        Present(&self.0)
    }

    /// Returns `true` if no thread is inside.
    pub fn is_empty(&self) -> bool {
        self.0.load(SeqCst) & !IS_AWAITED == 0
    }

    /// Waits until no thread is inside. Sleeps and does not spin: a spinning thread of higher
    /// priority could keep the processor from the thread that is inside.
    pub fn wait(&self) {
        loop {
            let now = self.0.load(SeqCst);
            if now & !IS_AWAITED == 0 {
                return;
            }
            let awaited = now | IS_AWAITED;
            if self.0.compare_exchange(now, awaited, SeqCst, Relaxed).is_ok() {
                let _ = futex_wait(&self.0, awaited, Deadline::NEVER);
            }
        }
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        // A thread that has entered meanwhile wakes the waiting threads when it leaves.
        if self.0.fetch_sub(1, SeqCst) == IS_AWAITED | 1
            && self.0.compare_exchange(IS_AWAITED, 0, SeqCst, Relaxed).is_ok()
        {
            futex_wake(self.0, u32::MAX);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{
        Arc, AtomicBool, Ordering::Acquire, Ordering::Release, forgetting_wakes,
    };
    use loom::thread;

    #[derive(Default)]
    struct Room {
        presence: Presence,
        is_entered: AtomicBool,
        is_done: AtomicBool,
    }

    fn one_waits(leave: fn(Present<'_>)) {
        loom::model(move || {
            let room = Arc::new(Room::default());
            let other = room.clone();
            let inside = thread::spawn(move || {
                let present = other.presence.enter();
                other.is_entered.store(true, Release);
                other.is_done.store(true, Relaxed);
                leave(present);
            });
            if room.is_entered.load(Acquire) {
                drop(room.presence.enter());
                room.presence.wait();
                assert!(room.is_done.load(Relaxed), "it is inside");
            }
            inside.join().unwrap();
            assert!(room.presence.is_empty());
        });
    }

    #[test]
    fn loom_who_waits_waits_for_all_that_are_inside() {
        one_waits(|present| drop(present));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_one_that_leaves_in_silence() {
        one_waits(|present| forgetting_wakes(|| drop(present)));
    }
}
