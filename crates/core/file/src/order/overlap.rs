//! Overlapping requests take effect in submission order.
//!
//! The kernel's own AIO completes a buffered request inside io_submit, so programs rely on a later
//! request seeing the effect of an earlier one. Requests that go on outside submit are registered
//! in [`Orders`]. A later request waits for the registered ones with which it conflicts, and the
//! last of them to end kicks it; no other request is woken.

use super::reach::{Access, InodeKey, Reach};
use core::{
    ops::ControlFlow,
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};
use nowait_block::Lane;
use nowait_retry::WaitEntry;
use nowait_sys::mistake::{self, Mistake};
use nowait_sys::mutex::Mutex;
use rustc_hash::FxHashMap;
use std::{collections::BTreeMap, ops::Range, sync::Arc, task::Waker};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the page cache of the engine; also changes of a cached file that bypass the cache.
    Cache,
    Kernel,
    /// Not decided yet: the file is being opened in the page cache.
    Open,
}

struct Entry {
    reach: Reach,
    way: Way,
    blocked: Vec<Place>,
    waiting: Option<Waiting>,
}

struct Waiting {
    number: usize,
    /// `None`: the request, a write to the whole inode, left while it waited. `Inode::end` removes
    /// its place once the requests before it have ended.
    entry: Option<WaitEntry>,
    free: Arc<AtomicBool>,
}

impl Entry {
    fn new(reach: Reach, way: Way) -> Entry {
        Entry { reach, way, blocked: Vec::new(), waiting: None }
    }

    fn precedes(&self, later: &Reach) -> bool {
        self.reach.precedes(later) && !mistake::makes(Mistake::NoOrder)
    }

    /// Returns `true` if the request writes the whole file. Later requests wait for it, apart from
    /// those that go to the kernel during an open.
    fn is_whole(&self) -> bool {
        self.reach.access == Access::Write && self.reach.range == (0..u64::MAX)
    }
}

/// The sort key of a request on its inode: its access, its length, and where it begins. So a search
/// for requests that overlap some bytes skips most of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    access: Access,
    digits: u32,
    start: u64,
    number: u64,
}

impl Place {
    fn of(reach: &Reach, number: u64) -> Place {
        let (access, Range { start, end }) = (reach.access, reach.range.clone());
        Place { access, digits: u64::BITS - (end - start).leading_zeros(), start, number }
    }

    fn first(access: Access, digits: u32) -> Place {
        Place { access, digits, start: 0, number: 0 }
    }
}

struct Inode {
    entries: BTreeMap<Place, Entry>,
    /// The writes that leave a hole behind the end of the file, by their position in the order of
    /// submission.
    lengthening: BTreeMap<u64, Place>,
    /// The lowest end of the file that a write has found since `lengthening` was last empty.
    lowest_end: u64,
    /// The number of the last write to the whole inode. This write waits for all earlier reads and
    /// writes, so a request that waits for this write need not wait for those. So each of ten
    /// thousand appends waits only for the one before.
    whole: u64,
    opening: Option<Opening>,
    lane: Arc<Lane>,
}

struct Opening {
    number: u64,
    whole_before: u64,
}

impl Inode {
    fn new() -> Inode {
        Inode {
            entries: BTreeMap::new(),
            lengthening: BTreeMap::new(),
            lowest_end: u64::MAX,
            whole: 0,
            opening: None,
            lane: Lane::new(),
        }
    }

