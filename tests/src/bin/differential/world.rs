//! The files and memory of the cases, and the text of a result.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

use nowait_tests::aio::{self, ContextPointer, Event, Iocb};

pub(crate) const FILE_BYTES: usize = 16384;

pub(crate) struct World {
    pub(crate) readable: File,
    pub(crate) writable: File,
    pub(crate) both: File,
    pub(crate) direct: File,
    pub(crate) appending: File,
    /// Another file, for writes at large offsets: after such a write a library may no longer cache
    /// the file.
    pub(crate) far: File,
    pub(crate) folder: File,
    pub(crate) path_only: File,
    pub(crate) eventfd: File,
    pub(crate) nonblocking_reader: File,
    pub(crate) full_reader: File,
    pub(crate) pipe_writer: File,
    pub(crate) null: File,
    pub(crate) special: Vec<(&'static str, File)>,
    pub(crate) memory: u64,
    kept: RefCell<Vec<File>>,
}

impl World {
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join("file");
        std::fs::write(&path, vec![b'f'; FILE_BYTES]).expect("the file of the cases");
        let custom = |flags: i32| {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(flags);
            options
        };
        let open = |options: &mut OpenOptions| options.open(&path).expect("the file of the cases");
        let (silent, silent_writer) = pipe(libc::O_NONBLOCK);
        let (full_reader, mut pipe_writer) = pipe(0);
        pipe_writer.write_all(b"pipe").expect("a pipe takes four bytes");
        Self {
            readable: open(OpenOptions::new().read(true)),
            writable: open(OpenOptions::new().write(true)),
            both: open(OpenOptions::new().read(true).write(true)),
            direct: open(custom(libc::O_DIRECT).write(true)),
            appending: open(OpenOptions::new().append(true)),
            far: File::create(folder.join("far")).expect("a file"),
            folder: File::open(folder).expect("the folder"),
            path_only: open(&mut custom(libc::O_PATH)),
            eventfd: new_eventfd(),
            nonblocking_reader: silent,
            full_reader,
            pipe_writer,
            null: File::open("/dev/null").expect("/dev/null"),
            special: special(),
            memory: memory(libc::PROT_READ | libc::PROT_WRITE),
            kept: RefCell::new(vec![silent_writer]),
        }
    }

    pub(crate) fn keep(&self, files: impl IntoIterator<Item = File>) {
        self.kept.borrow_mut().extend(files);
    }

    pub(crate) fn iocb(&self, opcode: i16, file: &File) -> Iocb {
        let (fd, buffer) = (file.as_raw_fd(), self.memory);
        Iocb { data: 77, opcode, fd, buffer, bytes: 4096, ..Iocb::default() }
    }

    pub(crate) fn fsync(file: &File) -> Iocb {
        Iocb { data: 77, opcode: aio::FSYNC, fd: file.as_raw_fd(), ..Iocb::default() }
    }

    pub(crate) fn poll(file: &File, events: u64) -> Iocb {
        let fd = file.as_raw_fd();
        Iocb { data: 77, opcode: aio::POLL, fd, buffer: events, ..Iocb::default() }
    }

    pub(crate) fn reset(&self) {
        self.both.set_len(FILE_BYTES as u64).expect("its size");
        self.both.write_all_at(&[b'f'; FILE_BYTES], 0).expect("its bytes");
    }

    /// Reads the eventfd and returns its count; 0 if it has none. If `is_announced`, waits up to
    /// two seconds for a count, because the kernel writes an event to the ring before it signals
    /// the eventfd.
    pub(crate) fn counted(&self, is_announced: bool) -> u64 {
        let (fd, events) = (self.eventfd.as_raw_fd(), libc::POLLIN);
        let mut poll = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&raw mut poll, 1, if is_announced { 2000 } else { 0 }) };
        let mut count = [0; 8];
        let read = (&self.eventfd).read(&mut count);
        if read.is_ok() { u64::from_ne_bytes(count) } else { 0 }
    }
}

pub(crate) struct Owned(pub(crate) ContextPointer);

impl Owned {
    pub(crate) fn new(depth: i32) -> Self {
        let mut pointer = ptr::null_mut();
        // SAFETY: a live null pointer.
        let rc = unsafe { aio::io_setup(depth, &raw mut pointer) };
        assert_eq!(rc, 0, "io_setup({depth})");
        Self(pointer)
    }

