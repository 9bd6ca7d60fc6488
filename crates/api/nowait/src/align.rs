//! The alignment that direct I/O needs.

use nowait_sys::{aligned::AlignedBuffer, file, file::IoVec, inspect};

/// The alignment of direct requests, in bytes; powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// The address of every buffer must be a multiple of this number.
    pub memory: usize,
    /// The offset, and the length of every buffer, must be multiples of this number.
    pub offset: usize,
}

/// An alignment that is enough for devices with logical blocks of at most 4 KiB.
const LARGEST: usize = 4096;
/// The smallest logical block of any device.
const SMALLEST: usize = 512;

impl Alignment {
    /// Asks the file system behind the O_DIRECT descriptor `fd`. If the file system does not
    /// answer, a read of 512 bytes decides between 512 and 4096; a descriptor that is not
    /// open for reading gets 4096.
    pub(crate) fn of(fd: i32, readable: bool) -> Alignment {
        match inspect::direct_alignment(fd) {
            Ok(Some(known)) => Alignment {
                memory: (known.memory as usize).max(1),
                offset: (known.offset as usize).max(1),
            },
            _ if readable && reads_small(fd) => Alignment::both(SMALLEST),
            _ => Alignment::both(LARGEST),
        }
    }

    fn both(bytes: usize) -> Alignment {
        Alignment { memory: bytes, offset: bytes }
    }

    /// `Err`: a sentence that says what is not aligned.
    pub(crate) fn check(self, offset: u64, segments: &[IoVec]) -> Result<(), String> {
        let lengths = segments.iter().map(|segment| ("length", segment.len as u64, self.offset));
        let filled = segments.iter().filter(|segment| segment.len > 0);
        let addresses = filled.map(|segment| ("address", segment.base as u64, self.memory));
        let first = core::iter::once(("offset", offset, self.offset));
        for (what, value, align) in first.chain(lengths).chain(addresses) {
            if value % align as u64 != 0 {
                return Err(format!(
                    "direct I/O on this file needs the {what} to be a multiple of {align} bytes, \
                     not {value:#x}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns `true` if a read of the 512 bytes at offset 512 succeeds: `false` also if the file ends
/// before.
fn reads_small(fd: i32) -> bool {
    let mut memory = AlignedBuffer::zeroed(LARGEST);
    // The address is aligned to the smallest block, but not to a larger one.
    let base = memory.as_mut_ptr().wrapping_add(SMALLEST);
    let segment = IoVec { base, len: SMALLEST };
    // SAFETY: the bytes from 512 to 1024 of 4096, in a live local.
    let read = unsafe { file::preadv2(fd, &[segment], SMALLEST as i64, 0) };
    read == Ok(SMALLEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(base: usize, len: usize) -> IoVec {
        IoVec { base: base as *mut u8, len }
    }

    #[test]
    fn the_first_thing_that_is_not_aligned_is_named() {
        let alignment = Alignment { memory: 4, offset: 512 };
        let check = |offset, base, len| alignment.check(offset, &[segment(base, len)]);
        assert_eq!(check(1024, 8, 512), Ok(()));
        assert!(check(5, 8, 512).unwrap_err().contains("offset to be a multiple of 512"));
        assert!(check(0, 8, 100).unwrap_err().contains("length to be a multiple of 512"));
        assert!(check(0, 6, 512).unwrap_err().contains("address to be a multiple of 4"));
    }
}
