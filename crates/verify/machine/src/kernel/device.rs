//! Transfers: they take time, move their bytes piece by piece, and may be short or fail. The device
//! takes the bytes of a write from memory when it performs the write, not at the submission.

use super::{
    Answer,
    descriptor::OpenId,
    file::{Locked, PAGE_BYTES},
};
use crate::schedule::{Cpu, Key, World};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) address: usize,
    pub(super) len: usize,
}

impl Part {
    /// # Safety
    /// The memory is valid.
    pub(super) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: promised above.
        unsafe { core::slice::from_raw_parts(self.address as *const u8, self.len) }
    }

    /// # Safety
    /// The memory is valid.
    pub(super) unsafe fn write(&self, at: usize, bytes: &[u8]) {
        // SAFETY: promised above.
        unsafe {
            let target = (self.address as *mut u8).add(at);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }
}

/// A transfer that is decided, and holds its inode's lock if it needs one.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) locked: Locked,
    pub(super) write: bool,
    pub(super) parts: Vec<Part>,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) pace: Pace,
    /// The transfer ends when its data is durable.
    pub(super) sync: bool,
    pub(super) id: OpenId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    AtOnce,
    ByDevice,
    /// The arrival of pages, at this time.
    At(u64),
    /// A delay in nanoseconds; a write's bytes are in the cache before the delay.
    HeldUp(u64),
}

pub(super) type Then = Box<dyn FnOnce(&mut World, Answer) + Send>;

#[derive(Debug, Default)]
pub(super) struct Transfers {
    ended: BTreeMap<u64, Answer>,
}

impl World {
    pub(crate) fn drawn_time(&mut self) -> u64 {
        let longest = self.rates.transfer_ns;
        self.prng.range(1..=longest)
    }

    pub(super) fn start(&mut self, mut job: Job, then: Then) {
        const PIECES_MAX: u64 = 16;
        let rates = self.rates;
        let by_device = job.pace == Pace::ByDevice;
        if self.prng.chance(rates.short) && job.len >= 2 * PAGE_BYTES && by_device {
            job.len = self.prng.range(1..=job.len / PAGE_BYTES - 1) * PAGE_BYTES;
        }
        let whole = Ok(job.len as usize);
        match job.pace {
            Pace::AtOnce => {
                self.move_bytes(&job, 0, job.len);
                return self.end(&job, whole, then);
            }
            Pace::HeldUp(ns) => {
                self.move_bytes(&job, 0, job.len);
                return self.after(ns, move |world| world.end(&job, whole, then));
            }
            Pace::At(ns) => {
                let fails = !job.write && self.transfer_fails(&job);
                return self.after(ns.saturating_sub(self.now), move |world| {
                    if fails {
                        return world.end(&job, Err(libc::EIO), then);
                    }
                    world.move_bytes(&job, 0, job.len);
                    world.end(&job, whole, then);
                });
            }
            Pace::ByDevice => {}
        }
        let fails = self.transfer_fails(&job);
        let wait = self.wait_behind_others(&job);
        // The pieces move at drawn times, so in any order.
        let pages = job.len.div_ceil(PAGE_BYTES).max(1);
        let step = pages.div_ceil(PIECES_MAX) * PAGE_BYTES;
        let mut last = 0;
        let mut from = 0;
        while from < job.len {
            // Each piece but the last ends with a page: the device never tears a sector.
            let end = (job.offset + from + step) / PAGE_BYTES * PAGE_BYTES - job.offset;
            let (piece, to) = (job.clone(), end.min(job.len));
            let time = wait + self.drawn_time();
            last = last.max(time);
            if !fails || self.prng.chance(self.faults.partial_ppm) {
                self.after(time, move |world| world.move_bytes(&piece, from, to));
            }
            from = to;
        }
        last = last.max(wait);
        self.takes_until(&job, last + 1);
        self.after(last + 1, move |world| {
            let answer = if fails { Err(libc::EIO) } else { Ok(job.len as usize) };
            let answer = if job.sync {
                answer.and_then(|len| world.sync_transfer(&job, len))
            } else {
                answer
            };
            world.end(&job, answer, then);
        });
    }

