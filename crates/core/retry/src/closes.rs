//! The closes of a process: counts of closed descriptors, and the numbers that threads are about to
//! use.

use crate::primitives::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
    fence, futex_wait, futex_wake,
};
use core::array;
use nowait_sys::{
    mistake::{self, Mistake},
    time::{self, Deadline},
};

/// The number of counters. Descriptor numbers that are equal modulo `SLOTS` share a counter.
pub const SLOTS: usize = if cfg!(loom) { 1 } else { 64 };
const USERS: usize = if cfg!(loom) { 1 } else { 64 };
/// The longest time that a close waits for threads that use the number. They only need to enter
/// their system call: a call that was entered keeps its file.
const CLOSE_NS: u64 = 1_000_000_000;

/// Counters of the closes of descriptors in a process. A close does not visit the contexts: a
/// context forgets the file of a descriptor number if the number's counter has changed.
#[derive(Debug)]
pub struct Closes {
    counts: [AtomicU32; SLOTS],
    /// Descriptor numbers in use, each plus one; 0 for a free entry.
    users: [AtomicU32; USERS],
    /// Closes that wait for the end of a use.
    waiting: AtomicU32,
}

impl Default for Closes {
    fn default() -> Closes {
        Closes {
            counts: array::from_fn(|_| AtomicU32::new(0)),
            users: array::from_fn(|_| AtomicU32::new(0)),
            waiting: AtomicU32::new(0),
        }
    }
}

/// The use of a descriptor number by a thread. A close of the number waits until this is dropped,
/// for a second at most.
#[must_use]
pub struct InUse<'a> {
    closes: &'a Closes,
    user: &'a AtomicU32,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        // A swap, because loom would not order a store with the loads of waiting threads.
        self.user.swap(0, AcqRel);
        // Pairs with the fence of `wait_for_users`: either the closing thread sees the end of this
        // use, or this thread sees that a close waits.
        fence(SeqCst);
        if self.closes.waiting.load(Relaxed) > 0 {
            futex_wake(self.user, u32::MAX);
        }
    }
}

impl Closes {
    /// Counts a close of `fd`. The caller closes or replaces the descriptor afterwards. Waits for
    /// the threads that use the number, for a second at most.
    pub fn closed(&self, fd: i32) {
        // Programs also close -1. As a number in `users` it would be 0, as in a free entry.
        if fd >= 0 {
            self.count_close(fd);
            self.wait_for_users(|user| user == number(fd));
        }
    }

    /// Counts a close of every descriptor, and waits as [`Closes::closed`] does.
    pub fn closed_many(&self) {
        self.counts.iter().for_each(|count| _ = count.fetch_add(1, SeqCst));
        self.wait_for_users(|user| user != 0);
    }

    /// Returns the number of closes of `fd` and of the numbers that share its counter.
    pub fn count(&self, fd: i32) -> u32 {
        self.count_of_slot(fd as usize % SLOTS)
    }

    /// Returns the value of one counter.
    pub fn count_of_slot(&self, slot: usize) -> u32 {
        self.counts[slot].load(Relaxed)
    }

    /// Begins the use of `fd` by the calling thread, if its count is still `count`. Returns `None`
    /// if a close has changed the count, or if too many threads use descriptors.
    pub fn begin_use(&self, fd: i32, count: u32) -> Option<InUse<'_>> {
        let in_use = self.show_use(fd)?;
        (self.is_open(fd, count) || mistake::makes(Mistake::UseClosed)).then_some(in_use)
    }

    fn is_open(&self, fd: i32, count: u32) -> bool {
        self.counts[fd as usize % SLOTS].load(Acquire) == count
    }

    fn count_close(&self, fd: i32) {
        self.counts[fd as usize % SLOTS].fetch_add(1, SeqCst);
    }

    fn show_use(&self, fd: i32) -> Option<InUse<'_>> {
        let free = |user: &&AtomicU32| {
            user.load(Relaxed) == 0 && user.compare_exchange(0, number(fd), SeqCst, Relaxed).is_ok()
        };
        let user = self.users.iter().find(free)?;
        // Pairs with the fence of `wait_for_users`: either this thread sees the close, or the
        // closing thread sees this use.
        fence(SeqCst);
        Some(InUse { closes: self, user })
    }

    fn wait_for_users(&self, is_meant: impl Fn(u32) -> bool) {
        fence(SeqCst);
        let is_used = self.users.iter().any(|user| is_meant(user.load(Acquire)));
        if !is_used || mistake::makes(Mistake::CloseBeside) {
            return;
        }
        self.waiting.fetch_add(1, Relaxed);
        fence(SeqCst);
        let until = Deadline::at_ns(time::now_ns() + CLOSE_NS);
        for user in &self.users {
            let mut seen = user.load(Acquire);
            while is_meant(seen) && !until.has_passed() {
                let _ = futex_wait(user, seen, until);
                seen = user.load(Acquire);
            }
        }
        self.waiting.fetch_sub(1, Relaxed);
    }
}

