//! Images on files, by a queue of nowait.

use crate::{Chore, Chores, Chunk, Ended, Image, Mailbox, Medium, Pool, Tag};
use nowait::{Completion, Errno, Error, File, IoBuffer, Nowait, Queue, Refused};
use std::{collections::VecDeque, os::fd::BorrowedFd, sync::Arc};

/// Requests under way at once; more wait their turn.
const DEPTH: usize = 4096;

/// What one thread reads and writes images by.
#[derive(Debug)]
pub struct Disk {
    queue: Queue<Asked, Chunk>,
    pool: Pool,
    chores: Arc<Chores>,
    mailbox: Arc<Mailbox>,
    /// Ended otherwise than in the queue.
    ended: VecDeque<Ended>,
    /// Found the queue full.
    waiting: VecDeque<Waiting>,
}

/// What the queue knows a request by.
#[derive(Clone, Copy, Debug)]
struct Asked {
    tag: Tag,
    writes: bool,
}

#[derive(Debug)]
struct Waiting {
    file: File,
    tag: Tag,
    what: What,
}

#[derive(Debug)]
enum What {
    Read(Chunk, u64),
    Write(Chunk, u64, bool),
    Flush,
}

impl Disk {
    /// Makes one, whose transfers use about `memory_bytes` at most. The ends of its chores come by
    /// `mailbox`.
    ///
    /// # Errors
    /// No descriptors or memory left.
    pub fn new(
        nowait: &Nowait,
        chores: &Arc<Chores>,
        mailbox: Arc<Mailbox>,
        memory_bytes: usize,
    ) -> Result<Disk, Error> {
        Ok(Disk {
            queue: nowait.queue(DEPTH)?,
            pool: Pool::new(memory_bytes),
            chores: chores.clone(),
            mailbox,
            ended: VecDeque::new(),
            waiting: VecDeque::new(),
        })
    }

    /// Returns the descriptors that must be able to end what is given to [`Disk::sleep`].
    ///
    /// # Errors
    /// No descriptors left.
    pub fn descriptors(&self) -> Result<Vec<BorrowedFd<'_>>, Error> {
        self.queue.descriptors()
    }

    /// Hands all requests over. Does not wait.
    pub fn start(&mut self) {
        self.queue.submit();
    }

    /// Calls `sleep` unless a request has ended, and takes in what has ended then.
    ///
    /// # Errors
    /// This is a forked child.
    pub fn sleep(&mut self, sleep: impl FnOnce()) -> Result<(), Error> {
        if self.ended.is_empty() {
            self.queue.sleep(sleep)?;
        } else {
            self.queue.wait(0, Some(core::time::Duration::ZERO))?;
        }
        self.mailbox.empty(&mut self.ended);
        Ok(())
    }

    /// Tells whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.ended.is_empty() && self.waiting.is_empty()
    }

    fn add(&mut self, file: &File, what: What, tag: Tag) {
        if self.queue.is_full() || !self.waiting.is_empty() {
            self.waiting.push_back(Waiting { file: file.clone(), tag, what });
        } else {
            self.queue_now(file, what, tag);
        }
    }

    fn queue_now(&mut self, file: &File, what: What, tag: Tag) {
        let asked = Asked { tag, writes: matches!(what, What::Write(..)) };
        let taken = match what {
            What::Read(chunk, at) => self.queue.read(file, chunk, at, asked),
            What::Write(chunk, at, true) => self.queue.write_durable(file, chunk, at, asked),
            What::Write(chunk, at, false) => self.queue.write(file, chunk, at, asked),
            What::Flush => self.queue.sync_data(file, asked),
        };
        if let Err(Refused { error, buffers, .. }) = taken {
            let result = Err(error.errno());
            let chunk = buffers.one();
            self.ended.push_back(Ended { tag, result, chunk, extents: Vec::new() });
        }
    }

    fn go_on(&mut self) {
        let mut any = false;
        while !self.queue.is_full()
            && let Some(Waiting { file, tag, what }) = self.waiting.pop_front()
        {
            self.queue_now(&file, what, tag);
            any = true;
        }
        if any {
            self.queue.submit();
        }
    }
}

impl Medium for Disk {
    type File = File;

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn read(&mut self, image: &Arc<Image<File>>, mut chunk: Chunk, offset: u64, tag: Tag) {
        let (at, len, align) = (image.place(offset), chunk.data().len() as u64, image.alignment());
        let first = at / align * align;
        let last = (at + len).next_multiple_of(align);
        if first != at || last != at + len {
            let before = (at - first) as usize;
            chunk = self.pool.widened(chunk, before, (last - first) as usize);
        }
        self.add(image.file(), What::Read(chunk, first), tag);
    }

    fn write(
        &mut self,
        image: &Arc<Image<File>>,
        chunk: Chunk,
        offset: u64,
        durable: bool,
        tag: Tag,
    ) {
        let (at, len, align) = (image.place(offset), chunk.data().len() as u64, image.alignment());
        if at.is_multiple_of(align) && len.is_multiple_of(align) {
            self.add(image.file(), What::Write(chunk, at, durable), tag);
        } else {
            self.run(image, Chore::WriteParts { chunk, offset, durable }, tag);
        }
    }

    fn flush(&mut self, image: &Arc<Image<File>>, tag: Tag) {
        self.add(image.file(), What::Flush, tag);
    }

    fn run(&mut self, image: &Arc<Image<File>>, chore: Chore, tag: Tag) {
        self.chores.push(image, chore, tag, &self.mailbox);
    }

    fn pop(&mut self) -> Option<Ended> {
        if let Some(ended) = self.ended.pop_front() {
            return Some(ended);
        }
        let Completion { tag: Asked { tag, writes }, buffers, result } = self.queue.pop()?;
        if !self.waiting.is_empty() {
            self.go_on();
        }
        let mut chunk = buffers.one();
        let result = match (result, &mut chunk) {
            // Nothing stops a write half-way but a lack of space.
            (Ok(bytes), Some(chunk)) if writes && bytes < chunk.len() => Err(Errno::NOSPC),
            (Ok(bytes), Some(chunk)) => {
                chunk.zero_from(bytes);
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            (Err(error), _) => Err(error.errno()),
        };
        Some(Ended { tag, result, chunk, extents: Vec::new() })
    }
}
