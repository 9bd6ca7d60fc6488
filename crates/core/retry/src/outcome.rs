//! The outcome of a request in memory of the application, and the threads that wait for it.
//!
//! One word, changed in one step:
//!
//! ```text
//!  63          32 31           0
//! ┌──────────────┬──────────────┐
//! │ slots        │  error       │   EINPROGRESS, then 0 or an error, for good
//! └──────────────┴──────────────┘
//! ```
//!
//! The thread that ends a request swaps the outcome in and does not touch the word again, because
//! the application may free the memory as soon as it sees the outcome. The swap returns the slots
//! of the threads to wake.
//!
//! A waiting thread claims one of 32 slots, and sets the slot's bit in each word that it waits for.
//! If more than 31 threads wait, the others share the last slot and are woken together. Waiting
//! takes no lock and allocates no memory, so signal handlers may wait.

use crate::primitives::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release, futex_wake,
};
use nowait_sys::{
    Errno,
    mistake::{self, Mistake},
};

const SLOTS_SHIFT: u32 = 32;
const SHARED: u32 = 31;

/// The outcome word of one request; 0 (success) before the first request.
#[repr(transparent)]
#[derive(Debug)]
pub struct Outcome(AtomicU64);

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome(AtomicU64::new(0))
    }
}

impl Outcome {
    /// Marks the request as in flight. No thread may wait for it yet.
    pub fn begin(&self) {
        self.0.store(Errno::INPROGRESS.raw() as u64, Release);
    }

    /// Stores the outcome, 0 or an error. Returns the slots of the threads to wake, one bit for
    /// each. A thread that sees the outcome also sees earlier writes of the calling thread.
    #[must_use]
    pub fn end(&self, error: i32) -> u32 {
        // Acquire: the threads of these slots have read their slot's word before.
        (self.0.swap(u64::from(error as u32), AcqRel) >> SLOTS_SHIFT) as u32
    }

    /// Returns the error: EINPROGRESS while the request is in flight.
    pub fn error(&self) -> i32 {
        self.0.load(Acquire) as u32 as i32
    }

