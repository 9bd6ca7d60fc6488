//! Reading, writing, syncing and describing files.

use crate::{Errno, Fd, sys, time::file_time_ns};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One segment of memory, laid out as the kernel's `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoVec {
    /// First byte of the segment.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: an IoVec is an address and a length; which threads may touch the memory, and until when,
// is promised by the request that carries it.
unsafe impl Send for IoVec {}
// SAFETY: as above; the type offers no access through a shared reference.
unsafe impl Sync for IoVec {}

/// Most segments in one request (`UIO_MAXIOV`).
pub const IOV_MAX: usize = 1024;

/// Flags of one request, as in `<linux/fs.h>`.
pub mod rwf {
    /// Poll for the completion (`RWF_HIPRI`).
    pub const HIPRI: u32 = 0x1;
    /// Data durable on completion (`RWF_DSYNC`).
    pub const DSYNC: u32 = 0x2;
    /// Data and metadata durable on completion (`RWF_SYNC`).
    pub const SYNC: u32 = 0x4;
    /// Fail with EAGAIN rather than wait (`RWF_NOWAIT`).
    pub const NOWAIT: u32 = 0x8;
    /// Write at the end of the file (`RWF_APPEND`).
    pub const APPEND: u32 = 0x10;
    /// Ignore O_APPEND for this write (`RWF_NOAPPEND`).
    pub const NOAPPEND: u32 = 0x20;
    /// The write is torn-free or fails (`RWF_ATOMIC`).
    pub const ATOMIC: u32 = 0x40;
    /// Drop the pages from the cache after the request (`RWF_DONTCACHE`).
    pub const DONTCACHE: u32 = 0x80;
    /// All flags of this list.
    pub const KNOWN: u32 = 0xff;
    /// The flags that all supported kernels know.
    pub const OLD: u32 = 0x1f;
}

/// The attributes of a file that requests need, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Device number of the file system.
    pub dev: u64,
    /// If the file is a block or character device: its device number.
    pub rdev: u64,
    /// Inode number.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: i64,
    /// Allocated space in units of 512 bytes.
    pub blocks: i64,
    /// The id of the mount through which the file was opened. The kernel never reuses an id;
    /// kernels before 6.8 and [`version`] report none.
    pub mount: Option<u64>,
}

impl Stat {
    /// Returns the file type bits (`S_IFMT`).
    pub fn file_type(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// Returns the number of the device that holds the file's data.
    pub fn device(&self) -> u64 {
        if self.is_block_device() { self.rdev } else { self.dev }
    }

    /// Returns `true` if the file is read and written at offsets: a regular file or a block device.
    pub fn has_offsets(&self) -> bool {
        matches!(self.file_type(), libc::S_IFREG | libc::S_IFBLK)
    }

    /// Returns `true` if all descriptors of this inode mean the same file. Anonymous files
    /// (eventfds) and character devices (network tunnels) may share an inode.
    pub fn names_one_file(&self) -> bool {
        self.file_type() != 0 && self.file_type() != libc::S_IFCHR
    }

    /// Returns `true` if the file is a block device.
    pub fn is_block_device(&self) -> bool {
        self.file_type() == libc::S_IFBLK
    }

    /// Returns `true` if the file is a regular file.
    pub fn is_regular(&self) -> bool {
        self.file_type() == libc::S_IFREG
    }

    /// Returns `true` if the file is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == libc::S_IFDIR
    }

    /// Returns `true` if the file is a pipe or FIFO.
    pub fn is_pipe(&self) -> bool {
        self.file_type() == libc::S_IFIFO
    }

    /// Returns `true` if the file is a socket.
    pub fn is_socket(&self) -> bool {
        self.file_type() == libc::S_IFSOCK
    }

    /// Returns `true` for the devices that never run out of bytes: /dev/zero, /dev/full,
    /// /dev/random and /dev/urandom. Source: Linux Documentation/admin-guide/devices.txt.
    pub fn is_endless(&self) -> bool {
        const MEMORY_DEVICES: u32 = 1;
        self.file_type() == libc::S_IFCHR
            && libc::major(self.rdev) == MEMORY_DEVICES
            && matches!(libc::minor(self.rdev), 5 | 7 | 8 | 9)
    }

    /// Returns `true` if the file may have holes: it has fewer allocated bytes than its size.
    pub fn may_have_holes(&self) -> bool {
        self.blocks.saturating_mul(512) < self.size
    }
}

