//! Memory for transfers: page-aligned, reused, and bounded.
//!
//! After [`Pool::shared_by`] all images share half of the memory, and each image has an equal share
//! of the other half for itself. So requests that wait for a stalled disk leave room for other
//! images. A front may exceed the bound by one request of an image or client that holds no memory,
//! so that each image and each client makes progress, however small the share is. The ublk front
//! does not check the bound: the depth of its queues limits its memory.

use core::fmt;
use nowait::{AlignedBuffer, IoBuffer, IoBufferMut};

/// The most bytes that a front other than ublk requests in one chunk: longer transfers take several
/// chunks.
pub const PIECE_BYTES: usize = 256 << 10;
/// The memory of the smallest chunk, in bytes. A front may give such a chunk to a client that holds
/// no memory, beyond the pool's bound.
pub const SMALL_BYTES: usize = 4096;
/// The most bytes of a chunk: enough for a request of ublk, which is twice [`PIECE_BYTES`], with
/// the blocks at both ends.
const LARGEST: usize = 4 * PIECE_BYTES;
const CLASSES: usize = (LARGEST / SMALL_BYTES).ilog2() as usize + 1;

/// The memory of one transfer. [`Pool::give_back`] returns the chunk to its pool.
pub struct Chunk {
    memory: AlignedBuffer,
    /// Bytes that the device transfers, from the beginning of the memory.
    io_len: usize,
    /// The offset in the memory at which the requested bytes begin.
    skip: usize,
    wanted: usize,
    /// The number of the image that the chunk counts for.
    image: usize,
}

impl Chunk {
    /// Returns the requested bytes.
    pub fn data(&self) -> &[u8] {
        &self.memory[self.skip..self.skip + self.wanted]
    }

    /// Returns the requested bytes, to be filled.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.wanted]
    }

    /// Returns all bytes that the device transfers: the requested ones, and the blocks around them.
    pub fn whole(&self) -> &[u8] {
        &self.memory[..self.io_len]
    }

    /// Returns all bytes that the device transfers, to be filled.
    pub fn whole_mut(&mut self) -> &mut [u8] {
        let len = self.io_len;
        &mut self.memory[..len]
    }

    /// Returns the bytes that the pool counts for this chunk; at least the requested ones.
    pub fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Zeroes the bytes from `done` on, because a read has filled only the bytes before: the memory
    /// may hold data of another client.
    pub fn zero_from(&mut self, done: usize) {
        let end = self.io_len;
        self.memory[done.min(end)..end].fill(0);
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk of {} bytes", self.wanted)
    }
}

// SAFETY: the memory belongs to the chunk, does not move with it, and is initialized.
unsafe impl IoBuffer for Chunk {
    fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr()
    }

    fn len(&self) -> usize {
        self.io_len
    }
}

// SAFETY: as for `IoBuffer`; the chunk owns the memory.
unsafe impl IoBufferMut for Chunk {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }
}

/// Hands out chunks, counts them against a bound that most callers check by [`Pool::has_room`], and
/// keeps some freed memory for the next chunks.
#[derive(Debug)]
pub struct Pool {
    free: [Vec<AlignedBuffer>; CLASSES],
    free_bytes: usize,
    used_bytes: usize,
    bound_bytes: usize,
    /// Bytes in use by image number; `beyond_bytes` is the sum of the parts that exceed the images'
    /// shares.
    of_images: Vec<usize>,
    beyond_bytes: usize,
    share_bytes: usize,
    common_bytes: usize,
    /// [`Pool::has_room`] has returned `false` since the last [`Pool::take_refused`].
    refused: bool,
}

const FREE_BYTES_MAX: usize = 16 << 20;

impl Pool {
    /// Makes a pool of about `bound_bytes` that is not divided between images.
    pub fn new(bound_bytes: usize) -> Pool {
        Pool {
            free: core::array::from_fn(|_| Vec::new()),
            free_bytes: 0,
            used_bytes: 0,
            bound_bytes,
            of_images: Vec::new(),
            beyond_bytes: 0,
            share_bytes: 0,
            common_bytes: bound_bytes,
            refused: false,
        }
    }

