//! Finds out which operations this system allows.

use crate::{
    Errno, Fd,
    confined::{self, Extra},
    fd, sys,
};
use core::ffi::CStr;
use std::io::Write;

pub use libc::{
    O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR, O_TMPFILE,
    O_TRUNC, O_WRONLY, S_IFBLK, S_IFDIR, S_IFREG,
};

/// Returns the soft and hard limit of locked memory in bytes (RLIMIT_MEMLOCK).
pub fn memlock_limit() -> (u64, u64) {
    fd::rlimit(libc::RLIMIT_MEMLOCK)
}

/// Returns the soft and hard limit of open descriptors (RLIMIT_NOFILE).
pub fn nofile_limit() -> (u64, u64) {
    fd::rlimit(libc::RLIMIT_NOFILE)
}

/// Opens `path` close-on-exec. Source: openat(2).
///
/// # Errors
/// As for openat(2). `EINVAL` or `EOPNOTSUPP`: also where O_DIRECT is not supported.
pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<Fd, Errno> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path is a live string with a terminating zero.
    unsafe { sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) }
        .map(|fd| Fd::from_raw(fd as i32))
}

/// Sets the status flags of the open file, O_DIRECT among them.
///
/// # Errors
/// `EINVAL`: O_DIRECT is not supported on this file. Source: fcntl(2), F_SETFL.
pub fn set_status_flags(fd: i32, flags: i32) -> Result<(), Errno> {
    // SAFETY: F_SETFL takes no pointer.
    unsafe { sys!(libc::SYS_fcntl, fd, libc::F_SETFL, flags) }.map(drop)
}

/// Removes the name `path`. Source: unlinkat(2).
pub fn unlink(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the path is a live string with a terminating zero.
    unsafe { sys!(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) }.map(drop)
}

/// Reads `path` to its end, lossily as text.
pub fn read_text(path: &CStr) -> Result<String, Errno> {
    let fd = open(path, libc::O_RDONLY, 0)?;
    let (mut bytes, mut len) = (Vec::new(), 0);
    loop {
        bytes.resize((2 * len).max(16 << 10), 0);
        let rest = &mut bytes[len..];
        // SAFETY: the rest of a live vector, with its length.
        match unsafe { sys!(libc::SYS_read, fd.raw(), rest.as_mut_ptr(), rest.len()) }? {
            0 => return Ok(String::from_utf8_lossy(&bytes[..len]).into_owned()),
            count => len += count,
        }
    }
}

/// Returns the device number of the whole disk to which `dev` belongs, and the number of requests
/// that the disk accepts: the tags of all its hardware queues. `None`: the disk has no tags, like a
/// device made of others; `dev` is no block device; or /sys cannot be read.
///
/// Source: Documentation/ABI/stable/sysfs-block, nr_requests; block/blk-mq-sysfs.c.
pub fn disk_of(dev: u64) -> Option<(u64, usize)> {
    const QUEUES_MAX: usize = 1024;
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    if major == 0 || confined::forbids(Extra::Devices) {
        return None; // not a block device, or a filter forbids the look
    }
    let read = |name: core::fmt::Arguments<'_>| Attribute::read((major, minor), name);
    let whole = if read(format_args!("partition")).is_some() { "../" } else { "" };
    let number = read(format_args!("{whole}dev"))?;
    let (major, minor) = number.text()?.split_once(':')?;
    let disk = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
    let queue = |index: &usize| read(format_args!("{whole}mq/{index}/nr_tags")).is_some();
    let queues = (0..QUEUES_MAX).take_while(queue).count();
    let tags: usize = read(format_args!("{whole}queue/nr_requests"))?.text()?.parse().ok()?;
    (queues > 0).then(|| (disk, tags.saturating_mul(queues)))
}

/// A one-word attribute of a block device in /sys. Reading an attribute takes no memory from the
/// heap: the allocator of a program that forks meanwhile may not expect another thread to allocate
/// (AddressSanitizer).
struct Attribute {
    bytes: [u8; 32],
    len: usize,
}

