//! The medium for images: a queue of nowait for files, and messages to other sources.

use crate::{
    AnySource, BlockingTask, BlockingTasks, Chunk, Image, KnownFailures, LentMemory, Loan, Mailbox,
    Medium, Pool, RequestEnd, Tag,
    burst::{Burst, Single},
    flushes::Flush,
    source::Transfers,
    stripes::Shared,
};
use core::ops::Range;
use nowait::{
    Buffers, Completion, Errno, Error, File, IoBuffer, IoBufferMut, Nowait, Queue, Refused,
};
use nowait_sys::mistake::{self, Mistake};
use std::{collections::VecDeque, os::fd::BorrowedFd, sync::Arc};

/// The most requests in the queue of a disk; further requests wait in [`Disk::waiting`].
const DEPTH: usize = 4096;

/// The queue and the memory with which one thread reads and writes images.
#[derive(Debug)]
pub struct Disk {
    queue: Queue<QueueTag, Memory>,
    pool: Pool,
    tasks: Arc<BlockingTasks>,
    mailbox: Arc<Mailbox>,
    /// Ends of requests that the queue did not report.
    ended: VecDeque<RequestEnd>,
    waiting: VecDeque<QueuedRequest>,
    burst: Burst,
}

#[derive(Debug)]
struct QueueTag {
    tag: Tag,
    writes: bool,
    /// The request fails if the transfer moves fewer bytes than this. The memory of a read consists
    /// of whole blocks, and may be larger.
    needed: usize,
    keeps: Keeps,
}

#[derive(Debug, Default)]
struct Keeps {
    _blocks: Option<Shared>,
    /// A flush, or a durable write whose failure other clients must learn of.
    flush: Option<Flush>,
}

#[derive(Debug)]
struct QueuedRequest {
    /// The number of the image.
    image: usize,
    file: File,
    tag: Tag,
    what: What,
    needed: usize,
    keeps: Keeps,
}

#[derive(Debug)]
enum What {
    Read(Chunk, u64),
    Write(Chunk, u64, bool),
    Lent(Loan, u64),
    Flush,
}

impl What {
    fn bytes(&self) -> usize {
        match self {
            What::Read(chunk, _) | What::Write(chunk, ..) => chunk.len(),
            What::Lent(loan, _) => loan.segments.iter().map(LentMemory::len).sum(),
            What::Flush => 0,
        }
    }
}

#[derive(Debug)]
enum Memory {
    Chunk(Chunk),
    Lent(LentMemory),
}

// SAFETY: both kinds of memory implement `IoBuffer`, and neither moves with the value.
unsafe impl IoBuffer for Memory {
    fn as_ptr(&self) -> *const u8 {
        match self {
            Memory::Chunk(chunk) => chunk.as_ptr(),
            Memory::Lent(lent) => lent.as_ptr(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Memory::Chunk(chunk) => chunk.len(),
            Memory::Lent(lent) => lent.len(),
        }
    }
}

// SAFETY: as for `IoBuffer`; both kinds of memory implement `IoBufferMut`.
unsafe impl IoBufferMut for Memory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            Memory::Chunk(chunk) => chunk.as_mut_ptr(),
            Memory::Lent(lent) => lent.as_mut_ptr(),
        }
    }
}

impl Memory {
    fn zero_from(&mut self, done: usize) {
        match self {
            Memory::Chunk(chunk) => chunk.zero_from(done),
            Memory::Lent(lent) => lent.zero_from(done),
        }
    }

    fn into_chunk(self) -> Option<Chunk> {
        match self {
            Memory::Chunk(chunk) => Some(chunk),
            Memory::Lent(_) => None,
        }
    }
}

/// If a read succeeds, zeroes the memory that it did not fill.
///
/// # Errors
/// If the transfer moved fewer than `needed` bytes: `ENOSPC` for a write, `EIO` for a read. Inside
/// an image a read is short only if the device has failed or the file was truncated: clients would
/// take zeroes in place of the missing bytes for data.
fn settle(
    buffers: &mut Buffers<Memory>,
    mut bytes: usize,
    needed: usize,
    writes: bool,
) -> Result<(), Errno> {
    if bytes < needed {
        return Err(if writes { Errno::NOSPC } else { Errno::IO });
    }
    let segments = match buffers {
        Buffers::None => &mut [],
        Buffers::One(memory) => core::slice::from_mut(memory),
        Buffers::Many(memories) => &mut memories[..],
    };
    for memory in segments {
        let len = memory.len();
        if bytes < len && !writes {
            memory.zero_from(bytes);
        }
        bytes = bytes.saturating_sub(len);
    }
    Ok(())
}