    /// Divides the pool between `images` images. No chunk may be in use.
    #[must_use]
    pub fn shared_by(self, images: usize) -> Pool {
        let share_bytes = self.bound_bytes / 2 / images.max(1);
        let common_bytes = self.bound_bytes - share_bytes * images;
        Pool { of_images: vec![0; images], share_bytes, common_bytes, ..self }
    }

    /// Returns `true` if chunks for `bytes` more fit into the rest of the image's share and of the
    /// common part. The pool does not enforce the answer: a front may take one more chunk for a
    /// client that holds no memory, so that the client makes progress.
    pub fn has_room(&mut self, image: usize, bytes: usize) -> bool {
        self.has_room_beside(image, 0, bytes)
    }

    /// Like [`Pool::has_room`], with `reserved` bytes in addition.
    pub fn has_room_beside(&mut self, image: usize, reserved: usize, bytes: usize) -> bool {
        let last = memory_of(bytes % PIECE_BYTES);
        let more = bytes / PIECE_BYTES * PIECE_BYTES + last + reserved;
        let held = self.used_by(image);
        let beyond = self.beyond(held + more) - self.beyond(held);
        let room = beyond == 0 || self.beyond_bytes + beyond <= self.common_bytes;
        self.refused |= !room;
        room
    }

    fn beyond(&self, held: usize) -> usize {
        held.saturating_sub(self.share_bytes)
    }

    /// Returns `true` if [`Pool::has_room`] has returned `false` since the last call.
    pub fn take_refused(&mut self) -> bool {
        core::mem::take(&mut self.refused)
    }

    /// Returns the bytes handed out and not given back.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Returns the bytes that an image has in use.
    pub fn used_by(&self, image: usize) -> usize {
        self.of_images.get(image).copied().unwrap_or(0)
    }

    /// Counts `bytes` of memory as in use by an image, until [`Pool::release`]. The caller
    /// allocates this memory itself. This function does not check that there is room.
    pub fn reserve(&mut self, image: usize, bytes: usize) {
        self.used_bytes += bytes;
        self.set(image, |held| held + bytes);
    }

    /// Ends the count of reserved `bytes`.
    pub fn release(&mut self, image: usize, bytes: usize) {
        self.used_bytes -= bytes;
        self.set(image, |held| held - bytes);
    }

    fn set(&mut self, image: usize, change: impl FnOnce(usize) -> usize) {
        if image >= self.of_images.len() {
            self.of_images.resize(image + 1, 0);
        }
        let before = self.of_images[image];
        let after = change(before);
        self.of_images[image] = after;
        self.beyond_bytes = self.beyond_bytes + self.beyond(after) - self.beyond(before);
    }

    /// Returns a chunk of `len` bytes for the image with number 0. The contents of the chunk are
    /// arbitrary.
    ///
    /// # Panics
    /// If `len` is above four times [`PIECE_BYTES`].
    pub fn take(&mut self, len: usize) -> Chunk {
        self.take_for(0, len)
    }

    /// Like [`Pool::take`], for the image with the number `image`.
    ///
    /// # Panics
    /// If `len` is above four times [`PIECE_BYTES`].
    pub fn take_for(&mut self, image: usize, len: usize) -> Chunk {
        let class = class_of(len);
        let memory = if let Some(memory) = self.free[class].pop() {
            self.free_bytes -= memory.len();
            memory
        } else {
            let bytes = SMALL_BYTES << class;
            self.make_room(bytes);
            AlignedBuffer::zeroed(bytes)
        };
        self.reserve(image, memory.len());
        Chunk { memory, io_len: len, skip: 0, wanted: len, image }
    }

    fn make_room(&mut self, bytes: usize) {
        if self.used_bytes + self.free_bytes + bytes > self.bound_bytes {
            self.free.iter_mut().for_each(Vec::clear);
            self.free_bytes = 0;
        }
    }

    /// Exchanges a chunk, whose contents are lost, for one that transfers `io_len` bytes. The
    /// requested bytes begin at `before` in the new chunk.
    pub(crate) fn widened(&mut self, chunk: Chunk, before: usize, io_len: usize) -> Chunk {
        let (wanted, image) = (chunk.wanted, chunk.image);
        self.give_back(chunk);
        let wide = self.take_for(image, io_len);
        debug_assert!(before + wanted <= io_len);
        Chunk { skip: before, wanted, ..wide }
    }

