//! One operation in flight, from its place in the order of overlapping ones to its result.
//!
//! ```text
//!   place ─► read · write · sync                                      the cache's operations
//!       └──► flush ─► device                                          direct reads
//!       └──► change: prepared ─► device, or set_len ─► finish         direct writes, truncations
//! ```
//!
//! The crate `nowait-file` uses the cache in the same way.

use crate::{buffer::Buffer, buffer::fill, canary::Canary, kicker::Kicker, medium::Medium, op::Op};
use nowait_block::{Bio, BioOp};
use nowait_cache::copy::User;
use nowait_cache::{
    CachedFile, Change, FRAME_BYTES, OpenFile, ReadOperation, SyncLevel, SyncOperation,
    WriteOperation,
};
use nowait_file::order::{Orders, Ticket};
use nowait_retry::Step;
use nowait_sys::{Errno, file::rwf};
use std::sync::Arc;

pub(crate) struct World<'a> {
    pub(crate) file: &'a Arc<CachedFile>,
    pub(crate) open: Option<&'a Arc<OpenFile>>,
    pub(crate) medium: &'a dyn Medium,
    pub(crate) plug: &'a mut Vec<Bio>,
    pub(crate) canary: Option<Canary>,
}

pub(crate) struct Place {
    pub(crate) orders: Arc<Orders>,
    pub(crate) ticket: Ticket,
}

impl core::fmt::Debug for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.ticket.fmt(f)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.orders.leave(&self.ticket);
    }
}

#[derive(Debug)]
enum Stage {
    New,
    Read(ReadOperation),
    Write(WriteOperation),
    Sync(SyncOperation),
    Flush(SyncOperation),
    /// A deliberate mistake of direct writes, see `drop_pages`.
    Drop,
    /// Prepares the cache for a truncation or a direct write.
    Change,
    Device {
        sent: bool,
        done: usize,
    },
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) kicker: Arc<Kicker>,
    pub(crate) place: Option<Place>,
    change: Option<Change>,
    pub(crate) iterations: u32,
    pub(crate) answer: Option<Result<u32, Errno>>,
    stage: Stage,
    /// Declared, and so dropped, after the fields that use the buffer.
    pub(crate) buffer: Buffer,
}

