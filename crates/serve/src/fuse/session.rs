//! Requests to the file, and their answers. Knows no device: messages come in, messages go out.
//!
//! ```text
//!  Landing ─▶ Header ─┬─ about the file ─────────────────────────────────▶ answer
//!                     └─ Read, Write, Fsync, Fallocate, Lseek ─▶ medium ─▶ end ─▶ answer
//! ```

use super::{
    face::Face,
    landing::{DATA_BYTES_MAX, Landing},
    wire::{self, Answer, Header, MAJOR, MINOR, MINOR_MIN, Reader, change, init, opcode},
};
use nowait::Errno;
use nowait_export::{Chore, Chunk, Ended, Extent, Kind, Medium, PIECE_BYTES, Tag};
use nowait_sys::fuse::{allocation, open, whence};
use std::{io::IoSlice, sync::Arc};

/// Who takes the answers.
pub trait Kernel {
    /// Takes one answer, whole. Does not wait.
    fn answer(&mut self, parts: &[IoSlice<'_>]);
}

/// A request under way.
#[derive(Debug)]
struct Active {
    unique: u64,
    what: What,
    kind: Kind,
    bytes: u64,
    began_ns: u64,
    /// At the medium.
    parts_left: usize,
    failed: Option<Errno>,
    /// Of a read, in order.
    chunks: Vec<Option<Chunk>>,
}

/// What the answer is made of.
#[derive(Clone, Copy, Debug)]
enum What {
    Read,
    Write,
    Plain,
    Seek { from: u64, for_hole: bool, size: u64 },
}

/// The requests of one thread to one file.
#[derive(Debug)]
pub struct Session<F> {
    owner: u64,
    face: Arc<Face<F>>,
    requests: Vec<Option<Active>>,
    free: Vec<u32>,
}

/// Requests under way of one thread.
const REQUESTS_MAX: usize = 1024;
/// Requests that nobody waits for in the kernel, readahead and asynchronous direct I/O: its default
/// is 12.
const BACKGROUND_MAX: u16 = 512;
const CONGESTED: u16 = BACKGROUND_MAX / 4 * 3;
const PAGE_BYTES: usize = 4096;

type Outcome = Result<(), Errno>;

impl<F> Session<F> {
    /// Begins. `owner` is what the ends of its requests come back with.
    pub fn new(owner: u64, face: Arc<Face<F>>) -> Session<F> {
        Session { owner, face, requests: Vec::new(), free: Vec::new() }
    }

    /// Returns how many requests are under way.
    pub fn in_flight(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    /// Tells whether there is room for any request. Who has nothing under way always has.
    pub fn has_appetite<M: Medium<File = F>>(&self, medium: &mut M) -> bool {
        let few = self.in_flight() < REQUESTS_MAX;
        self.in_flight() == 0 || (few && medium.pool().has_room(DATA_BYTES_MAX))
    }

    /// Takes the request of `len` bytes that has landed.
    pub fn request<M: Medium<File = F>>(
        &mut self,
        landing: &mut Landing,
        len: usize,
        medium: &mut M,
        kernel: &mut impl Kernel,
        now_ns: u64,
    ) {
        let (bytes, known) = landing.beginning(len);
        let Some((header, reader)) = Header::read(&bytes[..known]) else { return };
        let outcome = match header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => return,
            opcode::READ => self.read(&header, reader, medium, kernel, now_ns),
            opcode::WRITE => {
                let arrived = len.saturating_sub(wire::HEAD_BYTES);
                self.write(&header, reader, (landing, arrived), medium, now_ns)
            }
            opcode::FSYNC => {
                let tag = self.insert(&header, (What::Plain, Kind::Flush), 0, now_ns);
                medium.flush(self.face.image(), tag);
                Ok(())
            }
            opcode::FALLOCATE => self.allocate(&header, reader, medium, kernel, now_ns),
            opcode::LSEEK => self.seek(&header, reader, medium, now_ns),
            _ => self.about(&header, reader).map(|answer| {
                kernel.answer(&[IoSlice::new(answer.as_bytes())]);
            }),
        };
        if let Err(errno) = outcome {
            let answer = Answer::failed(header.unique, errno.raw()).end(0);
            kernel.answer(&[IoSlice::new(answer.as_bytes())]);
        }
    }

    /// Answers what needs no medium.
    fn about(&self, header: &Header, mut reader: Reader<'_>) -> Result<Answer, Errno> {
        let answer = Answer::new(header.unique);
        match header.opcode {
            opcode::INIT => greet(header, reader),
            opcode::GETATTR => Ok(self.face.attributes().answer(header.unique)),
            opcode::SETATTR => self.change(header, reader),
            opcode::OPEN => {
                let flags = reader.u32().ok_or(Errno::INVAL)?;
                let reads = flags & open::ACCESS == open::READ_ONLY;
                if !reads && self.face.image().properties().read_only {
                    return Err(Errno::ROFS);
                }
                if !self.face.open(header.user) {
                    return Err(Errno::ACCES);
                }
                let flags = wire::open::DIRECT_IO | wire::open::PARALLEL_DIRECT_WRITES;
                Ok(answer.u64(0).u32(flags).u32(0).end(0))
            }
            opcode::RELEASE => {
                self.face.close();
                Ok(answer.end(0))
            }
            opcode::STATFS => {
                let blocks = self.face.image().size().div_ceil(PAGE_BYTES as u64);
                let answer = answer.u64(blocks).u64(0).u64(0).u64(1).u64(0);
                let page = PAGE_BYTES as u32;
                Ok(answer.u32(page).u32(255).u32(page).zeroes(28).end(0))
            }
            opcode::DESTROY => Ok(answer.end(0)),
            // The kernel does not ask again, and does what is usual.
            _ => Err(Errno::NOSYS),
        }
    }

    /// Refuses to change anything but times, which are those of the contents.
    fn change(&self, header: &Header, mut reader: Reader<'_>) -> Result<Answer, Errno> {
        let (valid, _padding, _handle, size) =
            (reader.u32(), reader.u32(), reader.u64(), reader.u64());
        let (valid, size) = valid.zip(size).ok_or(Errno::INVAL)?;
        let image = self.face.image();
        let rights = change::MODE | change::USER | change::GROUP;
        let resized = valid & change::SIZE != 0 && size != image.size();
        if valid & rights != 0 || resized {
            return Err(Errno::PERM);
        }
        Ok(self.face.attributes().answer(header.unique))
    }

    fn read<M: Medium<File = F>>(
        &mut self,
        header: &Header,
        mut reader: Reader<'_>,
        medium: &mut M,
        kernel: &mut impl Kernel,
        now_ns: u64,
    ) -> Outcome {
        let asked = reader.transfer().ok_or(Errno::INVAL)?;
        let there = self.face.image().size().saturating_sub(asked.offset);
        let len = u64::from(asked.len).min(there).min(DATA_BYTES_MAX as u64) as usize;
        if len == 0 {
            let answer = Answer::new(header.unique).end(0);
            kernel.answer(&[IoSlice::new(answer.as_bytes())]);
            return Ok(());
        }
        let tag = self.insert(header, (What::Read, Kind::Read), len as u64, now_ns);
        let parts = len.div_ceil(PIECE_BYTES);
        if let Some(Some(active)) = self.requests.get_mut(tag.slot as usize) {
            active.parts_left = parts;
            active.chunks.resize_with(parts, || None);
        }
        for part in 0..parts {
            let from = part * PIECE_BYTES;
            let chunk = medium.pool().take((len - from).min(PIECE_BYTES));
            let tag = Tag { part: part as u32, ..tag };
            medium.read(self.face.image(), chunk, asked.offset + from as u64, tag);
        }
        Ok(())
    }

    fn write<M: Medium<File = F>>(
        &mut self,
        header: &Header,
        mut reader: Reader<'_>,
        (landing, arrived): (&mut Landing, usize),
        medium: &mut M,
        now_ns: u64,
    ) -> Outcome {
        let asked = reader.transfer().ok_or(Errno::INVAL)?;
        let image = self.face.image().clone();
        if image.properties().read_only {
            return Err(Errno::ROFS);
        }
        let there = image.size().saturating_sub(asked.offset);
        if asked.len as usize != arrived || arrived == 0 {
            return Err(Errno::INVAL);
        }
        // As at the end of a disk: what fits is written.
        let len = there.min(arrived as u64) as usize;
        if len == 0 {
            return Err(Errno::NOSPC);
        }
        let durable = asked.open_flags & open::DSYNC != 0;
        let chunks = landing.take(len, medium.pool());
        let tag = self.insert(header, (What::Write, Kind::Write), len as u64, now_ns);
        if let Some(Some(active)) = self.requests.get_mut(tag.slot as usize) {
            active.parts_left = chunks.len();
        }
        for (part, chunk) in chunks.into_iter().enumerate() {
            let offset = asked.offset + (part * PIECE_BYTES) as u64;
            let tag = Tag { part: part as u32, ..tag };
            medium.write(&image, chunk, offset, durable, tag);
        }
        Ok(())
    }

    fn allocate<M: Medium<File = F>>(
        &mut self,
        header: &Header,
        mut reader: Reader<'_>,
        medium: &mut M,
        kernel: &mut impl Kernel,
        now_ns: u64,
    ) -> Outcome {
        let (_handle, offset, len) = (reader.u64(), reader.u64(), reader.u64());
        let (offset, len) = offset.zip(len).ok_or(Errno::INVAL)?;
        let mode = reader.u32().ok_or(Errno::INVAL)?;
        let image = self.face.image().clone();
        if image.properties().read_only {
            return Err(Errno::ROFS);
        }
        let (allocated, kind) = match mode & !allocation::KEEP_SIZE {
            allocation::PUNCH_HOLE => (false, Kind::Discard),
            allocation::ZERO_RANGE => (true, Kind::Zero),
            _ => return Err(Errno::OPNOTSUPP),
        };
        let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
        if mode & allocation::KEEP_SIZE == 0 && end > image.size() {
            return Err(Errno::NOSPC);
        }
        let range = offset..end.min(image.size());
        if range.is_empty() {
            let answer = Answer::new(header.unique).end(0);
            kernel.answer(&[IoSlice::new(answer.as_bytes())]);
            return Ok(());
        }
        let tag = self.insert(header, (What::Plain, kind), range.end - offset, now_ns);
        // Where the file system below cannot, the caller learns it, as from that itself.
        let chore = Chore::Zero { range, allocated, fast: true, durable: false };
        medium.run(&image, chore, tag);
        Ok(())
    }

    fn seek<M: Medium<File = F>>(
        &mut self,
        header: &Header,
        mut reader: Reader<'_>,
        medium: &mut M,
        now_ns: u64,
    ) -> Outcome {
        let (_handle, from, way) = (reader.u64(), reader.u64(), reader.u32());
        let (from, way) = from.zip(way).ok_or(Errno::INVAL)?;
        let for_hole = match way {
            whence::DATA => false,
            whence::HOLE => true,
            _ => return Err(Errno::INVAL),
        };
        let image = self.face.image().clone();
        let size = image.size();
        if from >= size {
            return Err(Errno::NXIO);
        }
        let what = What::Seek { from, for_hole, size };
        let tag = self.insert(header, (what, Kind::Other), 0, now_ns);
        medium.run(&image, Chore::Extents { range: from..size, max: 1 }, tag);
        Ok(())
    }

    fn insert(
        &mut self,
        header: &Header,
        (what, kind): (What, Kind),
        bytes: u64,
        now_ns: u64,
    ) -> Tag {
        self.face.image().stats().begin();
        let active = Active {
            unique: header.unique,
            what,
            kind,
            bytes,
            began_ns: now_ns,
            parts_left: 1,
            failed: None,
            chunks: Vec::new(),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() as u32 - 1
        });
        self.requests[slot as usize] = Some(active);
        Tag { owner: self.owner, slot, part: 0 }
    }

    /// Takes the end of something that was asked of the medium.
    pub fn end<M: Medium<File = F>>(
        &mut self,
        ended: Ended,
        medium: &mut M,
        kernel: &mut impl Kernel,
        now_ns: u64,
    ) {
        let Ended { tag, result, chunk, extents } = ended;
        let Some(Some(active)) = self.requests.get_mut(tag.slot as usize) else { return };
        active.parts_left -= 1;
        if let Err(errno) = result {
            active.failed.get_or_insert(errno);
        }
        match (chunk, active.chunks.get_mut(tag.part as usize)) {
            (Some(chunk), Some(place)) => *place = Some(chunk),
            (Some(chunk), None) => medium.pool().give_back(chunk),
            (None, _) => {}
        }
        if active.parts_left > 0 {
            return;
        }
        self.free.push(tag.slot);
        if let Some(active) = self.requests[tag.slot as usize].take() {
            self.finish(active, &extents, medium, kernel, now_ns);
        }
    }

    fn finish<M: Medium<File = F>>(
        &mut self,
        active: Active,
        extents: &[Extent],
        medium: &mut M,
        kernel: &mut impl Kernel,
        now_ns: u64,
    ) {
        let Active { unique, what, kind, bytes, began_ns, failed, chunks, .. } = active;
        let elapsed_ns = now_ns.saturating_sub(began_ns);
        self.face.image().stats().end(kind, bytes, elapsed_ns, failed.is_some());
        if matches!(kind, Kind::Write | Kind::Discard | Kind::Zero) {
            self.face.change();
        }
        let answer = Answer::new(unique);
        let answer = match (failed, what) {
            (Some(errno), _) => Err(errno),
            (None, What::Read) => Ok(answer.end(bytes as usize)),
            (None, What::Write) => Ok(answer.u32(bytes as u32).u32(0).end(0)),
            (None, What::Plain) => Ok(answer.end(0)),
            (None, What::Seek { from, for_hole, size }) => {
                found(extents, from, for_hole, size).map(|found| answer.u64(found).end(0))
            }
        };
        let failed = |errno: Errno| Answer::failed(unique, errno.raw()).end(0);
        let (answer, data) = match answer {
            Ok(answer) => (answer, &chunks[..]),
            Err(errno) => (failed(errno), &[][..]),
        };
        const PARTS: usize = 1 + DATA_BYTES_MAX / PIECE_BYTES;
        let mut parts = [IoSlice::new(&[]); PARTS];
        parts[0] = IoSlice::new(answer.as_bytes());
        for (part, chunk) in parts[1..].iter_mut().zip(data.iter().flatten()) {
            *part = IoSlice::new(chunk.data());
        }
        kernel.answer(&parts[..=data.len()]);
        chunks.into_iter().flatten().for_each(|chunk| medium.pool().give_back(chunk));
    }
}

/// Agrees with the kernel on what is spoken.
fn greet(header: &Header, mut reader: Reader<'_>) -> Result<Answer, Errno> {
    let mut next = || reader.u32().ok_or(Errno::INVAL);
    let (major, minor, readahead, flags) = (next()?, next()?, next()?, next()?);
    let needed = init::BIG_WRITES | init::MAX_PAGES;
    if major < MAJOR || (major == MAJOR && minor < MINOR_MIN) {
        return Err(Errno::OPNOTSUPP);
    }
    let answer = Answer::new(header.unique).u32(MAJOR).u32(MINOR);
    if major > MAJOR {
        // It will say the same again, in our version.
        return Ok(answer.zeroes(56).end(0));
    }
    if flags & needed != needed {
        return Err(Errno::OPNOTSUPP);
    }
    let longest = DATA_BYTES_MAX as u32;
    let flags = flags & (needed | init::ASYNC_READ | init::ASYNC_DIO);
    let answer = answer.u32(readahead.min(longest)).u32(flags);
    let answer = answer.u16(BACKGROUND_MAX).u16(CONGESTED).u32(longest);
    // Times to the nanosecond; the longest request in pages; and nothing of what came later.
    Ok(answer.u32(1).u16((DATA_BYTES_MAX / PAGE_BYTES) as u16).zeroes(34).end(0))
}

/// Finds what lseek(2) asks for, where `extents` has the one that begins at `from`.
fn found(extents: &[Extent], from: u64, for_hole: bool, size: u64) -> Result<u64, Errno> {
    let first = extents.first().copied().unwrap_or(Extent { len: size - from, hole: false });
    if first.hole == for_hole {
        return Ok(from);
    }
    let next = from + first.len;
    // Behind the end there is a hole, and nothing else.
    if for_hole || next < size { Ok(next) } else { Err(Errno::NXIO) }
}