fn number(fd: i32) -> u32 {
    fd as u32 + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_number_that_was_closed_is_not_used() {
        let closes = Closes::default();
        let count = closes.count(3);
        assert!(closes.begin_use(3, count).is_some());
        closes.closed(3);
        assert!(closes.begin_use(3, count).is_none());
        let count = closes.count(3);
        closes.closed_many();
        assert!(closes.begin_use(3, count).is_none());
        assert!((0..USERS).all(|_| closes.begin_use(4, closes.count(4)).is_some()), "all are free");
    }

    #[test]
    fn a_close_of_no_descriptor_waits_for_nobody() {
        let (closes, began) = (Closes::default(), time::now_ns());
        [-1, i32::MIN].into_iter().for_each(|fd| closes.closed(fd));
        assert!(time::now_ns() - began < CLOSE_NS);
    }

    #[test]
    fn a_close_waits_for_the_users_of_its_number_only() {
        let closes = Closes::default();
        let (three, _four) = (closes.begin_use(3, 0), closes.begin_use(4, 0));
        closes.closed(3 + SLOTS as i32);
        thread::scope(|scope| {
            let closer = scope.spawn(|| closes.closed(3));
            while closes.waiting.load(SeqCst) == 0 {
                thread::yield_now();
            }
            assert!(!closer.is_finished());
            drop(three);
            closer.join().unwrap();
        });
        assert_eq!(closes.waiting.load(SeqCst), 0);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, forgetting_wakes};
    use loom::thread;

    const NUMBER: i32 = 3;

    fn one_closes(close: fn(&Closes), use_it: fn(&Closes, &dyn Fn())) {
        loom::model(move || {
            let shared = Arc::new((Closes::default(), AtomicU32::new(1)));
            let other = shared.clone();
            let closer = thread::spawn(move || {
                let (closes, file) = &*other;
                close(closes);
                file.store(2, SeqCst);
            });
            let (closes, file) = &*shared;
            use_it(closes, &|| assert_eq!(file.load(SeqCst), 1, "the other file"));
            closer.join().unwrap();
        });
    }

    fn use_it(closes: &Closes, call: &dyn Fn()) {
        if let Some(_in_use) = closes.begin_use(NUMBER, 0) {
            call();
        }
    }

    #[test]
    fn loom_a_number_in_use_means_its_file() {
        one_closes(|closes| closes.closed(NUMBER), use_it);
    }

    #[test]
    fn loom_a_close_of_many_waits_for_a_user_too() {
        one_closes(Closes::closed_many, use_it);
    }

    #[test]
    #[should_panic(expected = "the other file")]
    fn loom_canary_a_close_that_does_not_wait() {
        one_closes(|closes| closes.count_close(NUMBER), use_it);
    }

    #[test]
    #[should_panic(expected = "the other file")]
    fn loom_canary_a_look_before_the_use_is_shown() {
        one_closes(
            |closes| closes.closed(NUMBER),
            |closes, call| {
                let is_open = closes.is_open(NUMBER, 0);
                let in_use = closes.show_use(NUMBER).filter(|_| is_open);
                in_use.iter().for_each(|_| call());
            },
        );
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_canary_a_use_that_ends_in_silence() {
        one_closes(
            |closes| closes.closed(NUMBER),
            |closes, call| forgetting_wakes(|| use_it(closes, call)),
        );
    }
}
