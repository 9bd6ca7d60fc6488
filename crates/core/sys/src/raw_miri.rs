//! System calls under Miri.
//!
//! Miri cannot run the system call instruction, so this module maps system calls to the functions
//! of the C library that Miri implements. Other calls fail with `ENOSYS`, and the callers use their
//! fallbacks.

use crate::Errno;
use core::ptr::{from_mut, null, with_exposed_provenance, with_exposed_provenance_mut};

/// Runs system call `nr` by Miri's functions; the result is as the kernel's, negative errno
/// included.
///
/// # Safety
/// The arguments must be what the call expects; memory is read and written through them.
pub unsafe fn syscall6(nr: i64, args: [usize; 6]) -> isize {
    // SAFETY: promised by the caller.
    let transferred = unsafe { transfer(nr, args) };
    // SAFETY: as above.
    let done = transferred.or_else(|| unsafe { describe(nr, args) });
    // SAFETY: as above.
    let done = done.or_else(|| unsafe { wait(nr, args) });
    match done.or_else(|| of_threads(nr)) {
        Some(-1) => -(Errno::last().raw() as isize),
        Some(result) => result,
        None => -(libc::ENOSYS as isize),
    }
}

/// Under Miri no file supports the flags of preadv2 and pwritev2.
unsafe fn transfer(nr: i64, [fd, memory, len, offset, ..]: [usize; 6]) -> Option<isize> {
    let (fd, count, offset) = (fd as i32, len as i32, offset as i64);
    let bytes = with_exposed_provenance_mut::<libc::c_void>(memory);
    let segments = with_exposed_provenance::<libc::iovec>(memory);
    // SAFETY: promised by the caller of `syscall6`.
    Some(unsafe {
        match nr {
            libc::SYS_read => libc::read(fd, bytes, len),
            libc::SYS_write => libc::write(fd, bytes, len),
            libc::SYS_pread64 => libc::pread64(fd, bytes, len, offset),
            libc::SYS_pwrite64 => libc::pwrite64(fd, bytes, len, offset),
            libc::SYS_readv => libc::readv(fd, segments, count),
            libc::SYS_writev => libc::writev(fd, segments, count),
            libc::SYS_preadv => libc::preadv(fd, segments, count, offset),
            libc::SYS_pwritev => libc::pwritev(fd, segments, count, offset),
            libc::SYS_fsync => libc::fsync(fd) as isize,
            libc::SYS_fdatasync => libc::fdatasync(fd) as isize,
            libc::SYS_ftruncate => libc::ftruncate(fd, memory as i64) as isize,
            libc::SYS_preadv2 | libc::SYS_pwritev2 => -(libc::EOPNOTSUPP as isize),
            libc::SYS_fadvise64 => 0,
            _ => return None,
        }
    })
}

unsafe fn describe(nr: i64, [a, b, c, d, ..]: [usize; 6]) -> Option<isize> {
    let fd = a as i32;
    // SAFETY: promised by the caller of `syscall6`.
    let result = unsafe {
        match nr {
            libc::SYS_close => libc::close(fd),
            libc::SYS_fcntl => fcntl(fd, b as i32, c as i32),
            libc::SYS_fstat => fstat(fd, with_exposed_provenance_mut(b)),
            libc::SYS_fstatfs => {
                with_exposed_provenance_mut::<libc::statfs>(b).write(core::mem::zeroed());
                0
            }
            libc::SYS_eventfd2 => libc::eventfd(a as u32, b as i32),
            libc::SYS_pipe2 => libc::pipe2(with_exposed_provenance_mut(a), b as i32),
            libc::SYS_socketpair => {
                // Miri has stream sockets only, which are enough as long as no file is sent through
                // them.
                let kind = b as i32 & !libc::SOCK_SEQPACKET | libc::SOCK_STREAM;
                libc::socketpair(fd, kind, c as i32, with_exposed_provenance_mut(d))
            }
            libc::SYS_prlimit64 => {
                let limit = libc::rlimit { rlim_cur: u64::MAX, rlim_max: u64::MAX };
                with_exposed_provenance_mut::<libc::rlimit>(d).write(limit);
                0
            }
            _ => return None,
        }
    };
    Some(result as isize)
}

