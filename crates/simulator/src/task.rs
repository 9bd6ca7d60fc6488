//! One operation under way, from its place in the queue of the inode's lock to its result.
//!
//! ```text
//!   lock ─► read · write · sync                                       the cache's operations
//!      └──► flush ─► (write: drop ─►) device                          direct requests
//!      └──► lock out syncs ─► cut the pages ─► cut the file           truncate
//! ```
//!
//! This is what a layer of files does with the cache; the rules it keeps are stated at each stage.

use crate::{buffer::Buffer, buffer::fill, canary::Canary, kicker::Kicker, medium::Medium, op::Op};
use nowait_block::{Bio, BioOp};
use nowait_cache::copy::User;
use nowait_cache::inode_lock::{Guard, InodeLock, Mode, Outcome, Ticket};
use nowait_cache::{
    CachedFile, Durable, FRAME_BYTES, OpenFile, ReadOperation, SyncOperation, WriteOperation,
};
use nowait_retry::{Step, WaitEntry};
use nowait_sys::{Errno, file::rwf};
use std::sync::Arc;

/// What an iteration works with.
pub(crate) struct World<'a> {
    pub(crate) file: &'a Arc<CachedFile>,
    /// For reads that read ahead.
    pub(crate) open: Option<&'a Arc<OpenFile>>,
    pub(crate) medium: &'a dyn Medium,
    pub(crate) plug: &'a mut Vec<Bio>,
    pub(crate) canary: Option<Canary>,
    /// Held by syncs together, by a truncation alone: after the lock of the bytes.
    pub(crate) cut_lock: &'a Arc<InodeLock>,
}

/// The lock of the operation's bytes.
#[derive(Debug)]
pub(crate) enum Lock {
    /// It takes none, or has given it back.
    None,
    /// It queues for it.
    Waiting(Ticket),
    /// It has it, until it ends.
    Held { _guard: Guard },
}

impl Lock {
    /// Takes it if it was granted. False: not yet.
    pub(crate) fn is_granted(&mut self) -> bool {
        let lock = core::mem::replace(self, Lock::None);
        *self = match lock {
            Lock::Waiting(ticket) => match ticket.claim() {
                Ok(guard) => Lock::Held { _guard: guard },
                Err(ticket) => Lock::Waiting(ticket),
            },
            lock => lock,
        };
        !matches!(self, Lock::Waiting(_))
    }
}

impl From<Outcome> for Lock {
    fn from(outcome: Outcome) -> Lock {
        match outcome {
            Outcome::Granted(guard) => Lock::Held { _guard: guard },
            Outcome::Waiting(ticket) => Lock::Waiting(ticket),
        }
    }
}

#[derive(Debug)]
enum Stage {
    New,
    Read(ReadOperation),
    Write(WriteOperation),
    Sync(SyncOperation),
    /// What the cache has of the range goes to the file first.
    Flush(SyncOperation),
    /// Nothing of the range stays in the cache.
    Drop,
    /// The bio is not sent, sent, or has ended.
    Device {
        sent: bool,
        done: usize,
    },
    Truncate,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) op: Op,
    /// Where it begins in the file, once it has begun.
    pub(crate) offset: u64,
    pub(crate) kicker: Arc<Kicker>,
    pub(crate) lock: Lock,
    /// A truncation's lock against syncs.
    cut: Lock,
    /// How many iterations it has had.
    pub(crate) iterations: u32,
    /// The end of its own bio.
    pub(crate) answer: Option<Result<u32, Errno>>,
    stage: Stage,
    /// Behind what uses it.
    pub(crate) buffer: Buffer,
}

impl Task {
    pub(crate) fn new(id: u64, op: Op, kicker: Arc<Kicker>) -> Task {
        let buffer = Buffer::new(op.memory_bytes());
        let (lock, cut, stage) = (Lock::None, Lock::None, Stage::New);
        Task { id, op, offset: 0, kicker, lock, cut, iterations: 0, answer: None, stage, buffer }
    }