    /// Returns the memory of a chunk to the pool, which keeps it for reuse or frees it.
    pub fn give_back(&mut self, chunk: Chunk) {
        let bytes = chunk.memory.len();
        self.release(chunk.image, bytes);
        let room = self.used_bytes + self.free_bytes + bytes <= self.bound_bytes;
        if room && self.free_bytes + bytes <= FREE_BYTES_MAX {
            self.free_bytes += bytes;
            self.free[class_of(bytes)].push(chunk.memory);
        }
    }
}

fn class_of(len: usize) -> usize {
    assert!(len <= LARGEST, "a chunk has at most {LARGEST} bytes, not {len}");
    (len.max(SMALL_BYTES).next_power_of_two() / SMALL_BYTES).ilog2() as usize
}

fn memory_of(len: usize) -> usize {
    if len == 0 { 0 } else { SMALL_BYTES << class_of(len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_and_used_again() {
        let mut pool = Pool::new(64 << 10);
        let mut chunk = pool.take(5000);
        assert_eq!((chunk.data().len(), pool.used_bytes()), (5000, 8192));
        chunk.data_mut().fill(7);
        let address = chunk.data().as_ptr();
        pool.give_back(chunk);
        let again = pool.take(8192);
        assert_eq!((again.data().as_ptr(), pool.used_bytes()), (address, 8192));
        let more = (pool.has_room(0, 32 << 10), pool.has_room(0, (32 << 10) + 1));
        assert_eq!(more, (true, false), "whole chunks count");
    }

    #[test]
    fn each_image_keeps_its_share_whatever_the_others_hold() {
        const IMAGES: usize = 4;
        let mut pool = Pool::new(256 << 10).shared_by(IMAGES);
        let mut chunks = Vec::new();
        while pool.has_room(3, SMALL_BYTES) {
            chunks.push(pool.take_for(3, SMALL_BYTES));
        }
        assert_eq!(pool.used_bytes(), (128 + 32) << 10, "its share, and all that is common");
        assert!(pool.take_refused());
        for image in 0..3 {
            assert!(pool.has_room(image, 32 << 10) && !pool.has_room(image, 64 << 10));
            chunks.push(pool.take_for(image, 32 << 10));
            assert!(!pool.has_room(image, SMALL_BYTES));
        }
        assert_eq!(pool.used_bytes(), 256 << 10);
        chunks.drain(..8).for_each(|chunk| pool.give_back(chunk));
        assert!(pool.has_room(0, 32 << 10) && !pool.has_room(0, 64 << 10), "common again");
        chunks.into_iter().for_each(|chunk| pool.give_back(chunk));
        assert_eq!((pool.used_bytes(), pool.beyond_bytes), (0, 0));
    }

    #[test]
    fn kept_memory_counts_toward_the_bound() {
        let mut pool = Pool::new(64 << 10);
        for len in [16 << 10, 32 << 10, 64 << 10] {
            let chunk = pool.take(len);
            assert!(pool.used_bytes + pool.free_bytes <= 64 << 10);
            pool.give_back(chunk);
            assert!(pool.free_bytes >= len && pool.free_bytes <= 64 << 10);
        }
        let chunks: Vec<Chunk> = (0..32).map(|_| pool.take(SMALL_BYTES)).collect();
        chunks.into_iter().for_each(|chunk| pool.give_back(chunk));
        assert_eq!(pool.free_bytes, 64 << 10, "not what went beyond the bound");
    }

    #[test]
    fn every_length_fits_its_class() {
        let mut pool = Pool::new(0);
        // An unaligned read of ublk on an image with blocks of 64 KiB, or with a page cache.
        let widest = 2 * PIECE_BYTES + 2 * (64 << 10);
        for len in [0, 1, 4096, 4097, 65536, PIECE_BYTES - 1, PIECE_BYTES, widest] {
            let chunk = pool.take(len);
            assert_eq!((chunk.data().len(), IoBuffer::len(&chunk)), (len, len));
            pool.give_back(chunk);
        }
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn bytes_that_a_short_read_did_not_fill_are_zeroed() {
        let mut pool = Pool::new(0);
        let mut chunk = pool.take(4096);
        chunk.data_mut().fill(7);
        chunk.zero_from(10);
        assert!(chunk.data()[..10].iter().all(|byte| *byte == 7));
        assert!(chunk.data()[10..].iter().all(|byte| *byte == 0));
    }
}
