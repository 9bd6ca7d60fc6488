//! Request tags: how many requests the queues of an engine together have at a disk.
//!
//! Each request at a disk takes a tag. Most disks have 256 tags, and the scheduler mq-deadline lets
//! writes take three quarters of them. When no tag is free, the kernel makes the next submitter
//! sleep inside its system call. This module keeps the queues of an engine together within three
//! quarters of a disk's tags. A request that finds no room in a context queue goes to the driver,
//! which keeps it until there is room.
//!
//! ```text
//! taken       the requests of one queue, say 17, on its line; only that queue writes it
//! announced   whole batches, for these 17 requests 32, added to a sum for all context queues
//! has_room    a context queue reads the sum; if that leaves no room, it adds up the exact lines
//! ```
//!
//! Errors here cost time, not correctness: a queue also accepts bios for which this module sees no
//! room. [`Tags::look`] removes the limit if files lie on several disks: one sum says nothing about
//! any of these.

use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use std::sync::Arc;

/// The most file systems that [`Tags`] distinguishes; with more, [`Tags::look`] removes the limit.
const DEVICES: usize = 16;
/// Disks with fewer tags have no limit here: the kernel merges adjoining requests for such a disk
/// before the requests take a tag, so a limit on requests would slow the disk down.
const TAGS_MIN: usize = if cfg!(simulated) { 2 } else { 128 };
/// The number of requests that a queue may have even beyond the limit: requests of other queues
/// that have ended count until they are reaped.
const ALWAYS: usize = if cfg!(simulated) { 1 } else { 16 };
/// The number of requests that a queue without requests may always take; the driver asks for two.
const FIRST: usize = 2;
/// The queues of contexts announce multiples of this number.
const BATCH: usize = 16;
/// The number of context queues with their own line; further queues share [`Tags::others`].
const LINES: usize = u64::BITS as usize;
const ENDLESS: usize = usize::MAX;
/// The limit while a recorded device has not been looked up: most disks have 256 tags.
const GUESS: usize = of_tags(256);

/// Returns how many of a disk's tags the engine may take: as many as mq-deadline allows for writes.
const fn of_tags(tags: usize) -> usize {
    tags / 4 * 3
}

/// A disk, as the system describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The device number of the whole disk.
    pub dev: u64,
    /// The number of request tags.
    pub tags: usize,
}

/// The tags that the queues of an engine share.
#[derive(Debug)]
pub struct Tags {
    hot: Hot,
    driver: Line,
    contexts: [Line; LINES],
    others: Line,
    /// The device numbers of the file systems that were used; 0: none.
    devices: [AtomicU64; DEVICES],
    overflows: AtomicBool,
    /// `true`: `devices` has entries that [`Tags::look`] has not checked.
    has_news: AtomicBool,
}

/// Values that many queues read and that are seldom written, on their own cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Hot {
    announced: AtomicUsize,
    driver_waits: AtomicBool,
    limit: AtomicUsize,
    lines: AtomicU64,
}

/// The number of requests of one queue, or of several queues in [`Tags::others`].
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicUsize);

impl Default for Tags {
    fn default() -> Tags {
        Tags {
            hot: Hot {
                announced: AtomicUsize::new(0),
                driver_waits: AtomicBool::new(false),
                limit: AtomicUsize::new(ENDLESS),
                lines: AtomicU64::new(0),
            },
            driver: Line::default(),
            contexts: core::array::from_fn(|_| Line::default()),
            others: Line::default(),
            devices: Default::default(),
            overflows: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
        }
    }
}

/// The threads that submit to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitter {
    /// The application's threads.
    Callers,
    /// The engine's driver.
    Driver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Driver,
    Context(usize),
    /// In the share itself, and in [`Tags::others`].
    Other,
}

/// The tags that one queue has taken. Dropping the share returns the tags.
#[derive(Debug)]
pub struct Share {
    tags: Arc<Tags>,
    place: Place,
    /// The number of the queue's requests if [`Share::place`] is [`Place::Other`].
    taken: AtomicUsize,
    announced: AtomicUsize,
}

impl Tags {
    /// Makes a share for a queue.
    pub fn share(self: &Arc<Tags>, submitter: Submitter) -> Share {
        let place = match submitter {
            Submitter::Driver => Place::Driver,
            Submitter::Callers => self.take_line().map_or(Place::Other, Place::Context),
        };
        let (taken, announced) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Share { tags: self.clone(), place, taken, announced }
    }