impl Disk {
    /// Makes a disk for one image; see [`Disk::shared_by`]. `memory_bytes` bounds the memory of the
    /// transfers, as [`Pool`] describes. Blocking tasks and sources with threads of their own put
    /// the ends of requests into `mailbox`.
    ///
    /// # Errors
    /// The queue cannot be made, for example because no descriptors or memory are left.
    pub fn new(
        nowait: &Nowait,
        tasks: &Arc<BlockingTasks>,
        mailbox: Arc<Mailbox>,
        memory_bytes: usize,
    ) -> Result<Disk, Error> {
        Ok(Disk {
            queue: nowait.queue(DEPTH)?,
            pool: Pool::new(memory_bytes),
            tasks: tasks.clone(),
            mailbox,
            ended: VecDeque::new(),
            waiting: VecDeque::new(),
            burst: Burst::default(),
        })
    }

    /// Makes the disk divide its memory between `images` images.
    #[must_use]
    pub fn shared_by(self, images: usize) -> Disk {
        Disk { pool: self.pool.shared_by(images), ..self }
    }

    /// Returns the descriptors of the queue. The callback of [`Disk::sleep`] must return when one
    /// of them is readable.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn descriptors(&self) -> Result<Vec<BorrowedFd<'_>>, Error> {
        self.queue.descriptors()
    }

    /// Hands waiting requests to the queue, as many as the queue has room for, except those that
    /// `burst` holds back. The caller must call this again after each [`Disk::sleep`]. Does not
    /// wait.
    pub fn start(&mut self) {
        let in_flight = self.queue.len() - self.queue.ready();
        let waiting = &self.waiting;
        let single = || {
            let image = waiting.front()?.image;
            let bytes = waiting.iter().map(|waiting| waiting.what.bytes()).sum();
            waiting.iter().all(|it| it.image == image).then_some(Single { image, bytes })
        };
        let share = self.burst.share(waiting.len(), in_flight, single);
        let room = DEPTH - self.queue.len();
        for _ in 0..share.min(room) {
            let Some(next) = self.waiting.pop_front() else { break };
            self.queue_now(next);
        }
        self.queue.submit();
    }

    /// Calls `sleep` unless a request has ended, and then collects the requests that have ended,
    /// also from the mailbox.
    ///
    /// # Errors
    /// This process is a forked child of the one that made the disk, for example.
    pub fn sleep(&mut self, sleep: impl FnOnce()) -> Result<(), Error> {
        if self.ended.is_empty() {
            self.queue.sleep(sleep)?;
        } else {
            self.queue.wait(0, Some(core::time::Duration::ZERO))?;
        }
        self.mailbox.empty(&mut self.ended);
        Ok(())
    }

    /// Returns `true` if no request waits for the queue or is in it, and no collected end waits for
    /// [`Medium::pop`]. Blocking tasks and requests to sources with threads of their own do not
    /// count before their ends are collected.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.ended.is_empty() && self.waiting.is_empty()
    }

    fn add(
        &mut self,
        image: &Image,
        file: &File,
        (what, needed): (What, usize),
        tag: Tag,
        keeps: Keeps,
    ) {
        let (image, file) = (image.number(), file.clone());
        self.waiting.push_back(QueuedRequest { image, file, tag, what, needed, keeps });
    }

    fn put(
        &mut self,
        image: &Image,
        chunk: Chunk,
        (at, durable): (u64, bool),
        tag: Tag,
        blocks: Option<Shared>,
    ) {
        match image.file().transfers() {
            Transfers::Queue(file) => {
                let needed = chunk.data().len();
                let keeps = Keeps { _blocks: blocks, flush: image.begin_write(durable) };
                self.add(image, file, (What::Write(chunk, at, durable), needed), tag, keeps);
            }
            Transfers::Messages(other) => {
                other.write(chunk, (at, durable), blocks, tag, &self.mailbox);
            }
        }
    }

    fn queue_now(&mut self, request: QueuedRequest) {
        let QueuedRequest { file, tag, what, needed, keeps, .. } = request;
        let writes = match &what {
            What::Write(..) => true,
            What::Lent(loan, _) => loan.writes,
            What::Read(..) | What::Flush => false,
        };
        let asked = QueueTag { tag, writes, needed, keeps };
        let queue = &mut self.queue;
        let file = &file;
        let taken = match what {
            What::Read(chunk, at) => queue.read(file, Memory::Chunk(chunk), at, asked),
            What::Write(chunk, at, true) => {
                queue.write_durable(file, Memory::Chunk(chunk), at, asked)
            }
            What::Write(chunk, at, false) => queue.write(file, Memory::Chunk(chunk), at, asked),
            What::Lent(Loan { segments, durable, .. }, at) => {
                let mut segments: Vec<Memory> = segments.into_iter().map(Memory::Lent).collect();
                match (segments.len(), writes) {
                    (1, true) if durable => {
                        queue.write_durable(file, segments.remove(0), at, asked)
                    }
                    (1, true) => queue.write(file, segments.remove(0), at, asked),
                    (1, false) => queue.read(file, segments.remove(0), at, asked),
                    (_, true) => queue.write_vectored(file, segments, at, asked),
                    (_, false) => queue.read_vectored(file, segments, at, asked),
                }
            }
            What::Flush => queue.sync_data(file, asked),
        };
        if let Err(Refused { error, buffers, .. }) = taken {
            let result = Err(error.errno());
            let chunk = buffers.one().and_then(Memory::into_chunk);
            self.ended.push_back(RequestEnd { tag, result, chunk, extents: Vec::new() });
        }
    }
}

