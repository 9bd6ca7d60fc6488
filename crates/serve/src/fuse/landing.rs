//! Where requests land: their head, and the data of writes in memory that they are written from.

use super::wire::{HEAD_BYTES, REQUEST_BYTES_MAX};
use nowait_export::{Chunk, PIECE_BYTES, Pool};
use std::io::IoSliceMut;

/// Longest data of a request, in bytes.
pub(crate) const DATA_BYTES_MAX: usize = 1 << 20;
const CHUNKS: usize = DATA_BYTES_MAX / PIECE_BYTES;
/// What is copied out: shorter than this it is not worth a chunk of [`PIECE_BYTES`].
const COPIED_BYTES: usize = 32 << 10;

/// Memory for the next request. Most of it is of the pool: [`Landing::give_back`].
#[derive(Debug)]
pub struct Landing {
    head: [u8; HEAD_BYTES],
    chunks: [Chunk; CHUNKS],
}

impl Landing {
    /// Takes its memory from `pool`.
    pub fn new(pool: &mut Pool) -> Landing {
        let chunks = core::array::from_fn(|_| pool.take(PIECE_BYTES));
        Landing { head: [0; HEAD_BYTES], chunks }
    }

    /// Returns where to read the next request to.
    pub fn slices(&mut self) -> [IoSliceMut<'_>; CHUNKS + 1] {
        let data = self.chunks.iter_mut().map(Chunk::data_mut);
        let mut all = core::iter::once(&mut self.head[..]).chain(data);
        core::array::from_fn(|_| IoSliceMut::new(all.next().unwrap_or_default()))
    }

    /// Returns the beginning of a request of `len` bytes: all of it, unless it is a write or longer
    /// than what is ever looked into.
    pub(crate) fn beginning(&self, len: usize) -> ([u8; REQUEST_BYTES_MAX], usize) {
        let mut bytes = [0; REQUEST_BYTES_MAX];
        let len = len.min(REQUEST_BYTES_MAX);
        let in_head = len.min(HEAD_BYTES);
        bytes[..in_head].copy_from_slice(&self.head[..in_head]);
        bytes[in_head..len].copy_from_slice(&self.chunks[0].data()[..len - in_head]);
        (bytes, len)
    }

    /// Takes out the first `len` bytes of the data of a write.
    pub(crate) fn take(&mut self, len: usize, pool: &mut Pool) -> Vec<Chunk> {
        if len < COPIED_BYTES {
            let mut chunk = pool.take(len);
            chunk.data_mut().copy_from_slice(&self.chunks[0].data()[..len]);
            return vec![chunk];
        }
        let mut left = len;
        let landed = self.chunks.iter_mut().take(len.div_ceil(PIECE_BYTES));
        let take = |chunk: &mut Chunk| {
            let bytes = left.min(PIECE_BYTES);
            left -= bytes;
            core::mem::replace(chunk, pool.take(PIECE_BYTES)).shortened(bytes)
        };
        landed.map(take).collect()
    }

    /// Gives its memory back.
    pub fn give_back(self, pool: &mut Pool) {
        self.chunks.into_iter().for_each(|chunk| pool.give_back(chunk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn data_are_taken_out_whole_whatever_their_length() {
        let mut pool = Pool::new(usize::MAX);
        let mut landing = Landing::new(&mut pool);
        let used = pool.used_bytes();
        for len in [1, 4096, COPIED_BYTES - 1, COPIED_BYTES, PIECE_BYTES + 1, DATA_BYTES_MAX] {
            let bytes: Vec<u8> = (0..HEAD_BYTES + len).map(|i| (i * 7 + len) as u8).collect();
            let count = (&bytes[..]).read_vectored(&mut landing.slices()).unwrap();
            assert_eq!(count, bytes.len());
            let (beginning, known) = landing.beginning(count);
            assert_eq!(beginning[..known], bytes[..known]);
            let taken = landing.take(len, &mut pool);
            let joined: Vec<u8> = taken.iter().flat_map(|chunk| chunk.data().to_vec()).collect();
            assert!(joined == bytes[HEAD_BYTES..], "{len}");
            taken.into_iter().for_each(|chunk| pool.give_back(chunk));
            assert_eq!(pool.used_bytes(), used, "{len}");
        }
        landing.give_back(&mut pool);
        assert_eq!(pool.used_bytes(), 0);
    }
}
