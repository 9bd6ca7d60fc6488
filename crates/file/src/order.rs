//! Overlapping requests take effect in submission order.
//!
//! The kernel's own AIO completes a buffered request inside io_submit, so programs rely on a
//! later request seeing an earlier one. Whatever we take out of the submitter's hands is
//! registered here; a later request that conflicts waits for exactly those it conflicts with,
//! and is kicked by the last of them (a filtered wake-up: no other request is disturbed).

use crate::{Command, Kind};
use core::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use nowait_block::backends::threads::Lane;
use nowait_retry::WaitEntry;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::{ops::Range, sync::Arc};

/// What a request does to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads them.
    Read,
    /// Changes them.
    Write,
    /// Makes earlier changes durable: waits for earlier writes, nobody waits for it.
    Sync,
}

/// Returns which bytes a command touches, and how.
pub(crate) fn reach(command: &Command) -> (Range<u64>, Access) {
    let range = command.offset as u64..(command.offset as u64).saturating_add(command.len);
    match command.kind {
        Kind::Write if command.is_append() => (0..u64::MAX, Access::Write),
        Kind::Write => (range, Access::Write),
        Kind::Read => (range, Access::Read),
        _ => (command.sync_range(), Access::Sync),
    }
}

/// The identity of an inode: device and inode number.
pub type InodeKey = (u64, u64);

struct Entry {
    id: u64,
    range: Range<u64>,
    access: Access,
    /// Later requests that wait for this one, each with the number it still waits for.
    blocked: Vec<(WaitEntry, Arc<AtomicUsize>)>,
}

impl Entry {
    fn conflicts(&self, range: &Range<u64>, access: Access) -> bool {
        let overlap = self.range.start < range.end && range.start < self.range.end;
        overlap
            && matches!((self.access, access), (Access::Write, _) | (Access::Read, Access::Write))
    }
}

struct Inode {
    entries: Vec<Entry>,
    lane: Arc<Lane>,
}

/// A request's place in the order; given up by [`Orders::leave`].
#[derive(Debug)]
pub struct Ticket {
    key: InodeKey,
    id: u64,
    /// How many earlier requests are in the way; `None`: there never was one.
    waits_for: Option<Arc<AtomicUsize>>,
}

impl Ticket {
    /// Tells whether an earlier request is in the way. When the last is gone the wait entry is
    /// kicked.
    pub fn is_blocked(&self) -> bool {
        self.waits_for.as_ref().is_some_and(|number| number.load(Acquire) != 0)
    }
}

/// The requests of all inodes that are under way outside their submitter.
#[derive(Default)]
pub struct Orders {
    inodes: Mutex<FxHashMap<InodeKey, Inode>>,
    count: AtomicUsize,
    next_id: AtomicUsize,
}

impl Orders {
    /// Tells whether nothing is registered at all: then nothing can conflict.
    pub fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Tells whether a request would have to wait now.
    pub fn conflicts(&self, key: InodeKey, range: &Range<u64>, access: Access) -> bool {
        let inodes = self.inodes.lock();
        let inode = inodes.get(&key);
        inode.is_some_and(|inode| inode.entries.iter().any(|e| e.conflicts(range, access)))
    }

    /// Tells whether a write of ours is under way on the inode: it may hold the inode's lock.
    pub fn has_writer(&self, key: InodeKey) -> bool {
        let inodes = self.inodes.lock();
        let writes = |inode: &Inode| inode.entries.iter().any(|e| e.access == Access::Write);
        inodes.get(&key).is_some_and(writes)
    }

    /// Registers a request behind those it conflicts with; `entry` makes what they kick. Also
    /// returns the lane that runs the inode's exclusive writes one after another.
    pub fn enter(
        &self,
        key: InodeKey,
        range: Range<u64>,
        access: Access,
        entry: impl Fn() -> WaitEntry,
    ) -> (Ticket, Arc<Lane>) {
        let id = self.next_id.fetch_add(1, Relaxed) as u64;
        let mut waits_for: Option<Arc<AtomicUsize>> = None;
        self.count.fetch_add(1, AcqRel);
        let mut inodes = self.inodes.lock();
        let inode =
            inodes.entry(key).or_insert_with(|| Inode { entries: Vec::new(), lane: Lane::new() });
        for earlier in &mut inode.entries {
            if earlier.conflicts(&range, access) {
                let number = waits_for.get_or_insert_default();
                number.fetch_add(1, Relaxed);
                earlier.blocked.push((entry(), number.clone()));
            }
        }
        inode.entries.push(Entry { id, range, access, blocked: Vec::new() });
        (Ticket { key, id, waits_for }, inode.lane.clone())
    }