    /// Calls `each` for the earlier requests that a request with this reach must wait for, until
    /// `each` breaks. Requests before the last write to the whole inode are left out: that write
    /// waits for them already.
    fn in_the_way(
        &mut self,
        reach: &Reach,
        way: Way,
        mut each: impl FnMut(&mut Entry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // A request that goes to the kernel has begun before the open. It waits neither for the
        // open nor for requests that wait for the open.
        let (from, passed) = match &self.opening {
            Some(opening) if way == Way::Kernel => (opening.whole_before, opening.number),
            _ => (self.whole, u64::MAX),
        };
        let is_earlier = |place: &Place, entry: &Entry| {
            place.number >= from && (place.number < passed || entry.way == way)
        };
        let accesses: &[_] = match reach.access {
            Access::Write => {
                &[(Access::Write, reach.range.clone()), (Access::Read, reach.with_hole())]
            }
            _ => &[(Access::Write, reach.range.clone())],
        };
        for (earlier, range) in accesses {
            let mut digits = 0;
            while let Some(window) = self.window(*earlier, digits, range, from) {
                digits = window.end.digits + 1;
                for (place, entry) in self.entries.range_mut(window) {
                    if is_earlier(place, entry) && entry.precedes(reach) {
                        each(entry)?;
                    }
                }
            }
        }
        if reach.access == Access::Read && reach.range.end > self.lowest_end {
            for place in self.lengthening.values() {
                let Some(entry) = self.entries.get_mut(place) else { continue };
                let was_shown = entry.reach.overlaps(reach);
                if !was_shown && is_earlier(place, entry) && entry.precedes(reach) {
                    each(entry)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the range of places that may overlap `range`, among the requests with the fewest
    /// digits, but at least `digits`.
    fn window(
        &self,
        access: Access,
        digits: u32,
        range: &Range<u64>,
        from: u64,
    ) -> Option<Range<Place>> {
        let next = self.entries.range(Place::first(access, digits)..).next();
        let digits = next.filter(|(place, _)| place.access == access)?.0.digits;
        let longest = u64::MAX.checked_shr(u64::BITS - digits).unwrap_or(0);
        // All requests on the whole file begin at offset 0; only those from number `from` on count.
        let start = range.start.saturating_sub(longest);
        let first = Place { access, digits, start, number: from };
        let end = Place { access, digits, start: range.end, number: 0 };
        Some(first.min(end)..end)
    }

    fn add(&mut self, place: Place, entry: Entry) {
        let number = place.number;
        if entry.way == Way::Open {
            self.opening = Some(Opening { number, whole_before: self.whole });
        }
        // A request that goes to the kernel during an open does not wait for the open.
        let has_passed = entry.way == Way::Kernel && self.opening.is_some();
        if entry.is_whole() && !has_passed {
            self.whole = number;
        }
        if entry.reach.leaves_hole() {
            self.lengthening.insert(number, place);
            self.lowest_end = self.lowest_end.min(entry.reach.with_hole().start);
        }
        self.entries.insert(place, entry);
    }

    fn remove(&mut self, place: Place) -> Option<Entry> {
        let entry = self.entries.remove(&place)?;
        if entry.reach.leaves_hole() {
            self.lengthening.remove(&place.number);
            if self.lengthening.is_empty() {
                self.lowest_end = u64::MAX;
            }
        }
        Some(entry)
    }

    fn has_writer(&self) -> bool {
        let first = self.entries.range(Place::first(Access::Write, 0)..).next();
        first.is_some_and(|(place, _)| place.access == Access::Write)
    }

    /// Ends a request, and those behind it that have ended before their turn. Adds the wait entries
    /// to be kicked to `kicked`. Returns how many requests are gone that are not syncs, and how
    /// many of them were writes.
    fn end(&mut self, place: Place, kicked: &mut Vec<WaitEntry>) -> (usize, usize) {
        let (mut next, mut more, mut count, mut writes) = (Some(place), Vec::new(), 0, 0);
        while let Some(gone) = next.and_then(|place| self.remove(place)) {
            count += usize::from(gone.reach.access != Access::Sync);
            writes += usize::from(gone.reach.access == Access::Write);
            for place in gone.blocked {
                // The entry is gone if the request was cancelled before its turn.
                let Some(entry) = self.entries.get_mut(&place) else { continue };
                let Some(mut waiting) = entry.waiting.take() else { continue };
                waiting.number -= 1;
                if waiting.number > 0 {
                    entry.waiting = Some(waiting);
                    continue;
                }
                waiting.free.store(true, Release);
                match waiting.entry {
                    Some(entry) => kicked.push(entry),
                    None => more.push(place),
                }
            }
            next = more.pop();
        }
        (count, writes)
    }
}

/// A request's place in the order; given up by [`Orders::leave`].
#[derive(Debug)]
pub struct Ticket {
    key: InodeKey,
    place: Place,
    /// Set when the earlier requests that were in the way have ended; `None`: none was in the way.
    free: Option<Arc<AtomicBool>>,
}

impl Ticket {
    /// Returns `true` if an earlier request is in the way. The end of the last such request kicks
    /// the wait entry.
    pub fn is_blocked(&self) -> bool {
        self.free.as_ref().is_some_and(|free| !free.load(Acquire))
    }
}

/// The registered requests on all inodes.
#[derive(Default)]
pub struct Orders {
    inodes: Mutex<FxHashMap<InodeKey, Inode>>,
    /// The number of entries that are not syncs: no request waits for a sync.
    count: AtomicUsize,
    /// The number of entries that write: if there is none, no entry waits for another.
    writes: AtomicUsize,
    next_number: AtomicU64,
}

impl Orders {
    /// Returns `true` if no request is registered for which another may have to wait.
    pub fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Returns `true` if no request is registered for which one with this access may have to wait.
    pub fn is_free_for(&self, access: Access) -> bool {
        match access {
            Access::Write => self.is_empty(),
            Access::Read | Access::Sync => !self.has_writes(),
        }
    }

    /// Returns `true` if a write is registered: only then may a request have to wait for another.
    pub fn has_writes(&self) -> bool {
        self.writes.load(Acquire) > 0
    }

    /// Returns `true` if a request would have to wait now.
    pub fn conflicts(&self, key: InodeKey, reach: &Reach) -> bool {
        let mut inodes = self.inodes.lock();
        let Some(inode) = inodes.get_mut(&key) else { return false };
        inode.in_the_way(reach, Way::Cache, |_| ControlFlow::Break(())).is_break()
    }

    /// Returns `true` if a write of the engine is registered on the inode: such a write may hold
    /// the kernel's inode lock.
    pub fn has_writer(&self, key: InodeKey) -> bool {
        // Checked without the lock first: the lock writes to a cache line that all contexts use.
        self.has_writes() && self.inodes.lock().get(&key).is_some_and(Inode::has_writer)
    }

    /// Registers a request behind the earlier ones with which it conflicts. The last of them to end
    /// kicks the wait entry that `entry` makes. Also returns the lane that runs the inode's
    /// exclusive writes one after another.
    pub fn enter(
        &self,
        key: InodeKey,
        reach: Reach,
        entry: impl FnOnce() -> WaitEntry,
    ) -> (Ticket, Arc<Lane>) {
        self.enter_by(Way::Cache, key, reach, entry)
    }

    pub(crate) fn enter_by(
        &self,
        way: Way,
        key: InodeKey,
        reach: Reach,
        entry: impl FnOnce() -> WaitEntry,
    ) -> (Ticket, Arc<Lane>) {
        if reach.access != Access::Sync {
            self.count.fetch_add(1, AcqRel);
        }
        if reach.access == Access::Write {
            self.writes.fetch_add(1, AcqRel);
        }
        let mut inodes = self.inodes.lock();
        // Taken under the lock, so that the numbers of an inode are in the order of its entries.
        let number = self.next_number.fetch_add(1, Relaxed);
        let inode = inodes.entry(key).or_insert_with(Inode::new);
        let mut waits_for = 0;
        let place = Place::of(&reach, number);
        let _ = inode.in_the_way(&reach, way, |earlier| {
            earlier.blocked.push(place);
            waits_for += 1;
            ControlFlow::Continue(())
        });
        let free: Option<Arc<AtomicBool>> = (waits_for > 0).then(Arc::default);
        let mut new = Entry::new(reach, way);
        new.waiting = free.clone().map(|free| {
            let (number, entry) = (waits_for, Some(entry()));
            Waiting { number, entry, free }
        });
        inode.add(place, new);
        (Ticket { key, place, free }, inode.lane.clone())
    }

    /// Registers an open of the file in the page cache. Later requests wait until the open leaves
    /// the order, except requests that go to the kernel: they have begun before the open, which
    /// waits for them. So they wait neither for the open nor for requests that wait for it.
    pub(crate) fn enter_open(&self, key: InodeKey) -> Ticket {
        let entry = || Waker::noop().clone();
        self.enter_by(Way::Open, key, Reach::new(0..u64::MAX, Access::Write), entry).0
    }

    /// Removes a request from the order, and kicks each request that waits for no other any more. A
    /// write to the whole inode that still waits is removed when its turn comes.
    pub fn leave(&self, ticket: &Ticket) {
        let mut kicked = Vec::new();
        let mut inodes = self.inodes.lock();
        let Some(inode) = inodes.get_mut(&ticket.key) else { return };
        inode.opening.take_if(|opening| opening.number == ticket.place.number);
        let Some(entry) = inode.entries.get_mut(&ticket.place) else { return };
        if entry.is_whole()
            && let Some(waiting) = &mut entry.waiting
        {
            // Later requests wait only for this one, and rely on its waiting for the earlier ones.
            let ended = waiting.entry.take();
            drop(inodes);
            return drop(ended);
        }
        let unused = entry.waiting.take();
        let (gone, writes) = inode.end(ticket.place, &mut kicked);
        let over = inode.entries.is_empty().then(|| inodes.remove(&ticket.key));
        drop(inodes);
        self.count.fetch_sub(gone, AcqRel);
        self.writes.fetch_sub(writes, AcqRel);
        // The wait entry of a cancelled request is dropped here, without the lock.
        drop((unused, over));
        kicked.into_iter().for_each(WaitEntry::wake);
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
        Waker::from(count.clone())
    }

    #[test]
    fn nothing_waits_for_a_sync() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let whole = |access| Reach::new(0..u64::MAX, access);
        let (sync, _) = orders.enter((1, 1), whole(Access::Sync), || entry(&kicks));
        assert!(orders.is_free_for(Access::Write) && orders.is_empty());
        let (write, _) = orders.enter((1, 1), whole(Access::Write), || entry(&kicks));
        assert!(!write.is_blocked() && !orders.is_free_for(Access::Sync));
        orders.leave(&sync);
        assert!(!orders.is_empty());
        orders.leave(&write);
        assert!(orders.is_empty());
    }

    #[test]
    fn a_read_waits_for_the_overlapping_write_and_is_kicked_once() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let (first, _) = orders.enter((1, 1), Reach::new(0..10, Access::Write), || entry(&kicks));
        let (second, _) = orders.enter((1, 1), Reach::new(5..15, Access::Write), || entry(&kicks));
        let (read, _) = orders.enter((1, 1), Reach::new(8..9, Access::Read), || entry(&kicks));
        let (elsewhere, _) =
            orders.enter((1, 1), Reach::new(20..30, Access::Read), || entry(&kicks));
        let (other, _) = orders.enter((1, 2), Reach::new(0..10, Access::Write), || entry(&kicks));
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
    fn sync_waits_for_writes_and_blocks_none() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let (read, _) = orders.enter((1, 1), Reach::new(0..10, Access::Read), || entry(&kicks));
        let (write, _) = orders.enter((1, 1), Reach::new(20..30, Access::Write), || entry(&kicks));
        let (sync, _) =
            orders.enter((1, 1), Reach::new(0..u64::MAX, Access::Sync), || entry(&kicks));
        let (later, _) = orders.enter((1, 1), Reach::new(40..50, Access::Write), || entry(&kicks));
        assert!(sync.is_blocked() && !later.is_blocked());
        orders.leave(&write);
        assert!(!sync.is_blocked());
        for ticket in [read, sync, later] {
            orders.leave(&ticket);
        }
        assert!(orders.is_empty());
    }

    /// If these requests waited for the open, which waits for them, neither would ever go on.
    #[test]
    fn what_goes_to_the_kernel_passes_an_open_and_what_waits_for_that() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let enter = |way, range| {
            orders.enter_by(way, (1, 1), Reach::new(range, Access::Write), || entry(&kicks)).0
        };
        let before = enter(Way::Kernel, 0..10);
        let open = orders.enter_open((1, 1));
        let cached = enter(Way::Cache, 0..10);
        let late = enter(Way::Kernel, 20..30);
        let append = enter(Way::Kernel, WHOLE);
        let behind = enter(Way::Cache, 40..50);
        assert!(!before.is_blocked() && !late.is_blocked());
        assert!(cached.is_blocked() && append.is_blocked() && behind.is_blocked());
        orders.leave(&before);
        assert!(append.is_blocked(), "by the other that is late");
        orders.leave(&late);
        assert!(!append.is_blocked(), "by the other that is late, not by the open");
        orders.leave(&append);
        assert!(cached.is_blocked() && behind.is_blocked(), "until the file is open");
        orders.leave(&open);
        assert!(!cached.is_blocked() && !behind.is_blocked());
        let after = enter(Way::Kernel, WHOLE);
        assert!(after.is_blocked(), "no open any more");
        for ticket in [cached, behind, after] {
            orders.leave(&ticket);
        }
        assert!(orders.is_empty());
    }

    const WHOLE: Range<u64> = 0..u64::MAX;

    #[test]
    fn ten_thousand_appends_wait_each_for_the_one_before() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let enter = || orders.enter((1, 1), Reach::new(WHOLE, Access::Write), || entry(&kicks)).0;
        let appends: Vec<_> = (0..10_000).map(|_| enter()).collect();
        let noted: usize = {
            let inodes = orders.inodes.lock();
            inodes[&(1, 1)].entries.values().map(|append| append.blocked.len()).sum()
        };
        assert_eq!(noted, 9_999);
        for (before, append) in appends.iter().enumerate() {
            assert!(!append.is_blocked(), "its turn");
            assert!(appends.get(before + 1).is_none_or(Ticket::is_blocked));
            orders.leave(append);
        }
        assert_eq!(kicks.0.load(Relaxed), 9_999);
        assert!(orders.is_empty());
    }

    #[test]
    fn none_looks_at_ten_thousand_that_lie_elsewhere() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let blocks: Vec<_> = (0..10_000).map(|block| block * 4096..(block + 1) * 4096).collect();
        let tickets: Vec<_> = blocks
            .iter()
            .flat_map(|block| [Access::Write, Access::Sync].map(|access| (block, access)))
            .map(|(block, access)| {
                orders.enter((1, 1), Reach::new(block.clone(), access), || entry(&kicks)).0
            })
            .collect();
        let large =
            orders.enter((1, 1), Reach::new(1 << 40..1 << 41, Access::Read), || entry(&kicks)).0;
        {
            let inodes = orders.inodes.lock();
            let inode = &inodes[&(1, 1)];
            let looks = |access, range: &Range<u64>| {
                let (mut digits, mut looks) = (0, 0);
                while let Some(window) = inode.window(access, digits, range, 0) {
                    digits = window.end.digits + 1;
                    looks += inode.entries.range(window).count();
                }
                looks
            };
            assert!(blocks.iter().all(|block| looks(Access::Write, block) <= 3));
            assert!(blocks.iter().all(|block| looks(Access::Read, block) <= 1));
            assert_eq!(looks(Access::Write, &WHOLE), 10_000, "an append looks at all");
        }
        tickets.iter().chain([&large]).for_each(|ticket| orders.leave(ticket));
        assert!(orders.is_empty());
    }

