//! Whether inline attempts on a file have been worth it lately.
//!
//! A hint per descriptor number: being wrong (the number was reused) costs speed only.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

const SLOTS: usize = 64;
const SCORE_MAX: u8 = 16;
const INLINE_FROM: u8 = 8;
/// One attempt in so many is made although the file looks uncached, to notice when it is not.
const PROBE_EVERY: u8 = 32;

/// Scores of the descriptors a context uses.
#[derive(Debug)]
pub struct History {
    score: [AtomicU8; SLOTS],
    skipped: [AtomicU8; SLOTS],
    in_memory: [AtomicU8; SLOTS],
    /// Descriptor and status flags, and how often they may still be believed.
    flags: [AtomicU64; SLOTS],
}

/// Uses of remembered status flags before they are read again.
const BELIEVED: u64 = 63;

const UNKNOWN: u8 = 0;
const ON_A_DEVICE: u8 = 1;
const IN_MEMORY: u8 = 2;

impl Default for History {
    /// Starts optimistic: the first attempts are inline.
    fn default() -> History {
        History {
            score: [const { AtomicU8::new(SCORE_MAX) }; SLOTS],
            skipped: [const { AtomicU8::new(0) }; SLOTS],
            in_memory: [const { AtomicU8::new(UNKNOWN) }; SLOTS],
            flags: [const { AtomicU64::new(0) }; SLOTS],
        }
    }
}

impl History {
    /// Tells whether to try inline: lately that was short, or (with `probe`) it is time to look
    /// again.
    pub fn favours_inline(&self, fd: i32, probe: bool) -> bool {
        let slot = fd as usize % SLOTS;
        if self.score[slot].load(Relaxed) >= INLINE_FROM {
            return true;
        }
        if !probe {
            return false;
        }
        let skipped = self.skipped[slot].load(Relaxed).wrapping_add(1);
        self.skipped[slot].store(skipped % PROBE_EVERY, Relaxed);
        skipped >= PROBE_EVERY
    }

    /// Returns the status flags that `fd` had lately. The number may have been closed or reused
    /// since: good enough for a system call that looks at the file itself, and a wrong guess is
    /// found out after at most 63 requests.
    pub fn remembered_flags(&self, fd: i32) -> Option<i32> {
        let slot = &self.flags[fd as usize % SLOTS];
        let known = slot.load(Relaxed);
        let (number, uses) = ((known >> 40) as i32, known >> 32 & 0xff);
        if number != fd.wrapping_add(1) & 0xff_ffff || uses == 0 {
            return None;
        }
        slot.store(known - (1 << 32), Relaxed);
        Some(known as u32 as i32)
    }

    /// Remembers the status flags of `fd`, just read.
    pub fn remember_flags(&self, fd: i32, flags: i32) {
        let number = (fd as u64 + 1) & 0xff_ffff;
        let known = number << 40 | BELIEVED << 32 | u64::from(flags as u32);
        self.flags[fd as usize % SLOTS].store(known, Relaxed);
    }

    /// Forgets all status flags.
    pub fn forget_all_flags(&self) {
        self.flags.iter().for_each(|slot| slot.store(0, Relaxed));
    }

    /// Forgets the status flags of `fd`, which was closed or replaced.
    pub fn forget_flags(&self, fd: i32) {
        self.flags[fd as usize % SLOTS].store(0, Relaxed);
    }

    /// Tells whether the file was on a memory file system when last looked at; `None`: never
    /// looked. A yes must be checked, a wrong no costs speed.
    pub fn may_be_in_memory(&self, fd: i32) -> Option<bool> {
        match self.in_memory[fd as usize % SLOTS].load(Relaxed) {
            UNKNOWN => None,
            state => Some(state == IN_MEMORY),
        }
    }

    /// Notes whether the file is on a memory file system.
    pub fn is_in_memory(&self, fd: i32, yes: bool) {
        let state = if yes { IN_MEMORY } else { ON_A_DEVICE };
        self.in_memory[fd as usize % SLOTS].store(state, Relaxed);
    }

    /// Notes that an attempt finished the request.
    pub fn hit(&self, fd: i32) {
        let score = &self.score[fd as usize % SLOTS];
        let now = score.load(Relaxed);
        if now < SCORE_MAX {
            score.store(now + 2, Relaxed);
        }
    }

    /// Notes that a request that was not attempted had to wait. It speaks against an attempt as a
    /// hit speaks for it: a fast device ends some reads before the driver looks whether they wait.
    pub fn waited(&self, fd: i32) {
        let score = &self.score[fd as usize % SLOTS];
        let now = score.load(Relaxed);
        if now > 0 {
            score.store(now.saturating_sub(2), Relaxed);
        }
    }

    /// Notes that an attempt found something to wait for.
    pub fn miss(&self, fd: i32) {
        let score = &self.score[fd as usize % SLOTS];
        score.store(score.load(Relaxed).saturating_sub(4), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_turn_inline_off_and_hits_on_again() {
        let history = History::default();
        assert!(history.favours_inline(3, false));
        (0..3).for_each(|_| history.miss(3));
        let tried = (0..320).filter(|_| history.favours_inline(3, true)).count();
        assert_eq!(tried, 10, "still looks once in a while");
        (0..2).for_each(|_| history.hit(3));
        assert!(history.favours_inline(3, false));
        assert!(history.favours_inline(4, false), "another file is not affected");
    }

    #[test]
    fn a_fast_device_does_not_look_like_a_cache() {
        let history = History::default();
        (0..4).for_each(|_| history.miss(3));
        for read in 0..1000 {
            match read % 3 {
                0 => history.hit(3),
                _ => history.waited(3),
            }
            assert!(!history.favours_inline(3, false));
        }
        (0..8).for_each(|_| history.hit(3));
        assert!(history.favours_inline(3, false), "it has become cached");
    }

    #[test]
    fn no_number_is_too_large_to_be_unknown() {
        let history = History::default();
        assert_eq!(history.remembered_flags(i32::MAX), None);
    }

    #[test]
    fn a_mostly_cached_file_stays_inline() {
        let history = History::default();
        for i in 0..1000 {
            if i % 5 == 0 {
                history.miss(3);
            } else {
                history.hit(3);
            }
            assert!(history.favours_inline(3, false));
        }
    }
}