/// The attributes and times of a file, for finding out whether it has changed.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// The file's attributes.
    pub stat: Stat,
    mtime_ns: i64,
    ctime_ns: i64,
    /// The time at which these values were read, by the clock of file timestamps.
    looked_ns: i64,
}

impl Version {
    /// Returns `true` if the file's contents may have changed between this version and `later`.
    /// Also returns `true` if this version was read less than 20 ms after a change: a second change
    /// may have the same time.
    pub fn has_changed(&self, later: &Version) -> bool {
        const TICKS_NS: i64 = 20_000_000;
        let of = |version: &Version| (version.stat.size, version.mtime_ns, version.ctime_ns);
        let is_fresh = self.looked_ns - self.mtime_ns.max(self.ctime_ns) < TICKS_NS;
        of(self) != of(later) || is_fresh
    }
}

/// Reads into `iov` from `offset`, or from the stream's position for `offset` = -1. May block
/// unless `flags` has [`rwf::NOWAIT`]. Source: preadv2(2).
/// # Safety
/// Every segment must be writable for its length during the call.
#[inline]
pub unsafe fn preadv2(fd: i32, iov: &[IoVec], offset: i64, flags: u32) -> Result<usize, Errno> {
    // SAFETY: `iov` is a live slice; the segments are the caller's promise.
    unsafe {
        // Without flags the older calls are enough: some seccomp filters refuse preadv2.
        match (flags, offset) {
            (0, -1) => sys!(libc::SYS_readv, fd, iov.as_ptr(), iov.len()),
            (0, _) if iov.len() == 1 => {
                sys!(libc::SYS_pread64, fd, iov[0].base, iov[0].len, offset)
            }
            (0, _) => sys!(libc::SYS_preadv, fd, iov.as_ptr(), iov.len(), offset, offset >> 63),
            _ => sys!(libc::SYS_preadv2, fd, iov.as_ptr(), iov.len(), offset, offset >> 63, flags),
        }
    }
}

/// Writes `iov` at `offset`, or at the stream's position for `offset` = -1. May block unless
/// `flags` has [`rwf::NOWAIT`]. Source: pwritev2(2).
/// # Safety
/// Every segment must be readable for its length during the call.
#[inline]
pub unsafe fn pwritev2(fd: i32, iov: &[IoVec], offset: i64, flags: u32) -> Result<usize, Errno> {
    // SAFETY: `iov` is a live slice; the segments are the caller's promise.
    unsafe {
        match (flags, offset) {
            (0, -1) => sys!(libc::SYS_writev, fd, iov.as_ptr(), iov.len()),
            (0, _) if iov.len() == 1 => {
                sys!(libc::SYS_pwrite64, fd, iov[0].base, iov[0].len, offset)
            }
            (0, _) => sys!(libc::SYS_pwritev, fd, iov.as_ptr(), iov.len(), offset, offset >> 63),
            _ => sys!(libc::SYS_pwritev2, fd, iov.as_ptr(), iov.len(), offset, offset >> 63, flags),
        }
    }
}

/// Returns `true` if the kernel knows `RWF_NOAPPEND` (Linux 6.9); tries it on a file in memory.
pub fn can_choose_append() -> bool {
    let mut byte = 0u8;
    let Ok(file) = memory_file() else { return false };
    let one = IoVec { base: &raw mut byte, len: 1 };
    // SAFETY: the byte is a live local.
    unsafe { pwritev2(file.raw(), &[one], 0, rwf::NOAPPEND) }.is_ok()
}

/// Returns the flags of a transfer that the running kernel knows; before Linux 6.9 only
/// [`rwf::OLD`]. If it cannot ask the kernel, returns [`rwf::KNOWN`].
pub fn known_flags() -> u32 {
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    let known = KNOWN.load(Relaxed);
    if known != 0 {
        return known;
    }
    let Ok(file) = memory_file() else { return rwf::KNOWN };
    let knows = |flag: &u32| ask_impossible(file.raw(), false, 0, *flag) == Err(Errno::INVAL);
    let newer = (rwf::OLD.count_ones()..u32::BITS).map(|bit| 1 << bit).filter(knows);
    let known = newer.fold(rwf::OLD, |known, flag| known | flag);
    KNOWN.store(known, Relaxed);
    known
}

