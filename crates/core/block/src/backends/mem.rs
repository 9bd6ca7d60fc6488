//! An array of bytes as a device.

use crate::{
    BlockBackend, Completion, Limits,
    bio::{Bio, BioOp},
    gate::Gate,
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, file::IoVec, time::Deadline};

/// A device in memory, for tests: deterministic if used by one thread.
///
/// Committed bios take effect when they are reaped, in an order drawn by the seed, not in the order
/// queued. Descriptors are ignored: there is one device. The size of the device is fixed: reads and
/// writes stop at its end, and a write that begins at or beyond the end fails with `ENOSPC`. Polls
/// fail with `EINVAL`.
#[derive(Debug)]
pub struct Mem {
    device: Mutex<Device>,
    gate: Gate,
    depth: usize,
}

#[derive(Debug)]
struct Device {
    bytes: Vec<u8>,
    queued: Vec<Bio>,
    committed: Vec<Bio>,
    cancelled: Vec<Completion>,
    random: u64,
}

impl Mem {
    /// Makes a device of `len` zero bytes for up to `depth` bios in flight.
    pub fn new(len: usize, depth: usize, seed: u64) -> Mem {
        let device = Device {
            bytes: vec![0; len],
            queued: Vec::new(),
            committed: Vec::new(),
            cancelled: Vec::new(),
            random: seed | 1,
        };
        Mem { device: Mutex::new(device), gate: Gate::default(), depth }
    }

    /// Returns a copy of the device's bytes.
    pub fn contents(&self) -> Vec<u8> {
        self.device.lock().bytes.clone()
    }

    /// Sets all bytes from `len` on to zero, as if a file had been truncated to `len` and extended
    /// again. Takes effect at once, before the bios in flight.
    pub fn clear_from(&self, len: u64) {
        let bytes = &mut self.device.lock().bytes;
        let len = bytes.len().min(len as usize);
        bytes[len..].fill(0);
    }

    fn rouse(&self, must: bool) {
        if must {
            self.gate.rouse();
        }
    }
}

impl BlockBackend for Mem {
    fn name(&self) -> &'static str {
        "mem"
    }

    fn limits(&self) -> Limits {
        Limits::of_all_kinds(self.depth)
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let mut device = self.device.lock();
        if device.in_flight() >= self.depth {
            return Err(bio);
        }
        device.queued.push(bio);
        Ok(())
    }

    fn commit(&self) {
        let mut device = self.device.lock();
        let queued = core::mem::take(&mut device.queued);
        device.committed.extend(queued);
        drop(device);
        self.rouse(self.gate.nudge());
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        let mut interrupted = false;
        loop {
            self.device.lock().run(done);
            let got = done.len() - before;
            if got >= min || deadline.has_passed() || (interrupted && got > 0) {
                return Ok(());
            }
            if interrupted {
                return Err(Errno::INTR);
            }
            let Some(seen) = self.gate.begin() else { return Ok(()) };
            if !self.device.lock().has_results() {
                interrupted = self.gate.sleep(seen, deadline) == Err(Errno::INTR);
            }
            if self.gate.end() {
                self.device.lock().run(done);
                return Ok(());
            }
        }
    }

    fn wake(&self) {
        self.rouse(self.gate.wake());
    }

    fn cancel(&self, token: u64) {
        self.device.lock().cancel(token);
        self.rouse(self.gate.nudge());
    }

    fn in_flight(&self) -> usize {
        self.device.lock().in_flight()
    }
}

impl Device {
    fn in_flight(&self) -> usize {
        self.queued.len() + self.committed.len() + self.cancelled.len()
    }

    fn has_results(&self) -> bool {
        !self.committed.is_empty() || !self.cancelled.is_empty()
    }

    fn run(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.cancelled);
        while !self.committed.is_empty() {
            let index = self.draw(self.committed.len());
            let bio = self.committed.swap_remove(index);
            done.push(Completion { token: bio.token, result: self.perform(&bio) });
        }
    }

    /// Draws a number below `end` (xorshift64, Marsaglia 2003).
    fn draw(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }

    fn cancel(&mut self, token: u64) {
        for list in [&mut self.queued, &mut self.committed] {
            if let Some(index) = list.iter().position(|bio| bio.token == token) {
                let token = list.remove(index).token;
                return self.cancelled.push(Completion { token, result: Err(Errno::CANCELED) });
            }
        }
    }

    fn perform(&mut self, bio: &Bio) -> Result<u32, Errno> {
        match bio.op {
            BioOp::Fsync | BioOp::Fdatasync => Ok(0),
            BioOp::Poll(_) => Err(Errno::INVAL),
            BioOp::Read | BioOp::Write => self.transfer(bio),
        }
    }

    fn transfer(&mut self, bio: &Bio) -> Result<u32, Errno> {
        let mut at = usize::try_from(bio.offset).map_err(|_| Errno::INVAL)?;
        let mut total = 0;
        for segment in bio.segments.as_slice() {
            let len = segment.len.min(self.bytes.len().saturating_sub(at));
            if len > 0 && !is_address(segment) {
                return if total > 0 { Ok(total) } else { Err(Errno::FAULT) };
            }
            if len == 0 {
                continue;
            }
            let ours = &mut self.bytes[at..][..len];
            if bio.op == BioOp::Read {
                // SAFETY: the segment is valid for writes until the completion, see `Bio::new`,
                // and cannot overlap with the device's own bytes.
                unsafe { segment.base.copy_from(ours.as_ptr(), len) };
            } else {
                // SAFETY: as above, for reads.
                unsafe { segment.base.copy_to(ours.as_mut_ptr(), len) };
            }
            total += len as u32;
            at += len;
        }
        let full = bio.op == BioOp::Write && total == 0 && !bio.segments.is_empty();
        if full { Err(Errno::NOSPC) } else { Ok(total) }
    }
}

/// Returns `true` if a segment can be memory, `false` for the wrong addresses that tests use.
fn is_address(segment: &IoVec) -> bool {
    (4096..isize::MAX as usize - segment.len).contains(&(segment.base as usize))
}
