//! Request tags: how many requests the queues of an engine have at a disk together.
//!
//! A disk has a tag for each request, mostly 256 of them, and three quarters of these for writes
//! (mq-deadline). Where they have run out, the kernel has the next submitter sleep inside its
//! system call. Each queue of an engine stays below that limit by itself; this module makes all
//! queues together stay below it. A request that finds no room in a context's queue goes to the
//! driver, which waits in its own thread.
//!
//! This is a matter of time, not of correctness: looks are not exact, a queue takes what it is
//! given, and there is no limit where the disk is not known to have one. That is so, too, where
//! files lie on several disks: a count of all would limit none of them.

use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};
use std::sync::Arc;

/// The most file systems that are distinguished.
const DEVICES: usize = 16;
/// Disks with fewer tags merge requests that adjoin before they take one: to count each would slow
/// them down. (In a simulation there are few requests, and fewer tags.)
const TAGS_MIN: usize = if cfg!(simulated) { 2 } else { 128 };
/// The tags that a queue may always have: requests of other queues may have ended and still wait in
/// a ring.
const ALWAYS: usize = if cfg!(simulated) { 1 } else { 16 };
/// The tags that a queue without any takes at once; the driver requests two.
const FIRST: usize = 2;
const ENDLESS: usize = usize::MAX;
/// The number of tags assumed for a disk until the real number is known; most disks have it.
const GUESS: usize = of_tags(256);

/// Returns how many of them may be taken: what mq-deadline has for writes.
const fn of_tags(tags: usize) -> usize {
    tags / 4 * 3
}

/// A disk, as the system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The number of the whole disk.
    pub dev: u64,
    /// How many requests it takes.
    pub tags: usize,
}

/// The tags that the queues of an engine share.
#[derive(Debug, Default)]
pub struct Tags {
    hot: Hot,
    /// The device numbers of the file systems that were used; 0: none.
    devices: [AtomicU64; DEVICES],
    /// There are more of them than that.
    overflows: AtomicBool,
    /// There are some at which [`Tags::look`] has not looked.
    has_news: AtomicBool,
}

/// The values that change with each batch or bio, on their own cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Hot {
    of_callers: AtomicUsize,
    of_driver: AtomicUsize,
    /// The driver has requests, and no tags for them.
    driver_waits: AtomicBool,
    /// The tags that all queues together may have.
    limit: AtomicUsize,
}

impl Default for Hot {
    fn default() -> Hot {
        Hot {
            of_callers: AtomicUsize::new(0),
            of_driver: AtomicUsize::new(0),
            driver_waits: AtomicBool::new(false),
            limit: AtomicUsize::new(ENDLESS),
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

/// The tags that one queue has; dropping it returns them.
#[derive(Debug)]
pub struct Share {
    tags: Arc<Tags>,
    submitter: Submitter,
    taken: AtomicUsize,
}

impl Tags {
    /// Makes a share for a queue.
    pub fn share(self: &Arc<Tags>, submitter: Submitter) -> Share {
        Share { tags: self.clone(), submitter, taken: AtomicUsize::new(0) }
    }

    /// Returns `true` if [`Tags::note_device`] has recorded this number.
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
        // First: a look that comes behind it has the last word.
        self.hot.limit.store(GUESS, SeqCst);
        self.has_news.store(true, SeqCst);
    }

    /// Finds out whether all that was noted lies on one disk, and how many tags that has; `disk_of`
    /// knows. One thread at a time may call it.
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
            // Noted meanwhile: the limit is of another disk, perhaps.
            self.hot.limit.store(GUESS, SeqCst);
        }
    }

    /// Records whether the driver has requests and no tags for them: contexts then leave it a
    /// third.
    pub fn driver_waits(&self, waits: bool) {
        if self.hot.driver_waits.load(Relaxed) != waits {
            self.hot.driver_waits.store(waits, Relaxed);
        }
    }
}

impl Share {
    /// Records the number of requests that the queue has now; one call at a time.
    pub fn publish(&self, now: usize) {
        let before = self.taken.load(Relaxed);
        if now != before {
            self.taken.store(now, Relaxed);
            let taken = match self.submitter {
                Submitter::Callers => &self.tags.hot.of_callers,
                Submitter::Driver => &self.tags.hot.of_driver,
            };
            // Wraps around where it falls.
            taken.fetch_add(now.wrapping_sub(before), Relaxed);
        }
    }

    /// Returns `true` if a queue with `own` requests should take `more` requests.
    pub fn has_room(&self, own: usize, more: usize) -> bool {
        let hot = &self.tags.hot;
        let limit = hot.limit.load(Relaxed);
        // A queue with nothing in flight would wait for an end that does not come.
        if limit == ENDLESS || own == 0 && more <= FIRST || own + more <= ALWAYS {
            return true;
        }
        // Requests that are queued and not published yet belong to this queue.
        let more = more + own.saturating_sub(self.taken.load(Relaxed));
        let (callers, driver) = (hot.of_callers.load(Relaxed), hot.of_driver.load(Relaxed));
        match self.submitter {
            Submitter::Callers => {
                let waits = hot.driver_waits.load(Relaxed);
                let of_driver = if waits { limit / 3 } else { driver.min(limit / 3) };
                callers + of_driver + more <= limit
            }
            Submitter::Driver => driver + more <= limit / 3 || callers + driver + more <= limit,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.publish(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Disk = Disk { dev: 70, tags: 256 };

    /// On a disk of 256 tags, 192 of which may be taken.
    fn shares() -> (Arc<Tags>, Share, Share, Share) {
        let tags = Arc::new(Tags::default());
        tags.note_device(7);
        tags.look(|_| Some(DISK));
        let of = |submitter| tags.share(submitter);
        let (one, other) = (of(Submitter::Callers), of(Submitter::Callers));
        (tags.clone(), one, other, tags.share(Submitter::Driver))
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
