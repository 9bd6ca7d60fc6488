//! Plain calls in flight that change a file which was not cached when they began.
//!
//! A page that the cache reads meanwhile may be what was there before the call, and would be kept,
//! or written back over it. So a file that such a call is at stays with the kernel's cache:
//!
//! ```text
//!   a call:  count itself, then look whether the     a first request:  mark the inode, then look
//!            inode is marked; it is: exclude it                        for calls; one: no cache
//! ```
//! One of the two sees the other. A call takes no lock, for it may be a signal handler's.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use nowait_retry::counter::Counter;
use std::sync::OnceLock;

/// Inodes share counters: a call at another inode keeps a file out of the cache, no more.
const PLACES: usize = 256;

/// Not zero where files may be cached: calls that change one are looked at from then on.
#[unsafe(export_name = "nowait_may_cache")]
static MAY_CACHE: AtomicU32 = AtomicU32::new(0);

static CHANGES: OnceLock<[Counter; PLACES]> = OnceLock::new();

/// Begins to count, before the first request: files may be cached in this process.
pub fn begin() {
    CHANGES.get_or_init(|| core::array::from_fn(|_| Counter::default()));
    MAY_CACHE.store(1, Relaxed);
}

/// Says that nothing is cached, in a forked child.
pub(crate) fn end() {
    MAY_CACHE.store(0, Relaxed);
}

/// A call, counted until [`leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change(usize);

impl Change {
    /// Returns the number that names it, which is not zero.
    pub fn number(self) -> usize {
        self.0 + 1
    }

    /// Returns the one with this number, if there is one.
    pub fn of_number(number: usize) -> Option<Change> {
        number.checked_sub(1).filter(|place| *place < PLACES).map(Change)
    }
}

/// Counts a call that changes the inode; the caller looks for a mark of that afterwards. `None`:
/// nothing is cached in this process.
pub(crate) fn enter(key: (u64, u64)) -> Option<Change> {
    let change = place(key);
    CHANGES.get()?[change.0].enter();
    // What is looked at next may be as weak as a load of the process.
    fence(SeqCst);
    Some(change)
}

/// Ends it.
pub fn leave(change: Change) {
    if let Some(changes) = CHANGES.get() {
        let _ = changes[change.0].leave(); // no thread waits for that
    }
}

/// Tells whether no call is at the inode, which is marked.
pub(crate) fn none(key: (u64, u64)) -> bool {
    CHANGES.get().is_none_or(|changes| changes[place(key).0].is_zero())
}

fn place((dev, ino): (u64, u64)) -> Change {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = (ino ^ dev.rotate_left(32)).wrapping_mul(FACTOR);
    Change((hash >> (u64::BITS - PLACES.ilog2())) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_seen_until_it_ends() {
        begin();
        let (key, other) = ((1, 2), (1, 3));
        let (first, second) = (enter(key).unwrap(), enter(key).unwrap());
        assert_eq!(Change::of_number(first.number()), Some(second));
        leave(first);
        assert!(!none(key), "one is left");
        assert!(none(other));
        leave(second);
        assert!(none(key));
    }

    #[test]
    fn few_inodes_share_a_counter() {
        let mut used: Vec<_> = (0..64).map(|ino| place((64_769, ino)).number()).collect();
        used.sort_unstable();
        used.dedup();
        assert!(used.len() > 48, "{} counters for 64 inodes", used.len());
    }
}
