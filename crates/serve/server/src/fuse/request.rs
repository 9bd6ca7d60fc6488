//! A FUSE request of the kernel on its way from a thread of the FUSE library to a serving thread,
//! and its reply.

use core::ops::Range;
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyLseek, ReplyWrite};
use nowait_device::{Chunk, Extent, Kind, Pool};
use nowait_sys::mutex::{Condvar, Mutex};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) enum FuseRequest {
    Read { reply: ReplyData, offset: u64, len: usize },
    Write { reply: ReplyWrite, offset: u64, chunk: Chunk, durable: bool, space: Space },
    Flush { reply: ReplyEmpty },
    Zero { reply: ReplyEmpty, range: Range<u64>, allocated: bool },
    Seek { reply: ReplyLseek, from: u64, for_hole: bool, size: u64 },
}

#[derive(Debug)]
pub(super) enum PendingReply {
    Data(ReplyData),
    Written(ReplyWrite, Space),
    Plain(ReplyEmpty),
    Place { reply: ReplyLseek, from: u64, for_hole: bool, size: u64 },
}

impl PendingReply {
    /// Answers the kernel. Returns the chunk if it belongs to the serving thread's pool. The chunk
    /// of a write goes back to [`Buffers`] instead.
    pub(super) fn answer(
        self,
        failed: Option<nowait::Errno>,
        bytes: u64,
        chunk: Option<Chunk>,
        extents: &[Extent],
    ) -> Option<Chunk> {
        let failed = failed.map(|errno| Errno::from_i32(errno.raw()));
        match (self, failed) {
            (PendingReply::Data(reply), None) => {
                reply.data(chunk.as_ref().map_or(&[], Chunk::data));
            }
            (PendingReply::Data(reply), Some(errno)) => reply.error(errno),
            (PendingReply::Written(reply, space), failed) => {
                match failed {
                    None => reply.written(bytes as u32),
                    Some(errno) => reply.error(errno),
                }
                if let Some(chunk) = chunk {
                    space.end(chunk);
                }
                return None;
            }
            (PendingReply::Plain(reply), None) => reply.ok(),
            (PendingReply::Plain(reply), Some(errno)) => reply.error(errno),
            (PendingReply::Place { reply, .. }, Some(errno)) => reply.error(errno),
            (PendingReply::Place { reply, from, for_hole, size }, None) => {
                match found(extents, from, for_hole, size) {
                    Some(place) => reply.offset(place as i64),
                    None => reply.error(Errno::ENXIO),
                }
            }
        }
        chunk
    }

    /// Returns the kind for the statistics; `zeroes`: the request zeroes or frees a range and is
    /// not a flush.
    pub(super) fn kind(&self, zeroes: bool) -> Kind {
        match self {
            PendingReply::Data(_) => Kind::Read,
            PendingReply::Written(..) => Kind::Write,
            PendingReply::Plain(_) if zeroes => Kind::Zero,
            PendingReply::Plain(_) => Kind::Flush,
            PendingReply::Place { .. } => Kind::Other,
        }
    }
}

/// Returns the result of lseek(2) from `from`, where the first of `extents` begins; `None`: the
/// caller seeks data, and a hole reaches up to the end.
fn found(extents: &[Extent], from: u64, for_hole: bool, size: u64) -> Option<u64> {
    let first = extents.first().copied().unwrap_or(Extent { len: size - from, hole: false });
    if first.hole == for_hole {
        return Some(from);
    }
    let next = from + first.len;
    // The end of the file counts as a hole, not as data.
    (for_hole || next < size).then_some(next)
}

/// Memory for copies of the data of writes to all FUSE files. The FUSE library lends the data only
/// during its call, so the server copies the data.
#[derive(Debug)]
pub(crate) struct Buffers {
    pool: Mutex<Pool>,
    room: Condvar,
}

impl Buffers {
    pub(crate) fn new(bound: usize, images: usize) -> Buffers {
        Buffers { pool: Mutex::new(Pool::new(bound).shared_by(images)), room: Condvar::new() }
    }

    /// Copies `data` into a chunk for an image; returns the chunk and its part of the memory. Waits
    /// until there is room, unless the image uses none of this memory.
    pub(super) fn filled(self: &Arc<Buffers>, image: usize, data: &[u8]) -> (Chunk, Space) {
        let mut pool = self.pool.lock();
        while pool.used_by(image) > 0 && !pool.has_room(image, data.len()) {
            self.room.wait(&mut pool);
        }
        let mut chunk = pool.take_for(image, data.len());
        drop(pool);
        let space = Space { buffers: self.clone(), image, bytes: chunk.memory_bytes() };
        chunk.data_mut().copy_from_slice(data);
        (chunk, space)
    }

    fn change(&self, change: impl FnOnce(&mut Pool)) {
        let mut pool = self.pool.lock();
        change(&mut pool);
        if pool.take_refused() {
            self.room.notify_all();
        }
    }
}

/// A part of the memory of [`Buffers`], which counts for a chunk. Dropping this value ends the
/// count, also if the chunk was dropped before.
#[derive(Debug)]
pub(crate) struct Space {
    buffers: Arc<Buffers>,
    image: usize,
    bytes: usize,
}

impl Space {
    fn end(mut self, chunk: Chunk) {
        self.bytes = 0;
        self.buffers.change(|pool| pool.give_back(chunk));
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.buffers.change(|pool| pool.release(self.image, self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn data_and_holes_are_found_up_to_the_end() {
        let hole = |len, hole| [Extent { len, hole }];
        assert_eq!(found(&hole(10, false), 5, false, 100), Some(5));
        assert_eq!(found(&hole(10, false), 5, true, 100), Some(15));
        assert_eq!(found(&hole(95, false), 5, true, 100), Some(100), "the end is a hole");
        assert_eq!(found(&hole(95, true), 5, false, 100), None);
        assert_eq!(found(&[], 5, false, 100), Some(5), "without an answer all is data");
    }

    #[test]
    fn a_write_of_another_image_does_not_wait() {
        let buffers = Arc::new(Buffers::new(8192, 2));
        // Each of the two chunks is larger than the bound of the memory.
        let held = [0, 1].map(|image| buffers.filled(image, &[1; 10_000]));
        held.into_iter().for_each(|(chunk, space)| space.end(chunk));
        assert_eq!(buffers.pool.lock().used_bytes(), 0);
    }

    #[test]
    fn a_write_without_memory_waits_for_another_to_end() {
        for lost in [false, true] {
            let buffers = Arc::new(Buffers::new(8192, 1));
            // The chunk is larger than the bound of the memory. An image that uses none of the
            // memory gets the chunk nevertheless.
            let (chunk, space) = buffers.filled(0, &[1; 10_000]);
            let (second, space) = thread::scope(|scope| {
                let waiting = scope.spawn(|| buffers.filled(0, &[2; 4096]));
                match lost {
                    true => drop((chunk, space)),
                    false => space.end(chunk),
                }
                waiting.join().unwrap()
            });
            assert_eq!(second.data(), [2; 4096]);
            space.end(second);
            assert_eq!(buffers.pool.lock().used_bytes(), 0);
        }
    }
}