    fn wait_behind_others(&mut self, job: &Job) -> u64 {
        let (now, range) = (self.now, job.offset..job.offset + job.len);
        self.inode(job.locked.ino).moved_at(&range, job.write).saturating_sub(now)
    }

    fn takes_until(&mut self, job: &Job, time: u64) {
        let times = (self.now, self.now + time);
        if job.locked.exclusive.is_some() {
            let range = job.offset..job.offset + job.len;
            self.inode(job.locked.ino).moves(range, job.write, times);
        }
    }

    /// The device refuses writes, and reads of at most a page, only within the call.
    pub(super) fn refuses_later(&mut self, job: &Job) -> bool {
        let rate = if job.len > PAGE_BYTES && !job.write { self.late_ppm } else { 0 };
        rate > 0 && self.prng.chance(rate)
    }

    /// Ends a read with EAGAIN, after the device may have moved some of its bytes.
    pub(super) fn refuse_later(&mut self, job: Job, then: Then) {
        let moved = self.prng.range(0..=job.len / PAGE_BYTES) * PAGE_BYTES;
        let time = self.wait_behind_others(&job) + self.drawn_time();
        self.takes_until(&job, time);
        self.after(time, move |world| {
            world.move_bytes(&job, 0, moved);
            world.end(&job, Err(libc::EAGAIN), then);
        });
    }

    fn transfer_fails(&mut self, job: &Job) -> bool {
        let faults = &self.faults;
        let ppm = if job.write { faults.write_error_ppm } else { faults.read_error_ppm };
        self.prng.chance(ppm)
    }

    /// A draw decides if the flush fails; then some unflushed writes may be lost.
    fn sync_transfer(&mut self, job: &Job, len: usize) -> Answer {
        if self.prng.chance(self.faults.flush_error_ppm) {
            let mark = self.inode(job.locked.ino).medium.mark();
            self.lose_unflushed(job.locked.ino, mark);
        } else {
            let range = job.offset..job.offset + len as u64;
            self.inode(job.locked.ino).medium.sync(range);
        }
        self.tell_of_errors(job.id, job.locked.ino).map(|_| len)
    }

    fn end(&mut self, job: &Job, answer: Answer, then: Then) {
        if let Some(exclusive) = job.locked.exclusive {
            self.unlock_inode(job.locked.ino, exclusive);
        }
        then(self, answer);
    }

    fn move_bytes(&mut self, job: &Job, from: u64, to: u64) {
        let now = self.now;
        let inode = self.inode(job.locked.ino);
        let mut at = 0;
        for part in &job.parts {
            let (begin, end) = (from.max(at), to.min(at + part.len as u64));
            if begin < end {
                let place = job.offset + begin..job.offset + end;
                let (skipped, len) = ((begin - at) as usize, (end - begin) as usize);
                // SAFETY: the program's memory is valid until the transfer ends.
                let bytes = unsafe { part.bytes() };
                if job.write {
                    inode.medium.write(place.start, &bytes[skipped..skipped + len]);
                    inode.is_written(place.start, place.end, now);
                } else {
                    // SAFETY: as above.
                    unsafe { part.write(skipped, &inode.medium.read(place.start, len)) };
                }
            }
            at += part.len as u64;
        }
    }
}

impl Cpu<'_> {
    pub(super) fn move_now(&mut self, job: Job) -> Answer {
        self.await_end(|world, then| world.start(job, then))
    }

    pub(super) fn await_end(&mut self, start: impl FnOnce(&mut World, Then)) -> Answer {
        let id = self.new_id() as u64;
        let then = move |world: &mut World, answer| {
            world.kernel.transfers.ended.insert(id, answer);
            world.wake(Key::Transfer(id), 1);
        };
        start(self, Box::new(then));
        loop {
            if let Some(answer) = self.kernel.transfers.ended.remove(&id) {
                return answer;
            }
            self.sleep(Key::Transfer(id), None);
        }
    }
}