impl Medium for Disk {
    type File = AnySource;

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn read(&mut self, image: &Arc<Image>, mut chunk: Chunk, offset: u64, tag: Tag) {
        let (at, len) = (image.place(offset), chunk.data().len() as u64);
        let Range { start: first, end: last } = image.file().span(&(at..at + len));
        if first != at || last != at + len {
            let before = (at - first) as usize;
            chunk = self.pool.widened(chunk, before, (last - first) as usize);
        }
        let needed = (at + len - first) as usize;
        match image.file().transfers() {
            Transfers::Queue(file) => {
                self.add(image, file, (What::Read(chunk, first), needed), tag, Keeps::default());
            }
            Transfers::Messages(other) if other.read_now(&mut chunk, first) => {
                let (result, chunk) = (Ok(()), Some(chunk));
                self.ended.push_back(RequestEnd { tag, result, chunk, extents: Vec::new() });
            }
            Transfers::Messages(other) => other.read(chunk, first, tag, &self.mailbox),
        }
    }

    fn write(&mut self, image: &Arc<Image>, chunk: Chunk, offset: u64, durable: bool, tag: Tag) {
        let (at, len, align) = (image.place(offset), chunk.data().len() as u64, image.alignment());
        let whole = at.is_multiple_of(align) && len.is_multiple_of(align);
        // Only a blocking task can wait for a request that writes parts of the same blocks.
        let durable = durable && !mistake::makes(Mistake::AnswerEarly);
        let whole = match image.file().transfers() {
            // A source that cannot write durably needs a flush after the write, which a blocking
            // task sends.
            Transfers::Messages(other) => whole && (!durable || other.writes_durably()),
            Transfers::Queue(_) => whole,
        };
        match image.stripes.try_share(&(at..at + len)).filter(|_| whole) {
            None if whole && mistake::makes(Mistake::ShareParts) => {
                self.put(image, chunk, (at, durable), tag, None);
            }
            None => self.run(image, BlockingTask::WriteParts { chunk, offset, durable }, tag),
            blocks => self.put(image, chunk, (at, durable), tag, blocks),
        }
    }

