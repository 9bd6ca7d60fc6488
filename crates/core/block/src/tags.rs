//! Request tags: how many requests the queues of an engine have at devices together.
//!
//! A block device has a tag for each request, mostly 256 of them, and three quarters of these for
//! writes (mq-deadline). Where they have run out, the kernel has the next submitter sleep inside
//! its system call. Each queue of an engine keeps within that, and together they must, too. The
//! queues of contexts come first, since nothing is cheaper; what finds no room there goes by the
//! driver, and while that has to wait as well, contexts take no more than half.
//!
//! All of this is a matter of time, not of correctness: looks are not exact, and a queue takes what
//! it is given.

use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use std::sync::Arc;

/// So many devices are told apart; with more of them there is no limit.
const DEVICES: usize = 16;
/// A device whose tags are not known, or that has none.
const ENDLESS: usize = usize::MAX;

/// The tags that the queues of an engine share.
#[derive(Debug)]
pub struct Tags {
    of_callers: AtomicUsize,
    of_driver: AtomicUsize,
    /// The driver has requests, and no tags for them.
    driver_waits: AtomicBool,
    devices: [Device; DEVICES],
    /// There are devices at which [`Tags::look`] has not looked.
    has_news: AtomicBool,
    /// What the queues may have.
    total: AtomicUsize,
}

#[derive(Debug, Default)]
struct Device {
    /// Its number; 0: none yet.
    dev: AtomicU64,
    /// What was found; 0: nothing yet.
    tags: AtomicUsize,
}

/// Which threads submit to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitter {
    /// Those of the application.
    Callers,
    /// The engine's driver.
    Driver,
}

/// What one queue takes of the tags; given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    tags: Arc<Tags>,
    submitter: Submitter,
    taken: AtomicUsize,
}

impl Default for Tags {
    fn default() -> Tags {
        Tags {
            of_callers: AtomicUsize::new(0),
            of_driver: AtomicUsize::new(0),
            driver_waits: AtomicBool::new(false),
            devices: Default::default(),
            has_news: AtomicBool::new(false),
            total: AtomicUsize::new(ENDLESS),
        }
    }
}

impl Tags {
    /// Makes a share for a queue.
    pub fn share(self: &Arc<Tags>, submitter: Submitter) -> Share {
        Share { tags: self.clone(), submitter, taken: AtomicUsize::new(0) }
    }

    /// Says that requests go to the device with this number. There is no limit until its tags were
    /// looked at.
    pub fn note_device(&self, dev: u64) {
        for device in &self.devices {
            let known = device.dev.load(Acquire);
            if known == dev {
                return;
            }
            if known != 0 {
                continue;
            }
            match device.dev.compare_exchange(0, dev, AcqRel, Acquire) {
                Ok(_) => break,
                Err(other) if other == dev => return,
                Err(_) => {}
            }
        }
        self.total.store(ENDLESS, Relaxed);
        self.has_news.store(true, SeqCst);
    }

    /// Finds out how many tags devices have that are new; `tags_of` knows, or says `None` of one
    /// that has none. Not made for several threads at once.
    pub fn look(&self, tags_of: impl Fn(u64) -> Option<usize>) {
        if !self.has_news.load(Relaxed) || !self.has_news.swap(false, SeqCst) {
            return;
        }
        let mut total: usize = 0;
        for device in &self.devices {
            let dev = device.dev.load(Acquire);
            if dev == 0 {
                break;
            }
            if device.tags.load(Relaxed) == 0 {
                device.tags.store(tags_of(dev).unwrap_or(ENDLESS).max(1), Relaxed);
            }
            total = total.saturating_add(device.tags.load(Relaxed));
        }
        let is_full = self.devices.iter().all(|device| device.dev.load(Relaxed) != 0);
        let total = if is_full { ENDLESS } else { total };
        // Other programs, and the file system itself, need some as well.
        self.total.store(total - total / 8, Release);
    }
}

