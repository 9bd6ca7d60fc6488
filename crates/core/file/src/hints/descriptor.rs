//! A context's hints about its descriptors: whether attempts have succeeded lately, their status
//! flags, and facts about their files. [`super`] has the rules for hints.

use super::calm::Device;
use crate::command::Flags;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use nowait_retry::closes::{Closes, SLOTS};
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

const SCORE_MAX: u8 = 16;
const ATTEMPT_FROM: u8 = 8;
/// One of so many requests is attempted although the file looks uncached, to notice when it is
/// cached again.
const PROBE_EVERY: u8 = 32;

/// The hints about the descriptors that a context uses; several numbers may share a slot.
#[derive(Debug)]
pub(crate) struct DescriptorHints {
    closes: Arc<Closes>,
    /// The count of closes when the context last used the slot.
    seen: [AtomicU32; SLOTS],
    score: [AtomicU8; SLOTS],
    skipped: [AtomicU8; SLOTS],
    /// The descriptor, and whether its file is in memory, on a device, or on a device whose file
    /// system has no RWF_NOWAIT.
    in_memory: [AtomicU32; SLOTS],
    /// The descriptor, its status flags, and the number of times that they may still be used.
    flags: [AtomicU64; SLOTS],
    /// The descriptor plus one, and the device to which its writes inside submit go.
    written: [AtomicU64; SLOTS],
    /// The descriptor plus one, whether its file has holes, and how many blocks the file has.
    blocks: [AtomicU64; SLOTS],
    files: Mutex<[Option<(i32, RememberedFile)>; SLOTS]>,
    /// The last number found to be an eventfd, plus one.
    counter: AtomicU32,
}

const BLOCK_BITS: u32 = 43;
const BLOCK: u64 = 4096;

/// The number of uses of remembered status flags before they are read again.
pub(crate) const BELIEVED: u64 = 63;

const ON_A_DEVICE: u32 = 1;
const IN_MEMORY: u32 = 2;
/// On a device, and its file system does not support RWF_NOWAIT.
const ALWAYS_WAITS: u32 = 3;
const STATE_BITS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// The size of the file.
    pub(crate) end: u64,
    /// `true`: some blocks before `end` may be missing.
    pub(crate) has_holes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RememberedFile {
    pub(crate) inode: (u64, u64),
    /// The size of the file.
    pub(crate) end: u64,
}

impl DescriptorHints {
    pub(crate) fn new(closes: Arc<Closes>) -> DescriptorHints {
        DescriptorHints {
            seen: core::array::from_fn(|slot| AtomicU32::new(closes.count_of_slot(slot))),
            closes,
            score: [const { AtomicU8::new(SCORE_MAX) }; SLOTS],
            skipped: [const { AtomicU8::new(0) }; SLOTS],
            in_memory: [const { AtomicU32::new(0) }; SLOTS],
            flags: [const { AtomicU64::new(0) }; SLOTS],
            written: [const { AtomicU64::new(0) }; SLOTS],
            blocks: [const { AtomicU64::new(0) }; SLOTS],
            files: Mutex::new([None; SLOTS]),
            counter: AtomicU32::new(0),
        }
    }

    /// Returns the slot of a descriptor. If any number of that slot was closed since the last use,
    /// clears the slot first, apart from its score.
    fn slot(&self, fd: i32) -> usize {
        let slot = fd as usize % SLOTS;
        let closes = self.closes.count_of_slot(slot);
        if self.seen[slot].load(Relaxed) != closes {
            self.seen[slot].store(closes, Relaxed);
            self.flags[slot].store(0, Relaxed);
            self.in_memory[slot].store(0, Relaxed);
            self.written[slot].store(0, Relaxed);
            self.blocks[slot].store(0, Relaxed);
            self.files.lock()[slot] = None;
        }
        slot
    }

    pub(crate) fn favours_attempt(&self, fd: i32) -> bool {
        let slot = fd as usize % SLOTS;
        if self.score[slot].load(Relaxed) >= ATTEMPT_FROM {
            return true;
        }
        let skipped = self.skipped[slot].load(Relaxed).wrapping_add(1);
        self.skipped[slot].store(skipped % PROBE_EVERY, Relaxed);
        skipped >= PROBE_EVERY
    }

