//! Threads that sleep for the end of requests, in aio_suspend or lio_listio.
//!
//! A thread claims one of 32 slots and leaves its number in the blocks it waits for. Who ends a
//! request finds the numbers in the block, and wakes those threads and nobody else (M12). More than
//! 31 threads at a time share the last slot, and are woken for each other. No lock, no memory: a
//! signal handler may wait. A forked child keeps what its parent had claimed; it costs only sharing.

use core::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use nowait_sys::futex;

/// The slot that threads share when the others are taken.
const SHARED: u32 = 31;

/// The slots of a process: one face, one set.
pub struct Waiters {
    claimed: AtomicU32,
    /// Changes when a request ends for which somebody in the slot waits.
    words: [AtomicU32; 32],
}

/// The slots of this process.
pub static WAITERS: Waiters = Waiters::new();

impl Waiters {
    const fn new() -> Waiters {
        Waiters { claimed: AtomicU32::new(0), words: [const { AtomicU32::new(0) }; 32] }
    }

    /// Claims a slot for the calling thread.
    pub fn claim(&self) -> u32 {
        let mut claimed = self.claimed.load(Relaxed);
        loop {
            let free = claimed.trailing_ones();
            if free >= SHARED {
                return SHARED;
            }
            let taken = claimed | 1 << free;
            match self.claimed.compare_exchange_weak(claimed, taken, AcqRel, Relaxed) {
                Ok(_) => return free,
                Err(now) => claimed = now,
            }
        }
    }

    /// Gives a slot back. Blocks may still name it: that wakes its next owner for nothing.
    pub fn give_back(&self, slot: u32) {
        if slot != SHARED {
            self.claimed.fetch_and(!(1 << slot), AcqRel);
        }
    }

    /// Returns the word of a slot, to sleep on: read it, arm the blocks, sleep while it is the same.
    pub fn word(&self, slot: u32) -> &AtomicU32 {
        &self.words[slot as usize % self.words.len()]
    }

    /// Wakes the threads in these slots (a bit for each).
    pub fn wake(&self, mut slots: u32) {
        while slots != 0 {
            let word = self.word(slots.trailing_zeros());
            word.fetch_add(1, AcqRel);
            futex::wake(word, u32::MAX);
            slots &= slots - 1;
        }
    }

    /// Sleeps in `slot` until `is_over`, which arms what it waits for; not for signal handlers'
    /// own use, and no cancellation point.
    pub fn wait_until(&self, slot: u32, mut is_over: impl FnMut() -> bool) {
        loop {
            let seen = self.word(slot).load(Acquire);
            if is_over() {
                return;
            }
            let _ = futex::wait(self.word(slot), seen, nowait_sys::time::Deadline::NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aiocb::Aiocb;

    #[test]
    fn slots_are_exclusive_until_they_run_out() {
        let waiters = Waiters::new();
        let claimed: Vec<u32> = (0..34).map(|_| waiters.claim()).collect();
        assert_eq!(claimed[..31], (0..31).collect::<Vec<u32>>());
        assert_eq!(claimed[31..], [SHARED; 3]);
        waiters.give_back(SHARED);
        waiters.give_back(7);
        assert_eq!((waiters.claim(), waiters.claim()), (7, SHARED));
    }

    #[test]
    fn a_waiter_is_woken_by_the_end_it_waits_for() {
        let waiters = Waiters::new();
        for round in 0..2000 {
            let memory = Aiocb::empty();
            let block = memory.block();
            block.begin();
            std::thread::scope(|scope| {
                let slot = waiters.claim();
                scope.spawn(|| waiters.wake(block.finish(Ok(round))));
                waiters.wait_until(slot, || !block.arm(slot));
                waiters.give_back(slot);
            });
            assert!(!block.is_under_way());
        }
    }
}