impl Share {
    /// Says how many requests the queue has now; one call at a time.
    pub fn publish(&self, now: usize) {
        let before = self.taken.load(Relaxed);
        if now != before {
            self.taken.store(now, Relaxed);
            let taken = match self.submitter {
                Submitter::Callers => &self.tags.of_callers,
                Submitter::Driver => &self.tags.of_driver,
            };
            // Wraps around where it falls.
            taken.fetch_add(now.wrapping_sub(before), Relaxed);
        }
    }

    /// Tells whether there are tags for so many requests more.
    pub fn has_room(&self, more: usize) -> bool {
        let tags = &self.tags;
        let total = tags.total.load(Relaxed);
        let (callers, driver) = (tags.of_callers.load(Relaxed), tags.of_driver.load(Relaxed));
        let (fits, always_of_driver) = (callers + driver + more <= total, total / 7);
        match self.submitter {
            Submitter::Callers => {
                let waits = tags.driver_waits.load(Relaxed);
                let most = if waits { total / 2 } else { total - always_of_driver };
                fits && callers + more <= most
            }
            Submitter::Driver => {
                // One that has nothing in flight would not be called when tags are given back.
                let has_none = self.taken.load(Relaxed) == 0;
                let has_room = fits || has_none || driver + more <= always_of_driver;
                if tags.driver_waits.load(Relaxed) == has_room {
                    tags.driver_waits.store(!has_room, Relaxed);
                }
                has_room
            }
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

    /// Of 256 tags 224 may be taken, 32 of them by the driver alone.
    fn shares() -> (Arc<Tags>, Share, Share, Share) {
        let tags = Arc::new(Tags::default());
        tags.note_device(7);
        tags.look(|_| Some(256));
        let of = |submitter| tags.share(submitter);
        let (one, other) = (of(Submitter::Callers), of(Submitter::Callers));
        (tags.clone(), one, other, tags.share(Submitter::Driver))
    }

    #[test]
    fn queues_of_contexts_share_what_the_driver_leaves() {
        let (_tags, one, other, driver) = shares();
        assert!(one.has_room(192) && !one.has_room(193));
        one.publish(100);
        other.publish(92);
        assert!(!one.has_room(1) && !other.has_room(1));
        assert!(driver.has_room(32), "it always has some");
        drop(other);
        assert!(one.has_room(1), "what a queue had is given back");
    }

    #[test]
    fn contexts_take_half_while_the_driver_waits() {
        let (_tags, one, other, driver) = shares();
        one.publish(192);
        driver.publish(32);
        assert!(!driver.has_room(1));
        one.publish(111);
        assert!(other.has_room(1) && !other.has_room(2));
        assert!(driver.has_room(80), "the other half is the driver's");
        driver.publish(0);
        assert!(driver.has_room(1) && one.has_room(2), "it waits no longer");
    }

    #[test]
    fn a_driver_with_nothing_in_flight_is_not_kept_waiting() {
        let tags = Arc::new(Tags::default());
        tags.note_device(7);
        tags.look(|_| Some(2));
        let (one, driver) = (tags.share(Submitter::Callers), tags.share(Submitter::Driver));
        one.publish(9);
        assert!(!one.has_room(1) && driver.has_room(2));
        driver.publish(1);
        assert!(!driver.has_room(1), "its own end will call it");
    }

    #[test]
    fn there_is_no_limit_until_all_devices_were_looked_at() {
        let (tags, one, ..) = shares();
        [7, 8].into_iter().for_each(|dev| tags.note_device(dev));
        assert!(one.has_room(1 << 20), "of one nothing is known yet");
        tags.look(|dev| (dev == 8).then_some(256));
        assert!(one.has_room(384) && !one.has_room(385), "each brings tags");
        tags.note_device(9);
        tags.look(|_| None);
        assert!(one.has_room(1 << 20), "one has no tags");
    }

    #[test]
    fn so_many_devices_are_not_told_apart() {
        let (tags, one, ..) = shares();
        (1..100).for_each(|dev| tags.note_device(dev));
        tags.look(|_| Some(1));
        assert!(one.has_room(1 << 20));
    }
}
