//! Writes in flight that bypass the engine's page cache, counted by inode.
//!
//! If the cache reads a page while a write that bypasses the cache is in flight, the page may hold
//! the old bytes. The cache would keep the old bytes, or write them back over the new ones. So a
//! write counts itself, and then looks for a mark of the inode; an open in the cache marks the
//! inode, and then looks for counted writes. Either the write sees the mark, and goes through the
//! cache, or the open sees the write, and waits for its end.
//!
//! Counting a write does not wait; the end of a write takes a lock only if an open waits.

use crate::{Context, order::InodeKey};
use core::hash::{BuildHasher, BuildHasherDefault};
use nowait_retry::counter::{Counter, ZeroWaiters};
use rustc_hash::FxHasher;
use std::{sync::Arc, task::Waker};

/// Counters in each of the two tables: 16 KiB.
const PLACES: usize = 4096;
/// Counters of the writes to files whose inode was not looked up.
const UNKNOWN: usize = 64;

#[derive(Debug)]
pub(crate) struct KernelWrites {
    /// Two tables, indexed by different bits of the inode's hash: two inodes rarely share both
    /// counters.
    first: Box<[Counter]>,
    second: Box<[Counter]>,
    unknown: [Unknown; UNKNOWN],
    opens: ZeroWaiters,
}

/// A counter in a cache line of its own: contexts of different threads use different counters.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Unknown(Counter);

/// The two counters of an inode's writes; or [`ANY_INODE`] and the counter of unknown inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places(u16, u16);

const ANY_INODE: u16 = PLACES as u16;

impl Places {
    fn of(key: InodeKey) -> Places {
        const BITS: u32 = PLACES.ilog2();
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(key);
        let place = |shift: u32| (hash >> (u64::BITS - shift)) as usize % PLACES;
        Places(place(BITS) as u16, place(2 * BITS) as u16)
    }
}

impl Default for KernelWrites {
    fn default() -> KernelWrites {
        let counters = || (0..PLACES).map(|_| Counter::default()).collect();
        KernelWrites {
            first: counters(),
            second: counters(),
            unknown: core::array::from_fn(|_| Unknown::default()),
            opens: ZeroWaiters::default(),
        }
    }
}

impl KernelWrites {
    /// The caller must look for a mark of the inode afterwards.
    pub(crate) fn enter(&self, key: InodeKey) -> KernelWrite<'_> {
        let places = Places::of(key);
        self.first[usize::from(places.0)].enter();
        self.second[usize::from(places.1)].enter();
        KernelWrite { writes: self, places }
    }

    /// The caller must look for a mark of any inode afterwards.
    pub(crate) fn enter_unknown(&self, context: &Context) -> KernelWrite<'_> {
        let index = context.number % UNKNOWN;
        self.unknown[index].0.enter();
        KernelWrite { writes: self, places: Places(ANY_INODE, index as u16) }
    }

    pub(crate) fn remember(&self, places: Places) -> KernelWrite<'_> {
        KernelWrite { writes: self, places }
    }

    pub(crate) fn leave(&self, places: Places) {
        if places.0 == ANY_INODE {
            if self.unknown[usize::from(places.1)].0.leave() {
                self.opens.wake();
            }
            return;
        }
        let first = self.first[usize::from(places.0)].leave();
        let second = self.second[usize::from(places.1)].leave();
        if first || second {
            self.opens.wake();
        }
    }

    /// A `false` may be wrong, because inodes share counters.
    pub(crate) fn none(&self, key: InodeKey) -> bool {
        let Places(first, second) = Places::of(key);
        self.first[usize::from(first)].is_zero() || self.second[usize::from(second)].is_zero()
    }

    fn none_unknown(&self, index: usize) -> bool {
        self.unknown[index].0.is_zero()
    }

    pub(crate) fn none_at_all(&self, key: InodeKey) -> bool {
        (0..UNKNOWN).all(|index| self.none_unknown(index)) && self.none(key)
    }

    /// Calls `sleep` until no write to the inode is in flight. The caller has marked the inode, so
    /// that no further write bypasses the cache; `sleep` returns when `waker` is woken, or earlier.
    pub(crate) fn wait_for_none(&self, key: InodeKey, waker: &Waker, sleep: impl Fn()) {
        let wait = |is_over: &dyn Fn() -> bool| self.opens.wait(waker, is_over, &sleep);
        (0..UNKNOWN).for_each(|index| wait(&|| self.none_unknown(index)));
        wait(&|| self.none(key));
    }
}

#[derive(Debug)]
pub(crate) struct KernelWrite<'a> {
    writes: &'a KernelWrites,
    places: Places,
}

impl KernelWrite<'_> {
    pub(crate) fn forget(self) -> Places {
        let places = self.places;
        core::mem::forget(self);
        places
    }

    pub(crate) fn keep(self, context: &Arc<Context>) -> KeptWrite {
        KeptWrite::of(self.forget(), context)
    }
}

impl Drop for KernelWrite<'_> {
    fn drop(&mut self) {
        self.writes.leave(self.places);
    }
}

pub(crate) struct KeptWrite {
    context: Arc<Context>,
    places: Places,
}

impl KeptWrite {
    pub(crate) fn of(places: Places, context: &Arc<Context>) -> KeptWrite {
        KeptWrite { context: context.clone(), places }
    }
}

impl Drop for KeptWrite {
    fn drop(&mut self) {
        self.context.engine().user_files.writes.leave(self.places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_write_is_counted_until_it_ends() {
        let writes = KernelWrites::default();
        assert!(writes.none_at_all((1, 2)));
        let write = writes.enter((1, 2));
        assert!(!writes.none((1, 2)) && writes.none((1, 3)));
        let places = write.forget();
        assert!(!writes.none((1, 2)));
        writes.leave(places);
        assert!(writes.none_at_all((1, 2)));
    }

    #[test]
    fn few_inodes_share_both_places() {
        let writes = KernelWrites::default();
        let in_flight: Vec<_> = (0..256).map(|inode| writes.enter((64_769, inode))).collect();
        let shared = (256..100_000).filter(|inode| !writes.none((64_769, *inode))).count();
        assert!(shared < 1000, "{shared} of 99,744 inodes beside 256 others");
        drop(in_flight);
        assert!((0..256).all(|inode| writes.none((64_769, inode))));
    }

    #[test]
    fn an_open_waits_for_the_writes_of_its_inode_alone() {
        let writes = KernelWrites::default();
        let (mine, _others) = (Cell::new(Some(writes.enter((1, 2)))), writes.enter((1, 3)));
        let sleeps = Cell::new(0);
        writes.wait_for_none((1, 2), Waker::noop(), || {
            sleeps.set(sleeps.get() + 1);
            drop(mine.take());
        });
        assert_eq!(sleeps.get(), 1);
    }
}
