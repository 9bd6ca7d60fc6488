//! Two files, a context, and the results of one row.

use std::ffi::CString;
use std::io::Error;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::request::{Context, Request};

pub(crate) const BLOCK: usize = 4096;
/// Size of a request that is too large to be copied inline in the submission.
pub(crate) const LARGE: usize = 512 << 10;
const FILE_BYTES: usize = 64 << 10;
/// Number of requests before the change, from which the library may remember state.
const BEFORE: usize = 4;

pub(crate) struct Stage<'a> {
    folder: PathBuf,
    pub(crate) mode: i32,
    context: &'a Context,
    open: Vec<RawFd>,
    outcome: Vec<String>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(folder: &Path, mode: i32, context: &'a Context) -> Self {
        for letter in ["a", "b"] {
            let bytes = letter.repeat(FILE_BYTES);
            std::fs::write(folder.join(letter), bytes).expect("the files of the row");
        }
        Self { folder: folder.to_owned(), mode, context, open: Vec::new(), outcome: Vec::new() }
    }

    pub(crate) fn outcome(mut self) -> String {
        let files = [self.contents("a"), self.contents("b")];
        self.outcome.extend(files);
        let open = std::mem::take(&mut self.open);
        for fd in open {
            // SAFETY: a number of this row, which is over; it may be closed already.
            unsafe { libc::close(fd) };
        }
        self.outcome.join(", ")
    }

    fn contents(&self, name: &str) -> String {
        let bytes = std::fs::read(self.folder.join(name)).expect("a file of the row");
        let runs = bytes.chunk_by(|one, other| one == other);
        let runs: Vec<_> =
            runs.map(|run| format!("{}*{}", char::from(run[0]), run.len())).collect();
        format!("{name}={}", runs.join("+"))
    }

    pub(crate) fn path(&self, name: &str) -> CString {
        CString::new(self.folder.join(name).as_os_str().as_bytes()).expect("a path")
    }

    pub(crate) fn open(&mut self, name: &str, flags: i32) -> RawFd {
        let path = self.path(name);
        self.open_at(&path, flags | self.mode)
    }

    pub(crate) fn open_at(&mut self, path: &CString, flags: i32) -> RawFd {
        // SAFETY: a live string, and numbers.
        let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
        self.keep(fd)
    }

    /// Opens a file without a name (O_TMPFILE). If the file system does not support this, as an
    /// overlay on some kernels, notes that and returns `None`.
    pub(crate) fn open_unnamed(&mut self) -> Option<RawFd> {
        let (path, flags) = (self.path("."), libc::O_RDWR | libc::O_TMPFILE | libc::O_CLOEXEC);
        // SAFETY: a live string, and numbers.
        let fd = unsafe { libc::open(path.as_ptr(), flags | self.mode, 0o600) };
        if fd < 0 && Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) {
            self.outcome.push("there are none".to_owned());
            return None;
        }
        Some(self.keep(fd))
    }

    /// Records a number, which `outcome` closes. Panics if it is negative.
    pub(crate) fn keep(&mut self, fd: RawFd) -> RawFd {
        assert!(fd >= 0, "{}", Error::last_os_error());
        self.open.push(fd);
        fd
    }

    pub(crate) fn read_before(&self, fd: RawFd) {
        for _ in 0..BEFORE {
            self.run(Request::read(borrow(fd), BLOCK, 0));
        }
    }

    pub(crate) fn write_before(&self, fd: RawFd) {
        for _ in 0..BEFORE {
            self.run(Request::write(borrow(fd), &[b'-'; BLOCK], 0));
        }
    }

    pub(crate) fn read(&mut self, fd: RawFd, len: usize, offset: u64) {
        self.note("read", Request::read(borrow(fd), len, offset));
    }

    pub(crate) fn write(&mut self, fd: RawFd, byte: u8, len: usize, offset: u64) {
        self.note("write", Request::write(borrow(fd), &vec![byte; len], offset));
    }

    pub(crate) fn note(&mut self, what: &str, request: Request) {
        let outcome = self.run(request);
        self.outcome.push(format!("{what} {outcome}"));
    }

    fn run(&self, request: Request) -> String {
        let submitted = self.context.submit(vec![request]);
        self.reap(submitted)
    }

    fn reap(&self, submitted: i32) -> String {
        if submitted != 1 {
            return format!("refused {submitted}");
        }
        let done = self.context.reap(1, 1, Some(Duration::from_secs(30))).expect("io_getevents");
        let Some(done) = done.first() else { return "no event".to_owned() };
        match done.request.bytes().first() {
            Some(first) if done.res > 0 => format!("{} of {}", done.res, first.escape_ascii()),
            _ => done.res.to_string(),
        }
    }

    pub(crate) fn set_flags(fd: RawFd, set: i32, clear: i32) {
        // SAFETY: numbers only.
        let rc = unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags & !clear | set)
        };
        assert_eq!(rc, 0, "{}", Error::last_os_error());
    }
}

/// Returns a number for a request; the number may be closed.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the result only becomes a number in an iocb; rows close it on purpose.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
