//! Sparse files: finds the parts that hold data, and makes and fills holes.

use crate::{Errno, sys};

/// The way to zero a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// A hole: the file system frees the space.
    Hole,
    /// Zeroes, with space allocated for them.
    Allocated,
}

/// Zeroes a range and keeps the size. May block.
///
/// # Errors
/// `EOPNOTSUPP`: not on this file system or device. `EPERM`: sealed or append only. `EBADF`: not
/// open for writing. `ENOSPC`, `EIO`. Source: fallocate(2), FALLOC_FL_PUNCH_HOLE,
/// FALLOC_FL_ZERO_RANGE.
pub fn zero(fd: i32, offset: u64, len: u64, zeroing: Zeroing) -> Result<(), Errno> {
    let mode = libc::FALLOC_FL_KEEP_SIZE
        | match zeroing {
            Zeroing::Hole => libc::FALLOC_FL_PUNCH_HOLE,
            Zeroing::Allocated => libc::FALLOC_FL_ZERO_RANGE,
        };
    loop {
        // SAFETY: no memory is involved.
        match unsafe { sys!(libc::SYS_fallocate, fd, mode, offset, len) } {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// Allocates the first `len` bytes of a file, and lengthens a shorter file. May block.
///
/// # Errors
/// `EOPNOTSUPP`: not on this file system. `ENOSPC`, `EFBIG`, `EIO`. `EBADF`: not open for writing.
/// Source: fallocate(2), mode 0.
pub fn allocate(fd: i32, len: u64) -> Result<(), Errno> {
    loop {
        // SAFETY: no memory is involved.
        match unsafe { sys!(libc::SYS_fallocate, fd, 0, 0, len) } {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// Returns the offset of the first data at or after `offset`; `None`: no data up to the end. Moves
/// the file's position. Source: lseek(2), SEEK_DATA.
///
/// # Errors
/// `EINVAL`: the file does not support the search.
pub fn next_data(fd: i32, offset: u64) -> Result<Option<u64>, Errno> {
    seek(fd, offset, libc::SEEK_DATA)
}

/// Returns the offset of the first hole at or after `offset`, the end of the file at the latest;
/// `None`: `offset` is beyond the end. Moves the file's position. Source: lseek(2), SEEK_HOLE.
///
/// # Errors
/// `EINVAL`: the file does not support the search.
pub fn next_hole(fd: i32, offset: u64) -> Result<Option<u64>, Errno> {
    seek(fd, offset, libc::SEEK_HOLE)
}

/// Returns the size in bytes of a file or device. Moves the file's position. Source: lseek(2).
///
/// # Errors
/// `ESPIPE`: a stream.
pub fn size(fd: i32) -> Result<u64, Errno> {
    seek(fd, 0, libc::SEEK_END).map(|size| size.unwrap_or(0))
}

fn seek(fd: i32, offset: u64, whence: i32) -> Result<Option<u64>, Errno> {
    // SAFETY: no memory is involved.
    match unsafe { sys!(libc::SYS_lseek, fd, offset, whence) } {
        Ok(found) => Ok(Some(found as u64)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::memory_file;

    #[test]
    fn a_punched_range_is_a_hole_between_data() {
        let file = memory_file(&[7; 16384]).unwrap();
        let fd = file.raw();
        assert_eq!(size(fd), Ok(16384));
        zero(fd, 4096, 8192, Zeroing::Hole).unwrap();
        assert_eq!((next_data(fd, 0), next_hole(fd, 0)), (Ok(Some(0)), Ok(Some(4096))));
        assert_eq!((next_data(fd, 5000), next_hole(fd, 12288)), (Ok(Some(12288)), Ok(Some(16384))));
        assert_eq!((next_data(fd, 16384), next_hole(fd, 16384)), (Ok(None), Ok(None)));
        assert_eq!(size(fd), Ok(16384));
    }

    #[test]
    fn an_allocated_file_has_its_size() {
        let file = memory_file(b"").unwrap();
        allocate(file.raw(), 8192).unwrap();
        assert_eq!(size(file.raw()), Ok(8192));
    }
}