    /// Tells whether it has begun to do what it is for.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::New)
    }

    /// Tells whether it may have changed the file or what the cache has of it.
    pub(crate) fn may_have_written(&self) -> bool {
        match self.stage {
            Stage::Write(_) => true,
            Stage::Device { sent, .. } => sent && self.op.is_write(),
            _ => false,
        }
    }

    /// Tells whether it can be dropped now: not while a device has its memory, and a truncation
    /// that has begun must end.
    pub(crate) fn can_be_dropped(&self) -> bool {
        !matches!(self.stage, Stage::Device { sent: true, .. } | Stage::Truncate)
    }

    /// Returns the token of its bio if one is under way: even, the cache's are odd.
    pub(crate) fn token(&self) -> Option<u64> {
        let sent = matches!(self.stage, Stage::Device { sent: true, .. }) && self.answer.is_none();
        sent.then_some(self.id << 1)
    }

    /// Runs an iteration; it has its lock.
    pub(crate) fn iterate(&mut self, world: &mut World<'_>) -> Step {
        self.iterations += 1;
        if !self.has_begun() {
            self.begin(world.file, world.open);
        }
        let kicker = self.kicker.clone();
        let entry = || kicker.entry();
        loop {
            match &mut self.stage {
                Stage::New => unreachable!("it has begun"),
                Stage::Read(read) => return read.iterate(world.plug, &entry),
                Stage::Write(write) => return write.iterate(world.plug, &entry),
                Stage::Sync(sync) => {
                    let step = sync.iterate(world.plug, &entry);
                    let hasty = world.canary == Some(Canary::SyncDoesNotWait);
                    return if hasty { Step::Done(Ok(0)) } else { step };
                }
                Stage::Flush(sync) => match sync.iterate(world.plug, &entry) {
                    Step::Done(Ok(_)) if self.op.is_read() => {
                        self.stage = Stage::Device { sent: false, done: 0 };
                    }
                    Step::Done(Ok(_)) => self.stage = Stage::Drop,
                    step => return step,
                },
                Stage::Drop => {
                    if let Some(step) = self.drop_pages(world, &entry) {
                        return step;
                    }
                }
                Stage::Device { .. } => return self.transfer(world),
                Stage::Truncate => return self.truncate(world, &entry),
            }
        }
    }

    fn begin(&mut self, file: &Arc<CachedFile>, open: Option<&Arc<OpenFile>>) {
        let file = file.clone();
        self.offset = match &self.op {
            Op::Write { offset, .. } => offset.unwrap_or_else(|| file.size()),
            Op::Read { offset, .. }
            | Op::DirectRead { offset, .. }
            | Op::DirectWrite { offset, .. } => *offset,
            _ => 0,
        };
        if self.op.is_write() {
            fill(self.id, self.offset, self.buffer.as_mut_slice());
        }
        let mut user = |pieces| {
            // SAFETY: the buffer lives as long as the task, whose stage uses it.
            unsafe { User::new(self.buffer.segments(pieces)) }
        };
        self.stage = match self.op {
            Op::Read { pieces, .. } => {
                let read = ReadOperation::new(file, self.offset, user(pieces));
                Stage::Read(match open {
                    Some(open) => read.with_readahead(open.clone(), pieces == 1),
                    None => read,
                })
            }
            Op::Write { pieces, durable, .. } => {
                Stage::Write(WriteOperation::new(file, self.offset, user(pieces), durable))
            }
            Op::Sync { from, last, durable } => {
                Stage::Sync(SyncOperation::new(file, from, last, durable))
            }
            Op::Truncate { .. } => Stage::Truncate,
            _ => self.flush(file),
        };
    }

    /// First and last page of a direct request.
    fn pages(&self) -> (u64, u64) {
        let page = FRAME_BYTES as u64;
        let end = self.offset + self.op.memory_bytes() as u64;
        (self.offset / page, (end - 1) / page)
    }

    fn flush(&self, file: Arc<CachedFile>) -> Stage {
        let (from, last) = self.pages();
        Stage::Flush(SyncOperation::new(file, from, last, Durable::Written))
    }

    /// Drops the pages of a direct write. The lock keeps others from bringing them back; what
    /// shares a folio with them may have become dirty again.
    fn drop_pages(&mut self, world: &mut World<'_>, entry: &dyn Fn() -> WaitEntry) -> Option<Step> {
        let (from, last) = self.pages();
        let mapping = world.file.mapping();
        if world.canary == Some(Canary::KeepPages) {
            self.stage = Stage::Device { sent: false, done: 0 };
            return None;
        }
        match mapping.invalidate(from, last) {
            Ok(0) => self.stage = Stage::Device { sent: false, done: 0 },
            Ok(_) => self.stage = self.flush(world.file.clone()),
            Err(busy) if mapping.wait(&busy.pin, busy.reason, entry) => return Some(Step::Retry),
            Err(_) => {}
        }
        None
    }

    fn transfer(&mut self, world: &mut World<'_>) -> Step {
        if let Some(answer) = self.answer.take() {
            let ended = if self.op.is_read() {
                self.has_read(world, answer)
            } else {
                Some(self.has_written(world, answer))
            };
            if let Some(result) = ended {
                return Step::Done(result);
            }
        }
        if let Stage::Device { sent: false, done } = self.stage {
            self.stage = Stage::Device { sent: true, done };
            world.plug.push(self.bio(world.file.backing().direct.fd, done));
        }
        Step::Queued
    }

    fn bio(&mut self, fd: i32, done: usize) -> Bio {
        let op = if self.op.is_read() { BioOp::Read } else { BioOp::Write };
        let segments = self.buffer.segments(1).after(done);
        let offset = self.offset as i64 + done as i64;
        // SAFETY: a task whose bio is under way is not dropped.
        let mut bio = unsafe { Bio::new(op, fd, segments, offset, self.id << 1) };
        if matches!(self.op, Op::DirectWrite { sync: true, .. }) {
            bio.rw_flags = rwf::DSYNC;
        }
        bio
    }

    /// Takes in the end of a direct write.
    fn has_written(
        &mut self,
        world: &mut World<'_>,
        answer: Result<u32, Errno>,
    ) -> Result<u32, Errno> {
        let (size, end) = (world.file.size(), self.offset + self.op.memory_bytes() as u64);
        match answer {
            Ok(bytes) => world.file.written_past(self.offset + u64::from(bytes)),
            // It may have made the file longer before it failed. One that could not have does
            // not hold the lock of the end: another may be making it longer now.
            Err(_) if end > size && world.medium.size() > Some(size) => {
                world.medium.set_len(size)?;
            }
            Err(_) => {}
        }
        answer
    }

    /// Takes in the end of a direct read. `None`: it came short, the rest follows.
    ///
    /// The file may be longer than what is on disk of it: between, there is a hole, which ends a
    /// read there. Faults end one behind a whole block only.
    fn has_read(
        &mut self,
        world: &mut World<'_>,
        answer: Result<u32, Errno>,
    ) -> Option<Result<u32, Errno>> {
        let Stage::Device { done, .. } = self.stage else { unreachable!("it was sent") };
        let memory = self.buffer.as_mut_slice();
        let behind = world.file.size().saturating_sub(self.offset);
        let readable = behind.min(memory.len() as u64) as usize;
        let bytes = match answer {
            Ok(bytes) => bytes as usize,
            Err(errno) => return Some(Err(errno)),
        };
        let end = done + bytes;
        let block = world.file.backing().block_bytes as usize;
        if end < readable {
            if bytes > 0 && end.is_multiple_of(block) {
                self.stage = Stage::Device { sent: false, done: end };
                return None;
            }
            memory[end..readable].fill(0);
        }
        Some(Ok(readable as u32))
    }

    fn truncate(&mut self, world: &mut World<'_>, entry: &dyn Fn() -> WaitEntry) -> Step {
        let Op::Truncate { size } = self.op else { unreachable!("it truncates") };
        // A sync that ran between the two cuts would promise pages that are gone from the cache
        // while the file still has what they should have replaced.
        if matches!(self.cut, Lock::None) && world.canary != Some(Canary::NoLock) {
            self.cut = world.cut_lock.try_lock(0..1, Mode::Exclusive, entry).into();
        }
        if !self.cut.is_granted() {
            return Step::Retry;
        }
        let mapping = world.file.mapping();
        while let Err(busy) = world.file.truncate(size) {
            if mapping.wait(&busy.pin, busy.reason, entry) {
                return Step::Retry;
            }
        }
        Step::Done(world.medium.set_len(size).map(|()| 0))
    }
}