/// Returns `true` if the kernel's AIO refuses transfers on the file because its driver has plain
/// read or write calls only (no `read_iter` or `write_iter`). Before Linux 6.9 it always returns
/// `false`.
pub fn lacks_iterator(fd: i32, writes: bool) -> bool {
    const POSITION: i64 = -1;
    if known_flags() & rwf::NOAPPEND == 0 {
        return false;
    }
    let asked = match ask_impossible(fd, writes, 0, 0) {
        Err(Errno::SPIPE) => ask_impossible(fd, writes, POSITION, 0),
        asked => asked,
    };
    match asked {
        Err(Errno::OPNOTSUPP) => true,
        // A driver without any call for the transfer refuses even a transfer of zero bytes.
        Err(Errno::INVAL) => {
            // SAFETY: there is no segment.
            let nothing = unsafe {
                match writes {
                    true => pwritev2(fd, &[], POSITION, 0),
                    false => preadv2(fd, &[], POSITION, 0),
                }
            };
            nothing == Err(Errno::INVAL)
        }
        _ => false,
    }
}

/// Asks for a transfer with `flags` and with the two flags for and against appending. `EOPNOTSUPP`:
/// the kernel does not know one of the flags, or the file's driver takes no flags at all. `EINVAL`:
/// the kernel knows all of them, and the two exclude each other.
fn ask_impossible(fd: i32, writes: bool, offset: i64, flags: u32) -> Result<usize, Errno> {
    let mut byte = 0u8;
    let part = [IoVec { base: &raw mut byte, len: 1 }];
    let flags = flags | rwf::APPEND | rwf::NOAPPEND;
    // SAFETY: room for the one byte.
    unsafe {
        match writes {
            true => pwritev2(fd, &part, offset, flags),
            false => preadv2(fd, &part, offset, flags),
        }
    }
}

fn memory_file() -> Result<Fd, Errno> {
    // SAFETY: the name is a live string; the new descriptor is owned here alone.
    let made = unsafe { sys!(libc::SYS_memfd_create, c"nowait".as_ptr(), libc::MFD_CLOEXEC) };
    made.map(|fd| Fd::from_raw(fd as i32))
}

/// Reads by preadv(2), or by readv(2) for `offset` = -1.
///
/// # Safety
/// Every segment must be writable for its length during the call.
pub unsafe fn preadv(fd: i32, iov: &[IoVec], offset: i64) -> Result<usize, Errno> {
    if offset == -1 {
        // SAFETY: `iov` is a live slice; the segments are the caller's promise.
        return unsafe { sys!(libc::SYS_readv, fd, iov.as_ptr(), iov.len()) };
    }
    // SAFETY: as above.
    unsafe { sys!(libc::SYS_preadv, fd, iov.as_ptr(), iov.len(), offset, offset >> 63) }
}

/// Writes by pwritev(2), or by writev(2) for `offset` = -1.
///
/// # Safety
/// Every segment must be readable for its length during the call.
pub unsafe fn pwritev(fd: i32, iov: &[IoVec], offset: i64) -> Result<usize, Errno> {
    if offset == -1 {
        // SAFETY: `iov` is a live slice; the segments are the caller's promise.
        return unsafe { sys!(libc::SYS_writev, fd, iov.as_ptr(), iov.len()) };
    }
    // SAFETY: as above.
    unsafe { sys!(libc::SYS_pwritev, fd, iov.as_ptr(), iov.len(), offset, offset >> 63) }
}

/// Makes data and metadata of the file durable; blocks. Source: fsync(2).
pub fn fsync(fd: i32) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_fsync, fd) }.map(drop)
}

/// Makes the data of the file durable; blocks. Source: fdatasync(2).
pub fn fdatasync(fd: i32) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_fdatasync, fd) }.map(drop)
}

/// Returns the status flags of the open file (O_DIRECT, O_APPEND, …). Source: fcntl(2), F_GETFL.
#[inline]
pub fn status_flags(fd: i32) -> Result<i32, Errno> {
    // SAFETY: F_GETFL takes no pointer.
    unsafe { sys!(libc::SYS_fcntl, fd, libc::F_GETFL) }.map(|flags| flags as i32)
}

