//! Reads a file's bytes from the device of its file system, as they would be after a crash now.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// `_IOWR('f', 11, struct fiemap)` of linux/fs.h, for the 32 bytes of the header.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// Flags of extents without data on the device: unknown location, delayed allocation, unwritten.
const NOT_ON_DEVICE: u32 = 0x2 | 0x4 | 0x800;
const EXTENTS_MAX: usize = 256;

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS_MAX],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// Reads `length` bytes of `file`, without syncing, from the image that holds its file system.
///
/// # Errors
/// A part of the file has no place on the device yet, or a system call fails.
pub fn read_below(file: &File, image: &File, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    let mut next = 0;
    for extent in extents(file, length)? {
        if extent.flags & NOT_ON_DEVICE != 0 || extent.logical > next {
            return Err(io::Error::other(format!("byte {next} is not on the device")));
        }
        let end = length.min(extent.logical + extent.length);
        let part = &mut bytes[extent.logical as usize..end as usize];
        image.read_exact_at(part, extent.physical)?;
        next = end;
    }
    if next < length {
        return Err(io::Error::other(format!("byte {next} is not on the device")));
    }
    Ok(bytes)
}

fn extents(file: &File, length: u64) -> io::Result<Vec<Extent>> {
    let mut map = Box::new(Fiemap {
        start: 0,
        length,
        flags: 0, // no FIEMAP_FLAG_SYNC: only blocks on the device already count
        mapped_extents: 0,
        extent_count: EXTENTS_MAX as u32,
        reserved: 0,
        extents: [Extent::default(); EXTENTS_MAX],
    });
    // SAFETY: `map` is a live fiemap with room for the extents it announces.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *map) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(map.extents[..map.mapped_extents as usize].to_vec())
}