    /// Returns `true` if the request is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.error() == Errno::INPROGRESS.raw()
    }

    /// Sets the bit of `slot`, whose threads are then woken at the end. Returns `false` if the
    /// request is over.
    pub fn arm(&self, slot: u32) -> bool {
        let bit = 1 << (SLOTS_SHIFT + slot);
        let mut word = self.0.load(Acquire);
        // Writes only while the request is in flight: afterwards the application may reuse the
        // memory.
        while word as u32 as i32 == Errno::INPROGRESS.raw() {
            if word & bit != 0 {
                return true;
            }
            match self.0.compare_exchange(word, word | bit, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        mistake::makes(Mistake::SleepTooLate)
    }
}

/// The slots of the waiting threads.
///
/// A forked child keeps the slots that its parent's threads had claimed, so more of its threads
/// share the last slot.
#[derive(Debug)]
pub struct Sleepers {
    claimed: AtomicU32,
    words: [AtomicU32; 32],
}

impl Sleepers {
    /// Makes slots that no thread has claimed.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default, reason = "a static needs a constant")]
    pub const fn new() -> Sleepers {
        Sleepers { claimed: AtomicU32::new(0), words: [const { AtomicU32::new(0) }; 32] }
    }

    /// Makes slots that no thread has claimed.
    #[cfg(loom)]
    pub fn new() -> Sleepers {
        let words = core::array::from_fn(|_| AtomicU32::new(0));
        Sleepers { claimed: AtomicU32::new(0), words }
    }

    /// Claims a slot for the calling thread: the shared slot, if the others are taken.
    pub fn claim(&self) -> u32 {
        let mut claimed = self.claimed.load(Relaxed);
        loop {
            let free = claimed.trailing_ones();
            if free >= SHARED {
                return SHARED;
            }
            let taken = claimed | 1 << free;
            match self.claimed.compare_exchange(claimed, taken, AcqRel, Relaxed) {
                Ok(_) => return free,
                Err(now) => claimed = now,
            }
        }
    }

    /// Gives a slot back. Outcomes may still name it, so its next owner may be woken without need.
    pub fn give_back(&self, slot: u32) {
        if slot != SHARED {
            self.claimed.fetch_and(!(1 << slot), AcqRel);
        }
    }

    /// Returns the futex word of a slot. A waiting thread reads the word, then arms its outcomes,
    /// and sleeps while the word is unchanged.
    pub fn word(&self, slot: u32) -> &AtomicU32 {
        &self.words[slot as usize % self.words.len()]
    }

    /// Wakes the threads of these slots, one bit for each.
    pub fn wake(&self, mut slots: u32) {
        while slots != 0 {
            let word = self.word(slots.trailing_zeros());
            word.fetch_add(1, AcqRel);
            futex_wake(word, u32::MAX);
            slots &= slots - 1;
        }
    }
}

#[cfg(test)]
impl Sleepers {
    /// `is_over` arms the outcomes that the thread waits for.
    fn wait_until(&self, slot: u32, mut is_over: impl FnMut() -> bool) {
        loop {
            let seen = self.word(slot).load(Acquire);
            if is_over() {
                return;
            }
            let never = nowait_sys::time::Deadline::NEVER;
            let _ = crate::primitives::futex_wait(self.word(slot), seen, never);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_end_names_those_who_wait_and_later_ones_see_the_outcome() {
        let outcome = Outcome::default();
        assert!(!outcome.arm(1), "nothing is in flight");
        outcome.begin();
        assert!(outcome.is_in_flight() && outcome.arm(0) && outcome.arm(31) && outcome.arm(31));
        assert_eq!(outcome.end(0), 1 << 31 | 1);
        assert!(!outcome.is_in_flight() && !outcome.arm(2));
        assert_eq!(outcome.0.load(Relaxed), 0, "no trace of the waiters");
        outcome.begin();
        assert_eq!(outcome.end(Errno::IO.raw()), 0);
        assert_eq!(outcome.error(), Errno::IO.raw());
    }

    #[test]
    fn slots_are_exclusive_until_they_run_out() {
        let sleepers = Sleepers::new();
        let claimed: Vec<u32> = (0..34).map(|_| sleepers.claim()).collect();
        assert_eq!(claimed[..31], (0..31).collect::<Vec<u32>>());
        assert_eq!(claimed[31..], [SHARED; 3]);
        sleepers.give_back(SHARED);
        sleepers.give_back(7);
        assert_eq!((sleepers.claim(), sleepers.claim()), (7, SHARED));
    }

    #[test]
    #[cfg_attr(miri, ignore = "sleeps in a system call")]
    fn a_thread_is_woken_by_the_end_it_waits_for() {
        let sleepers = Sleepers::new();
        for _ in 0..2000 {
            let outcome = Outcome::default();
            outcome.begin();
            std::thread::scope(|scope| {
                let slot = sleepers.claim();
                scope.spawn(|| sleepers.wake(outcome.end(0)));
                sleepers.wait_until(slot, || !outcome.arm(slot));
                sleepers.give_back(slot);
            });
            assert!(!outcome.is_in_flight());
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, forgetting_wakes};
    use loom::thread;

    fn one_of_two(end: fn(&Outcome, &Sleepers)) {
        loom::model(move || {
            let all = Arc::new((Sleepers::new(), [Outcome::default(), Outcome::default()]));
            all.1.iter().for_each(Outcome::begin);
            let ends: Vec<_> = (0..2)
                .map(|index| {
                    let all = all.clone();
                    thread::spawn(move || end(&all.1[index], &all.0))
                })
                .collect();
            let (sleepers, outcomes) = (&all.0, &all.1);
            let slot = sleepers.claim();
            sleepers.wait_until(slot, || !outcomes.iter().all(|outcome| outcome.arm(slot)));
            sleepers.give_back(slot);
            assert!(!outcomes.iter().all(Outcome::is_in_flight));
            for end in ends {
                end.join().unwrap();
            }
            assert!(outcomes.iter().all(|outcome| outcome.0.load(Relaxed) == 0));
        });
    }

    #[test]
    fn loom_a_sleeper_does_not_miss_the_end() {
        one_of_two(|outcome, sleepers| sleepers.wake(outcome.end(0)));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_an_end_that_wakes_no_thread() {
        one_of_two(|outcome, sleepers| {
            forgetting_wakes(|| sleepers.wake(outcome.end(0)));
        });
    }

    /// A thread that arms the word between the two steps is not woken.
    #[test]
    #[should_panic]
    fn loom_canary_looking_before_the_end_is_caught() {
        one_of_two(|outcome, sleepers| {
            let slots = (outcome.0.load(Acquire) >> SLOTS_SHIFT) as u32;
            outcome.0.fetch_and(!u64::from(u32::MAX), AcqRel);
            sleepers.wake(slots);
        });
    }
}