impl Attribute {
    fn read((major, minor): (u32, u32), name: core::fmt::Arguments<'_>) -> Option<Attribute> {
        let (mut path, mut bytes) = ([0; 96], [0; 32]);
        write!(&mut path[..], "/sys/dev/block/{major}:{minor}/{name}\0").ok()?;
        let fd = open(CStr::from_bytes_until_nul(&path).ok()?, libc::O_RDONLY, 0).ok()?;
        // SAFETY: a live local, with its length.
        let len = unsafe { sys!(libc::SYS_read, fd.raw(), bytes.as_mut_ptr(), bytes.len()) };
        Some(Attribute { bytes, len: len.ok()? })
    }

    fn text(&self) -> Option<&str> {
        core::str::from_utf8(&self.bytes[..self.len]).ok().map(str::trim)
    }
}

/// Returns the names in the folder `path`, without `.` and `..`. Source: getdents64(2).
pub fn names_in(path: &CStr) -> Result<Vec<String>, Errno> {
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    let folder = open(path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let (mut names, mut bytes) = (Vec::new(), [0u8; 4096]);
    loop {
        let (fd, buffer) = (folder.raw(), bytes.as_mut_ptr());
        // SAFETY: a live local with its length.
        let filled = unsafe { sys!(libc::SYS_getdents64, fd, buffer, bytes.len()) }?;
        let mut entries = &bytes[..filled];
        if entries.is_empty() {
            return Ok(names);
        }
        while entries.len() > NAME_AT {
            let length = u16::from_ne_bytes([entries[LENGTH_AT], entries[LENGTH_AT + 1]]).into();
            let (entry, rest) = entries.split_at(length);
            let name = entry[NAME_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
            if name != b"." && name != b".." {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
            entries = rest;
        }
    }
}

/// Replaces the whole content of the file behind `fd` by `text`. Made for small files of the
/// library: a concurrent reader may find the old end behind the new beginning. Source: pwrite(2),
/// ftruncate(2).
///
/// # Errors
/// As for the two calls. `ENOSPC`: also if not all bytes were written.
pub fn replace_content(fd: i32, text: &[u8]) -> Result<(), Errno> {
    // SAFETY: a live slice with its length.
    let written = unsafe { sys!(libc::SYS_pwrite64, fd, text.as_ptr(), text.len(), 0) }?;
    if written < text.len() {
        return Err(Errno::NOSPC);
    }
    crate::file::set_len(fd, text.len() as u64)
}

/// Creates a file in memory that holds `bytes`. Source: memfd_create(2).
///
/// # Errors
/// `ENOSYS`, `EPERM`: refused by kernel or seccomp. `EMFILE`: no descriptors left.
pub fn memory_file(bytes: &[u8]) -> Result<Fd, Errno> {
    let (name, flags) = (c"nowait-probe", libc::MFD_CLOEXEC);
    // SAFETY: the name is a live string with a terminating zero.
    let fd = unsafe { sys!(libc::SYS_memfd_create, name.as_ptr(), flags) }?;
    let fd = Fd::from_raw(fd as i32);
    // SAFETY: a live slice with its length.
    let written = unsafe { sys!(libc::SYS_write, fd.raw(), bytes.as_ptr(), bytes.len()) }?;
    if written == bytes.len() { Ok(fd) } else { Err(Errno::NOSPC) }
}

/// The alignment that O_DIRECT requires of requests on one file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    /// Alignment of the memory's address.
    pub memory: u32,
    /// Alignment of offset and length.
    pub offset: u32,
}

/// Asks the file system for the alignment of direct requests; `None` when it does not say (kernels
/// before 6.1, some file systems), or the file has no direct I/O. Source: statx(2), STATX_DIOALIGN.
pub fn direct_alignment(fd: i32) -> Result<Option<DirectAlignment>, Errno> {
    let mut st = core::mem::MaybeUninit::<libc::statx>::zeroed();
    let (empty, mask) = (c"", libc::STATX_DIOALIGN);
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: the path is a live empty string, `st` a live local of the type the call fills.
    unsafe { sys!(libc::SYS_statx, fd, empty.as_ptr(), flags, mask, st.as_mut_ptr()) }?;
    // SAFETY: zeroes are a valid statx, and the kernel filled it.
    let st = unsafe { st.assume_init() };
    let known = st.stx_mask & libc::STATX_DIOALIGN != 0 && st.stx_dio_offset_align != 0;
    Ok(known.then_some(DirectAlignment {
        memory: st.stx_dio_mem_align,
        offset: st.stx_dio_offset_align,
    }))
}

/// Returns `true` if the file at `path` has file capabilities (capabilities(7), "File
/// capabilities"): the loader then ignores LD_PRELOAD, as for set-user-id programs.
pub fn has_file_capabilities(path: &CStr) -> bool {
    let name = c"security.capability";
    // SAFETY: both strings are live and end with zero; a length of zero asks for the size only.
    unsafe { sys!(libc::SYS_getxattr, path.as_ptr(), name.as_ptr(), 0, 0) }.is_ok()
}

/// Calls io_uring_enter with the descriptor -1 and returns the error. The kernel returns `EBADF`
/// whatever its sysctl is, and `ENOSYS` if it has no io_uring; `EPERM` comes from a filter. If the
/// program's own filter may kill for the call, the function returns `EPERM` without the call.
pub fn uring_enter_nothing() -> Errno {
    if let Err(errno) = confined::check(Extra::Rings) {
        return errno;
    }
    // SAFETY: there is no ring behind -1, and no memory is named.
    unsafe { sys!(libc::SYS_io_uring_enter, -1isize, 0, 0, 0, 0, 0) }.err().unwrap_or(Errno::INVAL)
}

/// Returns the real and effective user of this process. Source: getuid(2).
pub fn user_ids() -> (u32, u32) {
    // SAFETY: no memory is involved.
    let real = unsafe { sys!(libc::SYS_getuid) }.unwrap_or(0) as u32;
    // SAFETY: no memory is involved.
    let effective = unsafe { sys!(libc::SYS_geteuid) }.unwrap_or(0) as u32;
    (real, effective)
}

/// Returns the real and effective group of this process. Source: getgid(2).
pub fn group_ids() -> (u32, u32) {
    // SAFETY: no memory is involved.
    let real = unsafe { sys!(libc::SYS_getgid) }.unwrap_or(0) as u32;
    // SAFETY: no memory is involved.
    let effective = unsafe { sys!(libc::SYS_getegid) }.unwrap_or(0) as u32;
    (real, effective)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;
    use std::ffi::CString;

    #[test]
    fn a_memory_file_holds_its_bytes() {
        let file = memory_file(b"nowait").unwrap();
        let mut bytes = [0u8; 8];
        let segment = crate::file::IoVec { base: bytes.as_mut_ptr(), len: bytes.len() };
        // SAFETY: the segment is a live local.
        let read = unsafe { crate::file::preadv2(file.raw(), &[segment], 0, 0) };
        assert_eq!((read, &bytes[..6]), (Ok(6), &b"nowait"[..]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no getdents64")]
    fn a_folder_is_listed_whole() {
        let folder = std::env::temp_dir().join(format!("nowait-names-{}", thread::process_id()));
        std::fs::create_dir(&folder).unwrap();
        let mut made: Vec<_> = (0..500).map(|number| format!("file-{number:03}")).collect();
        made.iter().for_each(|name| drop(std::fs::File::create(folder.join(name)).unwrap()));
        let path = CString::new(folder.as_os_str().as_encoded_bytes()).unwrap();
        let mut found = names_in(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        found.sort();
        made.sort();
        assert_eq!(found, made);
        assert_eq!(names_in(&path), Err(Errno::NOENT));
    }

    #[test]
    fn files_are_read_and_missing_ones_are_errors() {
        assert!(read_text(c"/proc/self/status").unwrap().contains("Name:"));
        assert_eq!(read_text(c"/proc/self/none"), Err(Errno::NOENT));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /sys")]
    fn a_disk_and_its_partitions_have_the_same_tags() {
        let folders = |path: &std::path::Path| {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let text = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let number = |folder: &std::path::Path| {
            let text = text(folder.join("dev"));
            let (major, minor) = text.trim().split_once(':')?;
            Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
        };
        for disk in folders("/sys/block".as_ref()) {
            let Some(dev) = number(&disk) else { continue };
            let queues = folders(&disk.join("mq")).len();
            let each = text(disk.join("queue/nr_requests")).trim().parse().unwrap_or(0);
            let expected = (queues * each > 0).then_some((dev, queues * each));
            assert_eq!(disk_of(dev), expected, "{}", disk.display());
            let parts = folders(&disk).into_iter().filter(|it| it.join("partition").exists());
            for part in parts.filter_map(|part| number(&part)) {
                assert_eq!(disk_of(part), expected, "a part of {}", disk.display());
            }
        }
        assert_eq!(disk_of(libc::makedev(0, 7)), None, "no device");
    }
}