/// Makes calls on the open file return `EAGAIN` instead of waiting, for all its users. Source:
/// fcntl(2), F_SETFL.
///
/// # Errors
/// `EBADF`: not open.
pub fn set_nonblocking(fd: i32) -> Result<(), Errno> {
    let flags = status_flags(fd)? | libc::O_NONBLOCK;
    // SAFETY: fcntl with F_SETFL takes no pointer.
    unsafe { sys!(libc::SYS_fcntl, fd, libc::F_SETFL, flags) }.map(drop)
}

const NS: i64 = 1_000_000_000;

/// Describes the file behind `fd`, without its times.
///
/// Since Linux 6.13 the next write after a read of the times gives them a new value, and so changes
/// the inode in the journal. Reading the times before each direct write doubles the time of the
/// write. Source: statx(2); "multigrain timestamps", Linux Documentation/filesystems.
#[inline]
pub fn stat(fd: i32) -> Result<Stat, Errno> {
    match extended(fd, libc::AT_EMPTY_PATH) {
        Ok(st) => Ok(Stat::from(&st)),
        // Kernels before 4.11, and sandboxes that know no newer call.
        Err(Errno::NOSYS | Errno::PERM) => version(fd).map(|version| version.stat),
        Err(errno) => Err(errno),
    }
}

/// Describes the file behind `fd` from the kernel's caches: a network or FUSE file system does not
/// ask its server if it has cached the attributes. Source: statx(2), AT_STATX_DONT_SYNC.
pub fn stat_cached(fd: i32) -> Result<Stat, Errno> {
    extended(fd, libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC).map(|st| Stat::from(&st))
}

/// Returns the number of the file's names (hard links), from the kernel's caches. Source: statx(2).
pub fn links(fd: i32) -> Result<u32, Errno> {
    extended(fd, libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC).map(|st| st.stx_nlink)
}

/// Returns `true` if the file supports atomic writes (RWF_ATOMIC): since Linux 6.11, on some
/// devices and file systems.
pub fn takes_atomic_writes(fd: i32) -> bool {
    const STATX_ATTR_WRITE_ATOMIC: u64 = 0x40_0000;
    let asked = extended_by(fd, libc::AT_EMPTY_PATH, STATX_WRITE_ATOMIC);
    asked.is_ok_and(|st| st.stx_attributes & STATX_ATTR_WRITE_ATOMIC != 0)
}

const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
const STATX_WRITE_ATOMIC: u32 = 0x1_0000;

fn extended(fd: i32, flags: i32) -> Result<libc::statx, Errno> {
    const STAT: u32 = libc::STATX_TYPE
        | libc::STATX_MODE
        | libc::STATX_NLINK
        | libc::STATX_INO
        | libc::STATX_SIZE
        | libc::STATX_BLOCKS
        | STATX_MNT_ID_UNIQUE;
    extended_by(fd, flags, STAT)
}

fn extended_by(fd: i32, flags: i32, mask: u32) -> Result<libc::statx, Errno> {
    let mut st = core::mem::MaybeUninit::<libc::statx>::uninit();
    let empty = c"";
    // SAFETY: the path is a live empty string, `st` a live local of the type the call fills.
    unsafe { sys!(libc::SYS_statx, fd, empty.as_ptr(), flags, mask, st.as_mut_ptr()) }?;
    // SAFETY: the call succeeded, so the kernel filled all of it.
    Ok(unsafe { st.assume_init() })
}

impl From<&libc::statx> for Stat {
    fn from(st: &libc::statx) -> Stat {
        Stat {
            dev: libc::makedev(st.stx_dev_major, st.stx_dev_minor),
            rdev: libc::makedev(st.stx_rdev_major, st.stx_rdev_minor),
            ino: st.stx_ino,
            mode: st.stx_mode.into(),
            size: st.stx_size as i64,
            blocks: st.stx_blocks as i64,
            mount: (st.stx_mask & STATX_MNT_ID_UNIQUE != 0).then_some(st.stx_mnt_id),
        }
    }
}