    pub(crate) fn submit(&self, iocbs: &mut [Iocb]) -> i32 {
        let pointers: Vec<*mut Iocb> = iocbs.iter_mut().map(ptr::from_mut).collect();
        // SAFETY: live iocbs. Their buffers are memory that is never freed, or addresses that the
        // library must refuse.
        unsafe { aio::io_submit(self.0, pointers.len() as i64, pointers.as_ptr()) }
    }

    /// Reaps one event, if one comes within two seconds.
    pub(crate) fn reap(&self) -> Option<Event> {
        let mut event = Event::default();
        let limit = libc::timespec { tv_sec: 2, tv_nsec: 0 };
        // SAFETY: room for one event, a live timeout.
        let rc = unsafe { aio::io_getevents(self.0, 1, 1, &raw mut event, &raw const limit) };
        (rc == 1).then_some(event)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: from io_setup; a second destroy fails with EINVAL.
        unsafe { aio::io_destroy(self.0) };
    }
}

pub(crate) fn name(result: i64) -> String {
    const NAMES: [(i32, &str); 14] = [
        (libc::EPERM, "EPERM"),
        (libc::EINTR, "EINTR"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EFAULT, "EFAULT"),
        (libc::EINVAL, "EINVAL"),
        (libc::EFBIG, "EFBIG"),
        (libc::ESPIPE, "ESPIPE"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::EISDIR, "EISDIR"),
        (libc::EOVERFLOW, "EOVERFLOW"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EINPROGRESS, "EINPROGRESS"),
    ];
    let errno = NAMES.iter().find(|(errno, _)| i64::from(-errno) == result);
    errno.map_or_else(|| result.to_string(), |(_, name)| (*name).to_owned())
}

/// Gives this process a mount namespace of its own, where it may: `/proc/self/mountinfo` reports an
/// event to poll(2) at each mount, and other tests mount file systems.
fn own_mounts() {
    // SAFETY: of memory, the kernel reads only the paths.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) == 0 {
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            let made = libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), flags, ptr::null());
            assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        }
    }
}

fn special() -> Vec<(&'static str, File)> {
    own_mounts();
    const PATHS: [(&str, bool); 9] = [
        ("/dev/null", true),
        ("/dev/zero", true),
        ("/dev/full", true),
        ("/dev/kmsg", false),
        ("/proc/version", true),
        ("/proc/self/comm", true),
        ("/proc/self/oom_score_adj", true),
        ("/proc/self/mountinfo", true),
        ("/proc/sys/kernel/ostype", false),
    ];
    let open = |(path, writes)| {
        let mut options = OpenOptions::new();
        options.read(true).write(writes).custom_flags(libc::O_NONBLOCK);
        Some((path, options.open(path).ok()?))
    };
    PATHS.into_iter().filter_map(open).collect()
}

pub(crate) fn inotify() -> File {
    // SAFETY: a new descriptor, owned here alone.
    unsafe { File::from_raw_fd(libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC)) }
}

/// Size of [`large_memory`]. A read of this size takes longer than a time slice.
pub(crate) const LARGE_BYTES: usize = 100_000_000;

/// Returns `LARGE_BYTES` of new memory, which is never freed.
pub(crate) fn large_memory() -> u64 {
    map_bytes(LARGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, ANONYMOUS, -1)
}

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Returns 64 KiB of new memory, which is never freed.
pub(crate) fn memory(protection: i32) -> u64 {
    map(protection, ANONYMOUS, -1)
}

/// Returns a mapping of an empty file: all its pages are behind the end of the file.
pub(crate) fn behind_the_end() -> u64 {
    // SAFETY: the name is a string.
    let file = unsafe { libc::memfd_create(c"empty".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(file >= 0);
    map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file)
}

fn map(protection: i32, flags: i32, fd: RawFd) -> u64 {
    map_bytes(65536, protection, flags, fd)
}

fn map_bytes(bytes: usize, protection: i32, flags: i32, fd: RawFd) -> u64 {
    // SAFETY: a new mapping anywhere.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, fd, 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address as u64
}

fn pipe(flags: i32) -> (File, File) {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: room for two descriptors.
    let rc = unsafe { libc::pipe2(ends.as_mut_ptr(), flags | libc::O_CLOEXEC) };
    assert_eq!(rc, 0);
    // SAFETY: two new descriptors, owned here alone.
    unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) }
}

fn new_eventfd() -> File {
    // SAFETY: a new descriptor, owned here alone.
    unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) }
}