    /// Registers a change of the whole inode, if nothing at all is under way on it: then it waits
    /// for nothing, and what comes later waits for it.
    pub fn enter_if_free(&self, key: InodeKey) -> Option<Ticket> {
        let id = self.next_id.fetch_add(1, Relaxed) as u64;
        let mut inodes = self.inodes.lock();
        if inodes.contains_key(&key) {
            return None;
        }
        self.count.fetch_add(1, AcqRel);
        let (range, access) = (0..u64::MAX, Access::Write);
        let entries = vec![Entry { id, range, access, blocked: Vec::new() }];
        inodes.insert(key, Inode { entries, lane: Lane::new() });
        Some(Ticket { key, id, waits_for: None })
    }

    /// Ends a request's part in the order and kicks those that waited for it alone.
    pub fn leave(&self, ticket: &Ticket) {
        let mut inodes = self.inodes.lock();
        let Some(inode) = inodes.get_mut(&ticket.key) else { return };
        let Some(index) = inode.entries.iter().position(|e| e.id == ticket.id) else { return };
        let gone = inode.entries.swap_remove(index);
        if inode.entries.is_empty() {
            inodes.remove(&ticket.key);
        }
        drop(inodes);
        self.count.fetch_sub(1, AcqRel);
        for (entry, waits_for) in gone.blocked {
            if waits_for.fetch_sub(1, AcqRel) == 1 {
                entry.kick();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::task::{Wake, Waker};

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn entry(count: &Arc<Count>) -> WaitEntry {
        Waker::from(count.clone()).into()
    }

    #[test]
    fn a_read_waits_for_the_overlapping_write_and_is_kicked_once() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let (first, _) = orders.enter((1, 1), 0..10, Access::Write, || entry(&kicks));
        let (second, _) = orders.enter((1, 1), 5..15, Access::Write, || entry(&kicks));
        let (read, _) = orders.enter((1, 1), 8..9, Access::Read, || entry(&kicks));
        let (elsewhere, _) = orders.enter((1, 1), 20..30, Access::Read, || entry(&kicks));
        let (other, _) = orders.enter((1, 2), 0..10, Access::Write, || entry(&kicks));
        assert!(!first.is_blocked() && !elsewhere.is_blocked() && !other.is_blocked());
        assert!(second.is_blocked() && read.is_blocked());
        orders.leave(&first);
        assert!(!second.is_blocked() && read.is_blocked());
        assert_eq!(kicks.0.load(Relaxed), 1);
        orders.leave(&second);
        assert!(!read.is_blocked());
        assert_eq!(kicks.0.load(Relaxed), 2);
    }

    #[test]
    fn sync_waits_for_writes_and_blocks_nobody() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let (read, _) = orders.enter((1, 1), 0..10, Access::Read, || entry(&kicks));
        let (write, _) = orders.enter((1, 1), 20..30, Access::Write, || entry(&kicks));
        let (sync, _) = orders.enter((1, 1), 0..u64::MAX, Access::Sync, || entry(&kicks));
        let (later, _) = orders.enter((1, 1), 40..50, Access::Write, || entry(&kicks));
        assert!(sync.is_blocked() && !later.is_blocked());
        orders.leave(&write);
        assert!(!sync.is_blocked());
        for ticket in [read, sync, later] {
            orders.leave(&ticket);
        }
        assert!(orders.is_empty());
    }

    proptest! {
        /// Whatever the order of completion, requests start only after all earlier conflicting
        /// ones have ended, and all of them start.
        #[test]
        fn conflicting_requests_start_in_order(
            requests in prop::collection::vec((0u64..20, 1u64..8, any::<bool>()), 1..40),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 40),
        ) {
            let orders = Orders::default();
            let kicks = Arc::new(Count(AtomicUsize::new(0)));
            let mut live = Vec::new();
            for (index, (start, len, write)) in requests.iter().enumerate() {
                let access = if *write { Access::Write } else { Access::Read };
                let range = *start..start + len;
                let (ticket, _) = orders.enter((0, 0), range.clone(), access, || entry(&kicks));
                live.push((index, range, *write, ticket));
            }
            for pick in picks.iter().cycle() {
                if live.is_empty() { break }
                for (index, range, write, ticket) in &live {
                    let blocked = live.iter().any(|(earlier, other, other_writes, _)| {
                        earlier < index && (*write || *other_writes)
                            && other.start < range.end && range.start < other.end
                    });
                    prop_assert_eq!(ticket.is_blocked(), blocked);
                }
                let ready: Vec<usize> =
                    (0..live.len()).filter(|i| !live[*i].3.is_blocked()).collect();
                prop_assert!(!ready.is_empty(), "deadlock");
                let (.., ticket) = live.remove(ready[pick.index(ready.len())]);
                orders.leave(&ticket);
            }
            prop_assert!(orders.is_empty());
        }
    }
}