/// Describes the file behind `fd` with its times. Source: fstat(2).
pub fn version(fd: i32) -> Result<Version, Errno> {
    // The clock is read before fstat: a change after fstat has a later time, or the same.
    let looked_ns = file_time_ns();
    let mut st = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `st` is a live local of the type the call fills.
    unsafe { sys!(libc::SYS_fstat, fd, st.as_mut_ptr()) }?;
    // SAFETY: the call succeeded, so the kernel filled all of it.
    let st = unsafe { st.assume_init() };
    let stat = Stat {
        dev: st.st_dev,
        rdev: st.st_rdev,
        ino: st.st_ino,
        mode: st.st_mode,
        size: st.st_size,
        blocks: st.st_blocks,
        mount: None,
    };
    let mtime_ns = st.st_mtime * NS + st.st_mtime_nsec;
    let ctime_ns = st.st_ctime * NS + st.st_ctime_nsec;
    Ok(Version { stat, mtime_ns, ctime_ns, looked_ns })
}

/// Opens the file behind `fd` anew, with `flags`: a new open file, for which the kernel checks the
/// permissions again. May block.
///
/// # Errors
/// As for open(2). `EACCES`, `EROFS`, `ETXTBSY`: not for writing. `EINVAL`: no direct I/O.
/// `ENOENT`: no /proc here.
/// Source: proc(5), /proc/pid/fd. The path names the thread, because the folder of the process is
/// empty after its main thread has ended.
pub fn reopen(fd: i32, flags: i32) -> Result<Fd, Errno> {
    let path = format!("/proc/thread-self/fd/{fd}\0");
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero byte and lives to the end of the call.
    let new = unsafe { sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) }?;
    Ok(Fd::from_raw(new as i32))
}

/// Sets the file's size in bytes; may block. Source: ftruncate(2).
pub fn set_len(fd: i32, len: u64) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_ftruncate, fd, len) }.map(drop)
}

/// Returns the magic number of the file system that holds the file. Source: fstatfs(2).
pub fn filesystem_magic(fd: i32) -> Result<u32, Errno> {
    let mut st = core::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `st` is a live local of the type the call fills.
    unsafe { sys!(libc::SYS_fstatfs, fd, st.as_mut_ptr()) }?;
    // SAFETY: the call succeeded, so the kernel filled all of it.
    Ok(unsafe { st.assume_init() }.f_type as u32)
}

/// A program's advice about its access to a file, as in posix_fadvise(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No special pattern: the kernel reads ahead of sequential reads.
    Normal,
    /// Random access: the kernel reads nothing ahead.
    Random,
    /// Sequential access: the kernel reads far ahead.
    Sequential,
    /// The program needs the range soon: the kernel begins to read it.
    WillNeed,
    /// The program does not need the range: the kernel may drop its clean pages.
    DontNeed,
}

impl Advice {
    #[doc(hidden)]
    pub fn from_raw(advice: i32) -> Option<Advice> {
        Some(match advice {
            libc::POSIX_FADV_NORMAL => Advice::Normal,
            libc::POSIX_FADV_RANDOM => Advice::Random,
            libc::POSIX_FADV_SEQUENTIAL => Advice::Sequential,
            libc::POSIX_FADV_WILLNEED => Advice::WillNeed,
            libc::POSIX_FADV_DONTNEED => Advice::DontNeed,
            _ => return None,
        })
    }
}

/// Tells the kernel about access to `len` bytes from `offset`; a `len` of 0 means up to the end.
/// `WillNeed` may block for memory, metadata or request tags, not for the data. Source:
/// posix_fadvise(2).
pub fn advise(fd: i32, offset: u64, len: u64, advice: Advice) -> Result<(), Errno> {
    let advice = match advice {
        Advice::Normal => libc::POSIX_FADV_NORMAL,
        Advice::Random => libc::POSIX_FADV_RANDOM,
        Advice::Sequential => libc::POSIX_FADV_SEQUENTIAL,
        Advice::WillNeed => libc::POSIX_FADV_WILLNEED,
        Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
    };
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_fadvise64, fd, offset, len, advice) }.map(drop)
}