impl Task {
    pub(crate) fn new(id: u64, op: Op, kicker: Arc<Kicker>) -> Task {
        let buffer = Buffer::new(op.memory_bytes());
        let (place, change, stage) = (None, None, Stage::New);
        Task {
            id,
            op,
            offset: 0,
            kicker,
            place,
            change,
            iterations: 0,
            answer: None,
            stage,
            buffer,
        }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.ticket.is_blocked())
    }

    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::New)
    }

    /// Returns `true` if the data of a write may be in the file or in its cache.
    pub(crate) fn may_have_written(&self) -> bool {
        match self.stage {
            Stage::Write(_) => true,
            Stage::Device { sent, .. } => sent && self.op.is_write(),
            _ => false,
        }
    }

    pub(crate) fn can_be_dropped(&self) -> bool {
        !matches!(self.stage, Stage::Device { sent: true, .. })
    }

    /// This token is even, while the tokens of the cache are odd.
    pub(crate) fn token(&self) -> Option<u64> {
        let sent = matches!(self.stage, Stage::Device { sent: true, .. }) && self.answer.is_none();
        sent.then_some(self.id << 1)
    }

    pub(crate) fn iterate(&mut self, world: &mut World<'_>) -> Step {
        self.iterations += 1;
        if !self.has_begun() {
            self.begin(world);
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
                    Step::Done(Ok(_)) if self.op.is_write() => self.stage = Stage::Drop,
                    Step::Done(Ok(_)) => self.stage = Stage::Device { sent: false, done: 0 },
                    step => return step,
                },
                Stage::Drop => self.drop_pages(world),
                Stage::Change => {
                    let change = self.change.as_mut().expect("made with the stage");
                    match (change.iterate(world.plug, &entry), &self.op) {
                        (Step::Done(Ok(_)), Op::Truncate { size }) => {
                            return Step::Done(self.cut(world, *size));
                        }
                        (Step::Done(Ok(_)), _) => {
                            self.stage = Stage::Device { sent: false, done: 0 };
                        }
                        (step, _) => return step,
                    }
                }
                Stage::Device { .. } => return self.transfer(world),
            }
        }
    }

    fn begin(&mut self, world: &World<'_>) {
        let (file, open) = (world.file.clone(), world.open);
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
            Op::Truncate { size } => {
                self.change = Some(Change::cut(&file, size));
                Stage::Change
            }
            Op::DirectWrite { .. } if !world.leaves_pages() => {
                self.change = Some(Change::outside(&file));
                Stage::Change
            }
            _ => self.flush(file),
        };
    }

    fn pages(&self) -> (u64, u64) {
        let page = FRAME_BYTES as u64;
        let end = self.offset + self.op.memory_bytes() as u64;
        (self.offset / page, (end - 1) / page)
    }

    fn flush(&self, file: Arc<CachedFile>) -> Stage {
        let (from, last) = self.pages();
        Stage::Flush(SyncOperation::new(file, from, last, SyncLevel::WriteOnly))
    }

    /// Makes a deliberate mistake of a direct write, see [`Canary`].
    fn drop_pages(&mut self, world: &World<'_>) {
        let ((mut from, last), mapping) = (self.pages(), world.file.mapping());
        while world.canary == Some(Canary::SkipLocked)
            && let Err(busy) = mapping.invalidate(from, last)
        {
            from = busy.pin.folio().index() + busy.pin.folio().pages();
        }
        self.stage = Stage::Device { sent: false, done: 0 };
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
            world.plug.push(self.bio(world.file.reads().fd, done));
        }
        Step::Queued
    }

    fn bio(&mut self, fd: i32, done: usize) -> Bio {
        let op = if self.op.is_read() { BioOp::Read } else { BioOp::Write };
        let segments = self.buffer.segments(1).after(done);
        let offset = self.offset as i64 + done as i64;
        // SAFETY: a task whose bio is in flight is not dropped.
        let mut bio = unsafe { Bio::new(op, fd, segments, offset, self.id << 1) };
        if matches!(self.op, Op::DirectWrite { sync: true, .. }) {
            bio.rw_flags = rwf::DSYNC;
        }
        bio
    }

    fn has_written(
        &mut self,
        world: &mut World<'_>,
        answer: Result<u32, Errno>,
    ) -> Result<u32, Errno> {
        let (size, end) = (world.file.size(), self.offset + self.op.memory_bytes() as u64);
        match (answer, self.change.take()) {
            (Ok(bytes), Some(change)) => {
                change.finish(size.max(self.offset + u64::from(bytes)));
            }
            (Ok(bytes), None) => world.file.written_past(self.offset + u64::from(bytes)),
            // The failed write may have made the file longer on the device: cut it off again. A
            // write inside the file cuts nothing off: another write may be making the file longer
            // now.
            (Err(_), _) if end > size && world.medium.size() > Some(size) => {
                world.medium.set_len(size)?;
            }
            (Err(_), _) => {}
        }
        answer
    }

    /// `None`: the read was short, and another bio reads the rest.
    ///
    /// The file may be longer than its part on disk, at whose end a read of the disk ends: a hole
    /// follows. A fault ends a read only after a whole block.
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
        let block = world.file.block_bytes() as usize;
        if end < readable {
            if bytes > 0 && end.is_multiple_of(block) {
                self.stage = Stage::Device { sent: false, done: end };
                return None;
            }
            memory[end..readable].fill(0);
        }
        Some(Ok(readable as u32))
    }

    fn cut(&mut self, world: &World<'_>, size: u64) -> Result<u32, Errno> {
        let change = self.change.take().expect("prepared");
        world.medium.set_len(size)?;
        change.finish(size);
        Ok(0)
    }
}

impl World<'_> {
    fn leaves_pages(&self) -> bool {
        matches!(self.canary, Some(Canary::KeepPages | Canary::SkipLocked))
    }
}