    fn take_line(&self) -> Option<usize> {
        let one_more = |lines: u64| (lines != u64::MAX).then(|| lines | (lines + 1));
        // Acquire: the last count of the line's previous queue comes before the first count of the
        // next one.
        let before = self.hot.lines.fetch_update(Acquire, Relaxed, one_more).ok()?;
        Some(before.trailing_ones() as usize)
    }

    /// Returns `true` if the context queues together have at most `most` requests when `more`
    /// requests are added.
    fn contexts_have_room(&self, more: usize, most: usize) -> bool {
        let used = LINES - self.hot.lines.load(Relaxed).leading_zeros() as usize;
        let mut sum = more;
        let mut fits = |line: &Line| {
            sum += line.0.load(Relaxed);
            sum <= most
        };
        self.contexts[..used].iter().chain([&self.others]).all(&mut fits)
    }

    /// Returns `true` if [`Tags::note_device`] has recorded this number, or has found no place for
    /// some other number.
    pub fn knows_device(&self, dev: u64) -> bool {
        self.overflows.load(Relaxed) || self.devices.iter().any(|it| it.load(Relaxed) == dev)
    }

    /// Records that requests go to files with this device number.
    pub fn note_device(&self, dev: u64) {
        if self.knows_device(dev) {
            return;
        }
        let takes = |slot: &AtomicU64| match slot.compare_exchange(0, dev, AcqRel, Acquire) {
            Ok(_) => true,
            Err(other) => other == dev,
        };
        if !self.devices.iter().any(takes) {
            self.overflows.store(true, Relaxed);
        }
        // The limit is stored before `has_news`, so that a later `look` replaces the limit.
        self.hot.limit.store(GUESS, SeqCst);
        self.has_news.store(true, SeqCst);
    }

    /// Sets the limit if a device was recorded since the last call: by the disk's number of tags if
    /// all recorded devices lie on one disk with at least `TAGS_MIN` tags; otherwise removes the
    /// limit. Only one thread at a time may call this.
    pub fn look(&self, disk_of: impl Fn(u64) -> Option<Disk>) {
        if !self.has_news.load(Relaxed) || !self.has_news.swap(false, SeqCst) {
            return;
        }
        let noted = self.devices.iter().map(|it| it.load(Acquire)).take_while(|dev| *dev != 0);
        let mut disks = noted.map(disk_of);
        let first = disks.next().flatten().filter(|disk| disk.tags >= TAGS_MIN);
        let is_one = !self.overflows.load(Relaxed) && disks.all(|disk| disk == first);
        let limit = first.filter(|_| is_one).map_or(ENDLESS, |disk| of_tags(disk.tags));
        self.hot.limit.store(limit, SeqCst);
        if self.has_news.load(SeqCst) {
            // Another thread has recorded a device meanwhile, perhaps on another disk.
            self.hot.limit.store(GUESS, SeqCst);
        }
    }

    /// Records whether the driver has requests and no tags for them. While the driver waits,
    /// context queues leave a third of the limit to it.
    pub fn driver_waits(&self, waits: bool) {
        if self.hot.driver_waits.load(Relaxed) != waits {
            self.hot.driver_waits.store(waits, Relaxed);
        }
    }
}

impl Share {
    /// Records the number of requests that the queue has now. Only one thread at a time may call
    /// this.
    pub fn publish(&self, now: usize) {
        let taken = self.taken();
        let before = taken.load(Relaxed);
        if now == before {
            return;
        }
        taken.store(now, Relaxed);
        match self.place {
            Place::Driver => return,
            Place::Context(_) => {}
            Place::Other => add_difference(&self.tags.others.0, before, now),
        }
        let before = self.announced.load(Relaxed);
        self.announce(before, announced(before, now));
    }

    fn announce(&self, before: usize, now: usize) {
        if now != before {
            self.announced.store(now, Relaxed);
            add_difference(&self.tags.hot.announced, before, now);
        }
    }

    fn taken(&self) -> &AtomicUsize {
        match self.place {
            Place::Driver => &self.tags.driver.0,
            Place::Context(at) => &self.tags.contexts[at].0,
            Place::Other => &self.taken,
        }
    }

    /// Returns `true` if a queue with `own` requests should take `more` requests.
    pub fn has_room(&self, own: usize, more: usize) -> bool {
        // A queue without requests in flight would wait for a completion that does not come.
        if own == 0 && more <= FIRST || own + more <= ALWAYS {
            return true;
        }
        let limit = self.tags.hot.limit.load(Relaxed);
        // `own` may be more than `taken`: it includes requests that are not published yet.
        let taken = self.taken().load(Relaxed);
        limit == ENDLESS || self.is_within(limit, taken, own.max(taken) + more)
    }