/// Writes append to the file.
pub const O_APPEND: i32 = libc::O_APPEND;
/// Direct I/O.
pub const O_DIRECT: i32 = libc::O_DIRECT;
/// Writes are durable when they end (`O_SYNC` includes this bit).
pub const O_DSYNC: i32 = libc::O_DSYNC;
/// Data and metadata are durable when a write ends.
pub const O_SYNC: i32 = libc::O_SYNC;
/// Calls on a stream fail with EAGAIN rather than wait.
pub const O_NONBLOCK: i32 = libc::O_NONBLOCK;
/// Only a reference to the file's name, without access to its contents.
pub const O_PATH: i32 = libc::O_PATH;
/// The access mode bits.
pub const O_ACCMODE: i32 = libc::O_ACCMODE;
/// Read only.
pub const O_RDONLY: i32 = libc::O_RDONLY;
/// Read and write.
pub const O_RDWR: i32 = libc::O_RDWR;
/// Write only.
pub const O_WRONLY: i32 = libc::O_WRONLY;
/// Create the file if it is missing.
pub const O_CREAT: i32 = libc::O_CREAT;
/// Fail if the file exists.
pub const O_EXCL: i32 = libc::O_EXCL;
/// Truncate the file to zero bytes.
pub const O_TRUNC: i32 = libc::O_TRUNC;
/// Close at exec.
pub const O_CLOEXEC: i32 = libc::O_CLOEXEC;
/// Do not make it the controlling terminal.
pub const O_NOCTTY: i32 = libc::O_NOCTTY;
/// Fail if the last part of the path is a symbolic link.
pub const O_NOFOLLOW: i32 = libc::O_NOFOLLOW;
/// Leave the time of the last access alone.
pub const O_NOATIME: i32 = libc::O_NOATIME;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    };

    fn unnamed() -> std::fs::File {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        options.open(std::env::temp_dir()).unwrap()
    }

    #[test]
    fn a_version_tells_what_changed_and_what_may_have() {
        const S: i64 = 1_000_000_000;
        let stat = stat(0).unwrap();
        let at = |size, mtime_ns, looked_ns| {
            let stat = Stat { size, ..stat };
            Version { stat, mtime_ns, ctime_ns: mtime_ns, looked_ns }
        };
        let old = at(1, S, 2 * S);
        assert!(!old.has_changed(&at(1, S, 3 * S)));
        assert!(old.has_changed(&at(2, S, 3 * S)) && old.has_changed(&at(1, S + 1, 3 * S)));
        let fresh = at(1, S, S + 1);
        assert!(fresh.has_changed(&at(1, S, 3 * S)));
        assert!(at(1, 3 * S, S).has_changed(&at(1, 3 * S, S)), "a clock that was set back");
    }

    #[test]
    fn a_look_without_times_sees_the_same_file() {
        let file = unnamed();
        file.write_all_at(&[7; 5000], 0).unwrap();
        let folder = std::fs::File::open("/").unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let numbers = [file.as_raw_fd(), folder.as_raw_fd(), null.as_raw_fd(), stream.as_raw_fd()];
        for fd in numbers {
            let without = Stat { mount: None, ..stat(fd).unwrap() };
            assert_eq!(without, version(fd).unwrap().stat);
        }
        assert_eq!(stat(file.as_raw_fd()).unwrap().size, 5000);
        assert_eq!(stat(-1), Err(Errno::BADF));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn flags_are_those_of_the_running_kernel_and_drivers_of_plain_calls_are_found() {
        let known = known_flags();
        assert_eq!((known & rwf::OLD, known & 1 << 31), (rwf::OLD, 0), "{known:#x}");
        assert_eq!(known & rwf::NOAPPEND != 0, can_choose_append());
        if known & rwf::NOAPPEND == 0 {
            return;
        }
        let file = unnamed();
        let counter = crate::eventfd::EventFd::new().unwrap();
        let maps = std::fs::File::open("/proc/self/maps").unwrap();
        let mounts = std::fs::File::options().read(true).write(true).open("/proc/self/mountinfo");
        assert!(mounts.is_err() || mounts.is_ok_and(|it| lacks_iterator(it.as_raw_fd(), true)));
        assert!(lacks_iterator(counter.raw(), true) && lacks_iterator(maps.as_raw_fd(), false));
        assert!(!lacks_iterator(counter.raw(), false), "it can be read");
        for writes in [false, true] {
            assert!(!lacks_iterator(file.as_raw_fd(), writes));
        }
        assert_eq!(file.metadata().unwrap().len(), 0, "nothing is written");
    }

    #[test]
    fn another_length_or_time_is_another_version() {
        let file = unnamed();
        let fd = file.as_raw_fd();
        let before = Version { looked_ns: i64::MAX, ..version(fd).unwrap() };
        assert!(!before.has_changed(&version(fd).unwrap()));
        file.write_all_at(b"more", 0).unwrap();
        assert!(before.has_changed(&version(fd).unwrap()));
    }
}
