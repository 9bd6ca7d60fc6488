//! The closes of a process: how often each descriptor was closed, and which threads are in a system
//! call on it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use nowait_sys::{
    futex,
    mistake::{self, Mistake},
    time::{self, Deadline},
};

/// Descriptors that are told apart by their number modulo this.
pub(super) const SLOTS: usize = 64;
/// Threads that may use a number at a time.
const USERS: usize = 64;
/// How long a close waits for a thread that uses the number: it needs a moment to enter its system
/// call, and a call that has been entered keeps its file.
const CLOSE_NS: u64 = 1_000_000_000;

/// Counts the closes of descriptors in a process, so that a close need not look at each context: a
/// context forgets what it knows of a number when it uses that again.
#[derive(Debug)]
pub struct Closes {
    counts: [AtomicU32; SLOTS],
    /// The numbers in use, and one more; 0: none.
    users: [AtomicU32; USERS],
    /// Closes that wait for a user.
    waiting: AtomicU32,
}

impl Default for Closes {
    fn default() -> Closes {
        Closes {
            counts: [const { AtomicU32::new(0) }; SLOTS],
            users: [const { AtomicU32::new(0) }; USERS],
            waiting: AtomicU32::new(0),
        }
    }
}

/// A number in use: a close of it waits until this is dropped.
#[must_use]
pub(crate) struct InUse<'a> {
    closes: &'a Closes,
    user: &'a AtomicU32,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.user.store(0, SeqCst);
        if self.closes.waiting.load(SeqCst) > 0 {
            futex::wake(self.user, u32::MAX);
        }
    }
}

impl Closes {
    /// Says that `fd` is about to be closed or replaced. Waits for a thread that uses the number,
    /// for a second at most.
    pub fn closed(&self, fd: i32) {
        self.counts[fd as usize % SLOTS].fetch_add(1, SeqCst);
        self.wait_for_users(|user| user == number(fd));
    }

    /// Says that any descriptor may be closed. Waits as [`Closes::closed`] does.
    pub fn closed_many(&self) {
        self.counts.iter().for_each(|count| _ = count.fetch_add(1, SeqCst));
        self.wait_for_users(|user| user != 0);
    }

    /// Returns how often `fd` may have been closed.
    pub(crate) fn count(&self, fd: i32) -> u32 {
        self.count_of_slot(fd as usize % SLOTS)
    }

    pub(super) fn count_of_slot(&self, slot: usize) -> u32 {
        self.counts[slot].load(Relaxed)
    }

    /// Begins the use of `fd` by the calling thread, if it was not closed since it had been closed
    /// `count` times. `None`: it may have been, or too many threads use numbers.
    pub(crate) fn begin_use(&self, fd: i32, count: u32) -> Option<InUse<'_>> {
        let free = |user: &&AtomicU32| {
            user.load(Relaxed) == 0 && user.compare_exchange(0, number(fd), SeqCst, Relaxed).is_ok()
        };
        let user = self.users.iter().find(free)?;
        let in_use = InUse { closes: self, user };
        // After it is shown: either this sees the close, or the close sees the user.
        let is_open = self.counts[fd as usize % SLOTS].load(SeqCst) == count;
        (is_open || mistake::makes(Mistake::UseClosed)).then_some(in_use)
    }

    fn wait_for_users(&self, is_meant: impl Fn(u32) -> bool) {
        let is_used = self.users.iter().any(|user| is_meant(user.load(SeqCst)));
        if !is_used || mistake::makes(Mistake::CloseBeside) {
            return;
        }
        self.waiting.fetch_add(1, SeqCst);
        let until = Deadline::at_ns(time::now_ns() + CLOSE_NS);
        for user in &self.users {
            let mut seen = user.load(SeqCst);
            while is_meant(seen) && !until.has_passed() {
                let _ = futex::wait(user, seen, until);
                seen = user.load(SeqCst);
            }
        }
        self.waiting.fetch_sub(1, SeqCst);
    }
}

fn number(fd: i32) -> u32 {
    fd as u32 + 1
}

#[cfg(test)]
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