    /// Counts one use of the flags. Returns `None` if the flags are not known, or were used too
    /// often.
    pub(crate) fn status_flags(&self, fd: i32) -> Option<Flags> {
        let slot = &self.flags[self.slot(fd)];
        let known = slot.load(Relaxed);
        let (number, uses) = ((known >> 40) as i32, known >> 32 & 0xff);
        if number != fd.wrapping_add(1) & 0xff_ffff || uses == 0 {
            return None;
        }
        slot.store(known - (1 << 32), Relaxed);
        Some(Flags::Remembered(known as u32 as i32))
    }

    pub(crate) fn remember_flags(&self, fd: i32, flags: Flags) {
        let number = (fd as u64 + 1) & 0xff_ffff;
        let known = number << 40 | BELIEVED << 32 | u64::from(flags.bits() as u32);
        self.flags[self.slot(fd)].store(known, Relaxed);
    }

    /// Returns `None` if the engine has not checked the file behind `fd`.
    pub(crate) fn may_be_in_memory(&self, fd: i32) -> Option<bool> {
        let known = self.in_memory[self.slot(fd)].load(Relaxed);
        let state = known & ((1 << STATE_BITS) - 1);
        (state != 0 && known == in_memory(fd, state)).then_some(state == IN_MEMORY)
    }

    pub(crate) fn is_in_memory(&self, fd: i32, yes: bool) {
        let state = if yes { IN_MEMORY } else { ON_A_DEVICE };
        self.in_memory[self.slot(fd)].store(in_memory(fd, state), Relaxed);
    }

    pub(crate) fn written(&self, fd: i32) -> Option<Device> {
        let known = self.written[self.slot(fd)].load(Relaxed);
        (known >> 8 == one_more(fd)).then_some(Device::at(known as u8))
    }

    pub(crate) fn writes_to(&self, fd: i32, device: Device) {
        let known = one_more(fd) << 8 | u64::from(device.index());
        self.written[self.slot(fd)].store(known, Relaxed);
    }

    pub(crate) fn blocks(&self, fd: i32) -> Option<Blocks> {
        let known = self.blocks[self.slot(fd)].load(Relaxed);
        let end = (known & ((1 << BLOCK_BITS) - 1)) * BLOCK;
        let is_of_fd = known >> (BLOCK_BITS + 1) == one_more(fd);
        is_of_fd.then_some(Blocks { end, has_holes: known >> BLOCK_BITS & 1 == 1 })
    }

    pub(crate) fn has_blocks(&self, fd: i32, blocks: Blocks) {
        let file = one_more(fd) << 1 | u64::from(blocks.has_holes);
        let known = file << BLOCK_BITS | (blocks.end / BLOCK).min((1 << BLOCK_BITS) - 1);
        if fd < 1 << 19 {
            self.blocks[self.slot(fd)].store(known, Relaxed);
        }
    }

    pub(crate) fn file(&self, fd: i32) -> Option<RememberedFile> {
        let slot = self.slot(fd);
        let (of, seen) = self.files.lock()[slot]?;
        (of == fd).then_some(seen)
    }

    pub(crate) fn has_file(&self, fd: i32, seen: RememberedFile) {
        let slot = self.slot(fd);
        self.files.lock()[slot] = Some((fd, seen));
    }

    /// Returns `true` if the file system refuses transfers with RWF_NOWAIT (`EOPNOTSUPP`).
    pub(crate) fn always_waits(&self, fd: i32) -> bool {
        self.in_memory[self.slot(fd)].load(Relaxed) == in_memory(fd, ALWAYS_WAITS)
    }

    /// Records that the file system refused a transfer with RWF_NOWAIT.
    pub(crate) fn refused_as_such(&self, fd: i32) {
        self.in_memory[self.slot(fd)].store(in_memory(fd, ALWAYS_WAITS), Relaxed);
    }

    pub(crate) fn is_known_counter(&self, number: i32) -> bool {
        self.counter.load(Relaxed) == number as u32 + 1
    }

    pub(crate) fn remember_counter(&self, number: i32) {
        self.counter.store(number as u32 + 1, Relaxed);
    }