    #[test]
    fn an_append_that_is_cancelled_lets_none_overtake_what_it_waited_for() {
        let (orders, kicks) = (Orders::default(), Arc::new(Count(AtomicUsize::new(0))));
        let enter =
            |range, access| orders.enter((1, 1), Reach::new(range, access), || entry(&kicks)).0;
        let write = enter(0..10, Access::Write);
        let appends = [0; 3].map(|_| enter(WHOLE, Access::Write));
        let read = enter(5..6, Access::Read);
        orders.leave(&appends[0]);
        orders.leave(&appends[1]);
        assert!(appends[2].is_blocked() && read.is_blocked(), "the write is in flight");
        orders.leave(&write);
        assert!(!appends[2].is_blocked() && read.is_blocked());
        assert_eq!(kicks.0.load(Relaxed), 1, "the cancelled ones are not kicked");
        orders.leave(&appends[2]);
        assert!(!read.is_blocked());
        orders.leave(&read);
        assert!(orders.is_empty());
    }

    fn request() -> impl Strategy<Value = Reach> {
        let part = (0u64..40, length()).prop_map(|(start, len)| start..start + len);
        let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Sync)];
        let positioned = (part, access, 0u64..60)
            .prop_map(|(range, access, end)| Reach::at_end(range, access, end));
        prop_oneof![3 => positioned, 1 => Just(Reach::new(WHOLE, Access::Write))]
    }

    fn length() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0u64..8, 1 => 0u64..60]
    }

    proptest! {
        #[test]
        fn none_overtakes_where_some_are_cancelled(
            requests in prop::collection::vec((request(), any::<bool>()), 1..40),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 40),
        ) {
            let orders = Orders::default();
            let kicks = Arc::new(Count(AtomicUsize::new(0)));
            let mut live = Vec::new();
            for (reach, cancelled) in requests {
                let (ticket, _) = orders.enter((0, 0), reach.clone(), || entry(&kicks));
                live.push((reach, cancelled, ticket));
            }
            for pick in picks.iter().cycle() {
                if live.is_empty() { break }
                for (index, (reach, _, ticket)) in live.iter().enumerate() {
                    let in_the_way = live[..index].iter().any(|it| it.0.precedes(reach));
                    prop_assert!(!in_the_way || ticket.is_blocked());
                }
                prop_assert!(live.iter().any(|(.., ticket)| !ticket.is_blocked()), "deadlock");
                let ready: Vec<usize> =
                    (0..live.len()).filter(|i| live[*i].1 || !live[*i].2.is_blocked()).collect();
                let (.., ticket) = live.remove(ready[pick.index(ready.len())]);
                orders.leave(&ticket);
            }
            prop_assert!(orders.is_empty());
        }

        #[test]
        fn conflicting_requests_start_in_order(
            requests in prop::collection::vec(request(), 1..40),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 40),
        ) {
            let orders = Orders::default();
            let kicks = Arc::new(Count(AtomicUsize::new(0)));
            let mut live = Vec::new();
            for reach in requests {
                let (ticket, _) = orders.enter((0, 0), reach.clone(), || entry(&kicks));
                live.push((reach, ticket));
            }
            for pick in picks.iter().cycle() {
                if live.is_empty() { break }
                let writes = live.iter().any(|(reach, _)| reach.access == Access::Write);
                prop_assert_eq!(orders.has_writes(), writes);
                for (index, (reach, ticket)) in live.iter().enumerate() {
                    let blocked = live[..index].iter().any(|it| it.0.precedes(reach));
                    prop_assert_eq!(ticket.is_blocked(), blocked);
                }
                let ready: Vec<usize> =
                    (0..live.len()).filter(|i| !live[*i].1.is_blocked()).collect();
                prop_assert!(!ready.is_empty(), "deadlock");
                let (.., ticket) = live.remove(ready[pick.index(ready.len())]);
                orders.leave(&ticket);
            }
            prop_assert!(orders.is_empty());
        }
    }
}
