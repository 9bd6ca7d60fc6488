//! Memory of the simulated application, and the data of its writes.

use nowait_block::Segments;
use nowait_sys::file::IoVec;

const ALIGN: usize = 4096;

/// Memory of one request, aligned for direct I/O. It must outlive the user of its segments.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Makes `len` bytes with the value 0xee.
    pub(crate) fn new(len: usize) -> Buffer {
        let room = if len == 0 { 0 } else { len + ALIGN };
        let bytes = vec![0xee; room];
        let address = bytes.as_ptr() as usize;
        Buffer { start: address.next_multiple_of(ALIGN) - address, bytes, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.len == 0 { &[] } else { &self.bytes[self.start..][..self.len] }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.len == 0 { &mut [] } else { &mut self.bytes[self.start..][..self.len] }
    }

    /// Splits the memory into at most `pieces` segments, which need not be aligned.
    pub(crate) fn segments(&mut self, pieces: usize) -> Segments {
        let len = self.len;
        let piece = len.div_ceil(pieces.clamp(1, len.max(1))).max(1);
        let base = self.as_mut_slice().as_mut_ptr();
        if piece >= len {
            return Segments::One(IoVec { base, len });
        }
        let starts = (0..len).step_by(piece);
        let cut = |at: usize| IoVec { base: base.wrapping_add(at), len: piece.min(len - at) };
        Segments::Many(starts.map(cut).collect())
    }
}

/// Fills `bytes` with the data of a write. Words of two writes, or of two places, nearly always
/// differ.
pub(crate) fn fill(id: u64, offset: u64, bytes: &mut [u8]) {
    let skip = (offset % 8) as usize;
    let mut at = 0;
    for word in offset / 8.. {
        let tag = (id << 24 | (word & 0xff_ffff)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let from = if at == 0 { skip } else { 0 };
        let len = (8 - from).min(bytes.len() - at);
        bytes[at..at + len].copy_from_slice(&tag.to_le_bytes()[from..from + len]);
        at += len;
        if at == bytes.len() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_the_buffer_in_order() {
        for (len, pieces) in [(1, 1), (1, 4), (10, 3), (4096, 7)] {
            let mut buffer = Buffer::new(len);
            let base = buffer.as_slice().as_ptr() as usize;
            assert!(base.is_multiple_of(ALIGN));
            let mut at = base;
            for segment in buffer.segments(pieces).as_slice() {
                assert_eq!(segment.base as usize, at);
                at += segment.len;
            }
            assert_eq!(at, base + len);
        }
    }

    #[test]
    fn the_content_depends_on_the_place_and_not_on_how_it_is_cut() {
        let mut whole = [0; 100];
        fill(7, 1003, &mut whole);
        let mut part = [0; 50];
        fill(7, 1020, &mut part);
        assert_eq!(whole[17..67], part);
        fill(8, 1020, &mut part);
        assert_ne!(whole[17..67], part);
    }
}
