//! Locks between writes of whole blocks and writes of parts of blocks.
//!
//! A write of a part of a block reads the block, changes it and writes it. Without locks it would
//! undo another write of the whole block that ends after the read and before the write. Therefore
//! writers of whole blocks hold a shared lock, and a writer of a part of a block holds an exclusive
//! lock. A serving thread must not wait: if a writer of a part has the lock, the serving thread
//! makes the write of whole blocks a blocking task, which may wait.
//!
//! ```text
//!  word of a stripe    31 ALONE: a request has the stripe, or waits until none shares it
//!                      30-0      number of requests that share it
//! ```
//! The bytes of a file fall into stripes of 256 KiB. There are 64 locks, so every 64th stripe has
//! the same lock. A request that takes several locks takes them in ascending order.

use core::{
    ops::Range,
    sync::atomic::{
        AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};
use nowait_sys::mutex::{Condvar, Mutex};
use std::sync::Arc;

const COUNT: u64 = u64::BITS as u64;
const STRIPE_BYTES: u64 = 256 << 10;
const ALONE: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct Stripes {
    words: [AtomicU32; COUNT as usize],
    /// Threads hold the gate while they check whether to wait, and take it before they wake others.
    gate: Mutex<()>,
    freed: Condvar,
}

fn stripes_of(range: &Range<u64>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let (first, last) = (range.start / STRIPE_BYTES, (range.end - 1) / STRIPE_BYTES);
    if last - first >= COUNT - 1 {
        return u64::MAX;
    }
    (first..=last).fold(0, |set, stripe| set | 1 << (stripe % COUNT))
}

fn each(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(next)
    })
}

impl Stripes {
    pub(crate) fn new() -> Arc<Stripes> {
        let words = [const { AtomicU32::new(0) }; COUNT as usize];
        Arc::new(Stripes { words, gate: Mutex::new(()), freed: Condvar::new() })
    }

    /// Returns `None` if another request has one of the stripes exclusively, or waits for that.
    pub(crate) fn try_share(self: &Arc<Stripes>, range: &Range<u64>) -> Option<Shared> {
        let mut shared = Shared { stripes: self.clone(), set: 0 };
        for stripe in each(stripes_of(range)) {
            // Dropping `shared` releases the stripes that were taken so far.
            if !self.share_one(stripe) {
                return None;
            }
            shared.set |= 1 << stripe;
        }
        Some(shared)
    }

    fn share_one(&self, stripe: usize) -> bool {
        let add = |word: u32| (word & ALONE == 0).then_some(word + 1);
        self.words[stripe].fetch_update(AcqRel, Relaxed, add).is_ok()
    }

    pub(crate) fn share(self: &Arc<Stripes>, range: &Range<u64>) -> Shared {
        let mut shared = Shared { stripes: self.clone(), set: 0 };
        for stripe in each(stripes_of(range)) {
            self.wait_until(|| self.share_one(stripe));
            shared.set |= 1 << stripe;
        }
        shared
    }

    pub(crate) fn alone(&self, range: &Range<u64>) -> Alone<'_> {
        let set = stripes_of(range);
        for stripe in each(set) {
            // First keep new requests out, then wait until those that share the stripe have
            // released it.
            self.wait_until(|| self.words[stripe].fetch_or(ALONE, AcqRel) & ALONE == 0);
            self.wait_until(|| self.words[stripe].load(Acquire) == ALONE);
        }
        Alone { stripes: self, set }
    }

    fn wait_until(&self, mut ready: impl FnMut() -> bool) {
        let mut gate = self.gate.lock();
        while !ready() {
            self.freed.wait(&mut gate);
        }
    }

    /// The caller must have changed a stripe's word before.
    fn tell(&self) {
        // A thread that checked the word before the change holds the gate until it sleeps. This
        // thread has taken the gate, so that thread sleeps now, and the notification wakes it.
        drop(self.gate.lock());
        self.freed.notify_all();
    }
}

/// A shared lock on the stripes of a write. Dropping it releases the lock.
#[derive(Debug)]
pub struct Shared {
    stripes: Arc<Stripes>,
    set: u64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut waited_for = false;
        for stripe in each(self.set) {
            waited_for |= self.stripes.words[stripe].fetch_sub(1, AcqRel) == ALONE + 1;
        }
        if waited_for {
            self.stripes.tell();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Alone<'a> {
    stripes: &'a Stripes,
    set: u64,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        for stripe in each(self.set) {
            self.stripes.words[stripe].fetch_and(!ALONE, AcqRel);
        }
        self.stripes.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_range_touches_the_stripes_it_lies_in() {
        assert_eq!(stripes_of(&(0..0)), 0);
        assert_eq!(stripes_of(&(0..STRIPE_BYTES)), 1);
        assert_eq!(stripes_of(&(STRIPE_BYTES - 1..STRIPE_BYTES + 1)), 3);
        let far = 63 * STRIPE_BYTES;
        assert_eq!(stripes_of(&(far..far + 2 * STRIPE_BYTES)), 1 | 1 << 63);
        assert_eq!(stripes_of(&(0..u64::MAX)), u64::MAX);
        assert_eq!(each(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
    }

    #[test]
    fn an_exclusive_stripe_is_not_shared_and_the_others_are() {
        let stripes = Stripes::new();
        let near = 0..4096;
        let alone = stripes.alone(&near);
        assert!(stripes.try_share(&near).is_none());
        assert!(stripes.try_share(&(0..1 << 20)).is_none(), "nothing of it is kept");
        let other = stripes.try_share(&(1 << 20..2 << 20)).unwrap();
        drop(alone);
        let shared = stripes.try_share(&near).unwrap();
        assert!(stripes.try_share(&near).is_some(), "by several");
        drop((shared, other));
        assert!(stripes.words.iter().all(|word| word.load(Acquire) == 0));
    }

    #[test]
    fn an_exclusive_request_waits_for_sharers_and_keeps_new_ones_out() {
        let stripes = Stripes::new();
        let shared = stripes.try_share(&(0..4096)).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| drop(stripes.alone(&(0..4096))));
            while stripes.try_share(&(0..4096)).is_some() {}
            let behind = scope.spawn(|| drop(stripes.share(&(0..4096))));
            assert!(!waits.is_finished() && !behind.is_finished());
            drop(shared);
        });
        assert!(stripes.try_share(&(0..4096)).is_some());
    }

    #[test]
    fn no_stripe_is_both_exclusive_and_shared_among_many_threads() {
        let (stripes, inside) = (Stripes::new(), AtomicU32::new(0));
        let range = 0..600 << 10;
        thread::scope(|scope| {
            for number in 0..4 {
                let (stripes, inside, range) = (&stripes, &inside, &range);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        if number % 2 == 0 {
                            let _alone = stripes.alone(range);
                            assert_eq!(inside.fetch_add(1 << 16, AcqRel), 0);
                            inside.fetch_sub(1 << 16, AcqRel);
                        } else {
                            let _shared = stripes.share(range);
                            assert!(inside.fetch_add(1, AcqRel) < 1 << 16);
                            inside.fetch_sub(1, AcqRel);
                        }
                    }
                });
            }
        });
    }
}