    fn borrow(
        &mut self,
        image: &Arc<Image>,
        loan: Loan,
        offset: u64,
        tag: Tag,
    ) -> Result<(), Loan> {
        // A request to a server or an object store needs memory of the pool.
        let Transfers::Queue(file) = image.file().transfers() else { return Err(loan) };
        let at = image.place(offset);
        // The most segments that the kernel accepts in one request (IOV_MAX).
        const SEGMENTS_MAX: usize = 1024;
        let possible = !loan.segments.is_empty()
            && loan.segments.len() <= SEGMENTS_MAX
            && (!loan.durable || loan.segments.len() == 1)
            && file.alignment().is_none_or(|alignment| {
                let whole = |segment: &LentMemory| {
                    segment.len().is_multiple_of(alignment.offset)
                        && segment.as_ptr().addr().is_multiple_of(alignment.memory)
                };
                at.is_multiple_of(alignment.offset as u64) && loan.segments.iter().all(whole)
            });
        if !possible {
            return Err(loan);
        }
        let len = loan.segments.iter().map(LentMemory::len).sum::<usize>() as u64;
        let blocks = loan.writes.then(|| image.stripes.try_share(&(at..at + len)));
        if let Some(None) = blocks {
            return Err(loan);
        }
        let flush = image.begin_write(loan.durable);
        let keeps = Keeps { _blocks: blocks.flatten(), flush };
        self.add(image, file, (What::Lent(loan, at), len as usize), tag, keeps);
        Ok(())
    }

    fn flush(&mut self, image: &Arc<Image>, told: &KnownFailures, tag: Tag) {
        match image.file().transfers() {
            Transfers::Queue(file) => {
                let flush = Some(image.flushes.begin(told));
                self.add(image, file, (What::Flush, 0), tag, Keeps { _blocks: None, flush });
            }
            Transfers::Messages(other) => other.flush(tag, &self.mailbox),
        }
    }

    fn run(&mut self, image: &Arc<Image>, task: BlockingTask, tag: Tag) {
        self.tasks.push(image, task, tag, &self.mailbox);
    }

    fn forget(&mut self, owner: u64) {
        let dropped = self.tasks.forget(owner, &self.mailbox);
        dropped.into_iter().for_each(|chunk| self.pool.give_back(chunk));
    }

    fn pop(&mut self) -> Option<RequestEnd> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Some(ended);
            }
            let Completion { tag: asked, mut buffers, result } = self.queue.pop()?;
            let QueueTag { tag, writes, needed, keeps: Keeps { flush, .. } } = asked;
            let result = match result {
                Ok(bytes) => settle(&mut buffers, bytes, needed, writes),
                Err(error) => Err(error.errno()),
            };
            let chunk = buffers.one().and_then(Memory::into_chunk);
            let ended = RequestEnd { tag, result, chunk, extents: Vec::new() };
            let Some(flush) = flush else { return Some(ended) };
            let ended = flush.end(ended, &self.mailbox);
            // The mailbox may now have flushes and writes of this thread that were held until this
            // flush or write ended.
            self.mailbox.empty(&mut self.ended);
            if ended.is_some() {
                return ended;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageOptions;

    /// The disk learns of no end here, as if the device of the first image did not answer.
    #[test]
    fn a_held_half_of_a_burst_holds_back_no_request_for_another_image() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let options = ["first", "second"].map(|name| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![1; 16 * 4096]).unwrap();
            ImageOptions { path, name: name.to_owned(), ..ImageOptions::default() }
        });
        let nowait = Nowait::new().unwrap();
        let images = Image::open_all(&nowait, &options).unwrap();
        let [first, second] = &images.into_iter().map(Arc::new).collect::<Vec<_>>()[..] else {
            panic!("two images")
        };
        let mailbox = Mailbox::new().unwrap();
        let mut disk = Disk::new(&nowait, &BlockingTasks::new(1), mailbox, 1 << 20).unwrap();
        for slot in 0..16 {
            let chunk = disk.pool().take(4096);
            let tag = Tag { owner: 0, slot, part: 0 };
            disk.read(first, chunk, u64::from(slot) * 4096, tag);
        }
        disk.start();
        assert_eq!(disk.waiting.len(), 8, "half of the burst");
        let chunk = disk.pool().take(4096);
        disk.write(second, chunk, 0, false, Tag { owner: 1, slot: 0, part: 0 });
        disk.start();
        assert_eq!(disk.waiting.len(), 0, "all are handed over");
    }
}