    /// Returns `true` if the limit allows this queue, which has `taken` requests now, to have
    /// `wanted`. The driver may always have a third of the limit. Context queues count no more than
    /// this third for the driver.
    fn is_within(&self, limit: usize, taken: usize, wanted: usize) -> bool {
        let (tags, third) = (&*self.tags, limit / 3);
        let of_driver = tags.driver.0.load(Relaxed);
        if self.place == Place::Driver {
            return wanted <= third || tags.contexts_have_room(wanted, limit);
        }
        let waits = tags.hot.driver_waits.load(Relaxed);
        let left = limit - if waits { third } else { of_driver.min(third) };
        let more = wanted.saturating_sub(self.announced.load(Relaxed));
        tags.hot.announced.load(Relaxed) + more <= left
            || tags.contexts_have_room(wanted - taken, left)
    }
}

fn add_difference(sum: &AtomicUsize, before: usize, now: usize) {
    sum.fetch_add(now.wrapping_sub(before), Relaxed);
}

/// Returns how many requests a queue with `taken` requests announces: at least `taken`. The queue
/// keeps its last announcement `before` while that is at most two batches more than `taken`, so
/// that its next requests need no new announcement.
fn announced(before: usize, taken: usize) -> usize {
    let is_kept = (taken..=taken + 2 * BATCH).contains(&before);
    if is_kept { before } else { taken.next_multiple_of(BATCH) }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.publish(0);
        self.announce(self.announced.load(Relaxed), 0);
        if let Place::Context(at) = self.place {
            self.tags.hot.lines.fetch_and(!(1 << at), Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DISK: Disk = Disk { dev: 70, tags: 256 };

    /// The queues may take 192 of the disk's tags.
    fn shares() -> (Arc<Tags>, Share, Share, Share) {
        let tags = Arc::new(Tags::default());
        tags.note_device(7);
        tags.look(|_| Some(DISK));
        let of = |submitter| tags.share(submitter);
        let (one, other) = (of(Submitter::Callers), of(Submitter::Callers));
        (tags.clone(), one, other, tags.share(Submitter::Driver))
    }

    fn taken_by_contexts(tags: &Tags) -> usize {
        tags.contexts.iter().chain([&tags.others]).map(|line| line.0.load(Relaxed)).sum()
    }

    #[test]
    fn queues_of_contexts_share_the_tags() {
        let (_tags, one, other, _driver) = shares();
        assert!(one.has_room(1, 191) && !one.has_room(1, 192));
        assert!(one.has_room(100, 92) && !one.has_room(100, 93), "what it has not said counts");
        one.publish(100);
        other.publish(92);
        assert!(!one.has_room(100, 1) && !other.has_room(92, 1));
        drop(other);
        assert!(one.has_room(100, 92), "what a queue had is given back");
    }

    #[test]
    fn requests_that_come_and_go_are_announced_once() {
        // The columns: announced before, requests now, announced afterwards.
        let table = [
            (0, 1, 16),
            (16, 0, 16),
            (16, 16, 16),
            (16, 17, 32),
            (32, 0, 32),
            (48, 16, 48),
            (48, 15, 16),
            (192, 100, 112),
            (192, 0, 0),
        ];
        for (before, taken, after) in table {
            assert_eq!(announced(before, taken), after, "{before}, then {taken}");
        }
    }

    #[test]
    fn idle_queues_keep_no_tags_from_others() {
        let (tags, one, ..) = shares();
        let idle: Vec<Share> = (0..20).map(|_| tags.share(Submitter::Callers)).collect();
        for share in &idle {
            share.publish(32);
            share.publish(0);
        }
        assert!(tags.hot.announced.load(Relaxed) > 192);
        assert!(one.has_room(1, 191) && !one.has_room(1, 192));
        drop(idle);
        assert_eq!(tags.hot.announced.load(Relaxed), 0);
    }

    #[test]
    fn each_queue_has_a_line_of_its_own() {
        let tags = Arc::new(Tags::default());
        let share = || tags.share(Submitter::Callers);
        let mut shares: Vec<Share> = (0..LINES).map(|_| share()).collect();
        assert!(shares.iter().enumerate().all(|(at, share)| share.place == Place::Context(at)));
        shares.push(share());
        assert_eq!(shares[LINES].place, Place::Other);
        shares.iter().for_each(|share| share.publish(2));
        assert_eq!(taken_by_contexts(&tags), 2 * (LINES + 1));
        drop(shares.remove(7));
        assert_eq!((share().place, taken_by_contexts(&tags)), (Place::Context(7), 2 * LINES));
    }

    #[test]
    fn threads_give_back_what_they_took() {
        let (tags, one, other, driver) = shares();
        std::thread::scope(|scope| {
            for share in [one, other, driver] {
                scope.spawn(move || (0..1000).for_each(|step| share.publish(step * 7 % 200)));
            }
        });
        let driver = tags.driver.0.load(Relaxed);
        let announced = tags.hot.announced.load(Relaxed);
        assert_eq!((taken_by_contexts(&tags), announced, driver), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn queues_have_the_room_that_one_count_would_show(
            steps in prop::collection::vec((0usize..5, 0usize..200, 0usize..200), 0..100),
        ) {
            let (tags, one, other, driver) = shares();
            let shares = [one, other, tags.share(Submitter::Callers), driver];
            let (mut taken, mut waits) = ([0; 4], false);
            for (step, now, more) in steps {
                if step == 4 {
                    waits = now % 2 == 0;
                    tags.driver_waits(waits);
                    continue;
                }
                taken[step] = now;
                shares[step].publish(now);
                let (callers, driver) = (taken[..3].iter().sum::<usize>(), taken[3]);
                let of_driver = if waits { 64 } else { driver.min(64) };
                let expected = |at: usize, own: usize| match at {
                    _ if own == 0 && more <= FIRST || own + more <= ALWAYS => true,
                    3 => driver + more <= 64 || callers + driver + more <= 192,
                    _ => callers + of_driver + more <= 192,
                };
                for (at, share) in shares.iter().enumerate() {
                    let (own, of) = (taken[at], &taken);
                    let has = share.has_room(own, more);
                    prop_assert_eq!(has, expected(at, own), "{} {:?}", at, of);
                }
                prop_assert!(tags.hot.announced.load(Relaxed) >= callers);
            }
        }
    }

    #[test]
    fn a_queue_with_few_requests_is_left_alone() {
        let (_tags, one, other, _driver) = shares();
        one.publish(192);
        assert!(other.has_room(15, 1) && !other.has_room(16, 1));
        assert!(other.has_room(0, 2), "one with none at all would wait for ever");
    }

    #[test]
    fn contexts_leave_a_third_to_a_driver_that_waits() {
        let (tags, one, other, driver) = shares();
        one.publish(192);
        assert!(driver.has_room(1, 63) && !driver.has_room(1, 64), "it always has a third");
        driver.publish(64);
        assert!(!driver.has_room(64, 1));
        tags.driver_waits(true);
        one.publish(100);
        assert!(other.has_room(1, 27) && !other.has_room(1, 28));
        assert!(driver.has_room(64, 28) && !driver.has_room(64, 29));
        driver.publish(10);
        assert!(other.has_room(1, 27) && !other.has_room(1, 28), "it waits for more");
        tags.driver_waits(false);
        assert!(other.has_room(1, 81) && !other.has_room(1, 82));
    }

    #[test]
    fn there_is_a_limit_for_one_disk_alone() {
        let (tags, one, ..) = shares();
        let limited = || !one.has_room(1, 1 << 20);
        assert!(limited() && tags.knows_device(7) && !tags.knows_device(8));
        tags.note_device(8);
        assert!(limited(), "nothing is known of it yet");
        tags.look(|_| Some(DISK));
        assert!(limited(), "another file system on the same disk");
        tags.note_device(9);
        tags.look(|dev| Some(Disk { dev, ..DISK }));
        assert!(!limited(), "several disks");
        let of = |disk: Option<Disk>| {
            let (tags, one, ..) = shares();
            tags.note_device(8);
            tags.look(|_| disk);
            !one.has_room(1, 1 << 20)
        };
        assert!(of(Some(DISK)) && !of(None) && !of(Some(Disk { tags: 64, ..DISK })));
    }

    #[test]
    fn what_is_noted_while_the_driver_looks_is_looked_at() {
        let (tags, one, ..) = shares();
        tags.note_device(8);
        tags.look(|_| {
            tags.note_device(9);
            None
        });
        assert!(!one.has_room(1, 1 << 20), "one is still unknown");
        tags.look(|_| None);
        assert!(one.has_room(1, 1 << 20));
    }

    #[test]
    fn so_many_file_systems_are_not_told_apart() {
        let (tags, one, ..) = shares();
        (1..100).for_each(|dev| tags.note_device(dev));
        tags.look(|_| Some(DISK));
        assert!(one.has_room(1, 1 << 20) && tags.knows_device(1_000));
    }
}