    pub(crate) fn hit(&self, fd: i32) {
        let score = &self.score[fd as usize % SLOTS];
        let now = score.load(Relaxed);
        if now < SCORE_MAX {
            score.store(now + 2, Relaxed);
        }
    }

    pub(crate) fn miss(&self, fd: i32) {
        let score = &self.score[fd as usize % SLOTS];
        score.store(score.load(Relaxed).saturating_sub(4), Relaxed);
    }
}

/// Returns a descriptor plus one, so that 0 can stand for none.
fn one_more(fd: i32) -> u64 {
    u64::from(fd as u32) + 1
}

fn in_memory(fd: i32, state: u32) -> u32 {
    (fd as u32) << STATE_BITS | state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_end_attempts_and_hits_begin_them_again() {
        let history = DescriptorHints::new(Arc::default());
        assert!(history.favours_attempt(3));
        (0..3).for_each(|_| history.miss(3));
        let tried = (0..320).filter(|_| history.favours_attempt(3)).count();
        assert_eq!(tried, 10, "still looks once in a while");
        (0..2).for_each(|_| history.hit(3));
        assert!(history.favours_attempt(3));
        assert!(history.favours_attempt(4), "another file is not affected");
    }

    #[test]
    fn no_number_is_too_large_or_too_low_to_be_unknown() {
        let history = DescriptorHints::new(Arc::default());
        for fd in [i32::MAX, -1, i32::MIN] {
            assert_eq!((history.status_flags(fd), history.may_be_in_memory(fd)), (None, None));
            assert_eq!((history.written(fd), history.blocks(fd)), (None, None));
        }
    }

    #[test]
    fn a_file_that_is_always_waited_for_is_on_a_device_until_it_is_closed() {
        let history = DescriptorHints::new(Arc::default());
        history.refused_as_such(3);
        assert!(history.always_waits(3) && !history.always_waits(4));
        assert_eq!(history.may_be_in_memory(3), Some(false));
        history.closes.closed(3);
        assert!(!history.always_waits(3));
    }

    #[test]
    fn a_close_is_seen_by_every_context_and_by_no_other_number() {
        let closes = Arc::<Closes>::default();
        let contexts = [0; 2].map(|_| DescriptorHints::new(closes.clone()));
        let know = |fd| {
            contexts.iter().for_each(|it| {
                it.remember_flags(fd, Flags::Read(2));
                it.is_in_memory(fd, true);
            });
        };
        let known = |fd| {
            let facts = |it: &DescriptorHints| (it.status_flags(fd), it.may_be_in_memory(fd));
            contexts.each_ref().map(facts)
        };
        let all = [(Some(Flags::Remembered(2)), Some(true)); 2];
        [3, 4].into_iter().for_each(know);
        assert_eq!([3, 4].map(known), [all; 2]);
        closes.closed(3);
        assert_eq!([3, 4].map(known), [[(None, None); 2], all]);
        know(3);
        assert_eq!(known(3), all);
        closes.closed_many();
        assert_eq!([3, 4].map(known), [[(None, None); 2]; 2]);
    }

    #[test]
    fn numbers_that_share_a_place_are_told_from_each_other() {
        let history = DescriptorHints::new(Arc::default());
        let (one, other) = (3, 3 + SLOTS as i32);
        history.is_in_memory(one, true);
        history.remember_flags(one, Flags::Read(2));
        assert_eq!(history.may_be_in_memory(one), Some(true));
        assert_eq!(history.may_be_in_memory(other), None);
        assert_eq!(history.status_flags(other), None);
        assert_eq!(history.status_flags(one), Some(Flags::Remembered(2)));
    }

    #[test]
    fn flags_are_believed_for_a_while() {
        let history = DescriptorHints::new(Arc::default());
        history.remember_flags(3, Flags::Read(2));
        assert!((0..BELIEVED).all(|_| history.status_flags(3).is_some()));
        assert_eq!(history.status_flags(3), None);
    }

    #[test]
    fn a_mostly_cached_file_is_always_attempted() {
        let history = DescriptorHints::new(Arc::default());
        for i in 0..1000 {
            if i % 5 == 0 {
                history.miss(3);
            } else {
                history.hit(3);
            }
            assert!(history.favours_attempt(3));
        }
    }
}