unsafe fn wait(nr: i64, [a, b, c, d, _, f]: [usize; 6]) -> Option<isize> {
    let fd = a as i32;
    // SAFETY: promised by the caller of `syscall6`.
    Some(unsafe {
        match nr {
            libc::SYS_futex => {
                let (word, until) = (with_exposed_provenance::<u32>(a), with_exposed_provenance(d));
                let until: *const libc::timespec = until;
                let (op, value) = (b as i32, c as u32);
                libc::syscall(nr, word, op, value, until, null::<u32>(), f as u32) as isize
            }
            libc::SYS_epoll_create1 => libc::epoll_create1(fd) as isize,
            libc::SYS_epoll_ctl => epoll_ctl(fd, b as i32, c as i32, with_exposed_provenance(d)),
            libc::SYS_epoll_pwait => {
                let events = with_exposed_provenance_mut(b);
                libc::epoll_wait(fd, events, c as i32, d as i32) as isize
            }
            libc::SYS_ppoll => ppoll(with_exposed_provenance_mut(a), with_exposed_provenance(c)),
            _ => return None,
        }
    })
}

/// Miri has no signals and no scheduler settings.
fn of_threads(nr: i64) -> Option<isize> {
    // SAFETY: no memory is involved.
    Some(unsafe {
        match nr {
            libc::SYS_gettid => libc::syscall(nr) as isize,
            libc::SYS_getpid => libc::getpid() as isize,
            libc::SYS_rt_sigprocmask | libc::SYS_rt_sigpending => 0,
            _ => return None,
        }
    })
}

/// Miri does not return the flags of a file, so regular files count as open for reading and
/// writing.
unsafe fn fcntl(fd: i32, command: i32, argument: i32) -> i32 {
    let mut found = core::mem::MaybeUninit::uninit();
    // SAFETY: the local is of the type that is filled.
    if command == libc::F_GETFL && unsafe { fstat(fd, found.as_mut_ptr()) } == 0 {
        // SAFETY: it was filled.
        let mode = unsafe { found.assume_init() }.st_mode;
        if mode & libc::S_IFMT == libc::S_IFREG {
            return libc::O_RDWR;
        }
    }
    // SAFETY: none of the commands in use takes a pointer.
    unsafe { libc::fcntl(fd, command, argument) }
}

unsafe fn fstat(fd: i32, to: *mut libc::stat) -> i32 {
    // SAFETY: plain data, for which zeroes are valid.
    let mut found: libc::statx = unsafe { core::mem::zeroed() };
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_BASIC_STATS);
    // SAFETY: the path is a constant, and the local of the type that is filled.
    let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, from_mut(&mut found)) };
    // SAFETY: plain data, for which zeroes are valid.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    stat.st_dev = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    stat.st_ino = found.stx_ino;
    stat.st_mode = found.stx_mode.into();
    stat.st_size = found.stx_size as i64;
    stat.st_blocks = found.stx_blocks as i64;
    // SAFETY: promised by the caller.
    unsafe { to.write(stat) };
    result
}

/// Miri reports edges only and has no one-shot mode: a thread that waits for a descriptor checks it
/// again after each event.
unsafe fn epoll_ctl(set: i32, op: i32, fd: i32, event: *const libc::epoll_event) -> isize {
    const KNOWN: i32 = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP;
    // SAFETY: promised by the caller.
    let mut event = unsafe { event.read_unaligned() };
    event.events = event.events & KNOWN as u32 | libc::EPOLLET as u32;
    // SAFETY: the event is a live local.
    unsafe { libc::epoll_ctl(set, op, fd, from_mut(&mut event)) as isize }
}

unsafe fn ppoll(asked: *mut libc::pollfd, timeout: *const libc::timespec) -> isize {
    // SAFETY: promised by the caller.
    let (fd, events) = unsafe { ((*asked).fd, (*asked).events) };
    // SAFETY: as above.
    let left = unsafe { timeout.as_ref() };
    let milliseconds = left.map_or(-1, |left| left.tv_sec * 1000 + left.tv_nsec / 1_000_000);
    let event = libc::epoll_event { events: events as u32, u64: 0 };
    let mut found = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: both events are live locals.
    let count = unsafe {
        let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw const event);
        let count = libc::epoll_wait(set, &raw mut found, 1, milliseconds as i32);
        libc::close(set);
        count
    };
    // SAFETY: promised by the caller.
    unsafe { (*asked).revents = found.events as i16 };
    count as isize
}
