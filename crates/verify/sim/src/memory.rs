//! The memory of bios: the only `unsafe` code of this library.

use nowait_block::Segments;
use nowait_sys::{Errno, file::IoVec};

/// Copies the data of a write, up to the first segment with an invalid address.
pub(crate) fn gather(segments: &Segments) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(segments.len());
    for segment in filled(segments) {
        if !is_address(segment) {
            return if bytes.is_empty() { Err(Errno::FAULT) } else { Ok(bytes) };
        }
        // SAFETY: the segment is valid for reads until the completion, see `Bio::new`.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(segment.base, segment.len) });
    }
    Ok(bytes)
}

/// Copies the data of a read to its memory, up to the first segment with an invalid address.
pub(crate) fn scatter(mut bytes: &[u8], segments: &Segments) -> Result<u32, Errno> {
    let mut total = 0;
    for segment in filled(segments) {
        if bytes.is_empty() {
            break;
        }
        if !is_address(segment) {
            return if total == 0 { Err(Errno::FAULT) } else { Ok(total) };
        }
        let (part, rest) = bytes.split_at(segment.len.min(bytes.len()));
        // SAFETY: the segment is valid for writes until the completion, see `Bio::new`, and
        // cannot overlap with the device's own bytes.
        unsafe { segment.base.copy_from(part.as_ptr(), part.len()) };
        total += part.len() as u32;
        bytes = rest;
    }
    Ok(total)
}

pub(crate) fn is_aligned(segments: &Segments, align: usize) -> bool {
    filled(segments).all(|one| one.len.is_multiple_of(align) && one.base.addr().is_multiple_of(512))
}

fn filled(segments: &Segments) -> impl Iterator<Item = &IoVec> {
    segments.as_slice().iter().filter(|segment| segment.len > 0)
}

/// Returns `false` for the invalid addresses that tests use.
fn is_address(segment: &IoVec) -> bool {
    segment.len < isize::MAX as usize
        && (4096..isize::MAX as usize - segment.len).contains(&segment.base.addr())
}
