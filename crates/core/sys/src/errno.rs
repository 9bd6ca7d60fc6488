//! Error numbers with names.

use core::fmt;

/// A kernel error number, without the minus sign.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    (
        public { $($name:ident = $libc:ident),* $(,)? }
        internal { $($internal:ident = $number:ident),* $(,)? }
    ) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($libc), "`, see errno(3).")]
            pub const $name: Errno = Errno(libc::$libc);)*

            $(#[doc(hidden)]
            pub const $internal: Errno = Errno(libc::$number);)*

            /// Returns the symbolic name, or `"errno"` for a number that is no constant of this
            /// type.
            pub fn name(self) -> &'static str {
                match self.0 {
                    $(libc::$libc => stringify!($libc),)*
                    $(libc::$number => stringify!($number),)*
                    _ => "errno",
                }
            }
        }
    };
}

errnos! {
    // The errors of files, streams and engines: the crate `nowait` documents these constants.
    public {
        PERM = EPERM, NOENT = ENOENT, IO = EIO, BADF = EBADF, AGAIN = EAGAIN, NOMEM = ENOMEM,
        ACCES = EACCES, BUSY = EBUSY, INVAL = EINVAL, ISDIR = EISDIR, NFILE = ENFILE,
        MFILE = EMFILE, FBIG = EFBIG, NOSPC = ENOSPC, SPIPE = ESPIPE, ROFS = EROFS, PIPE = EPIPE,
        NOSYS = ENOSYS, OPNOTSUPP = EOPNOTSUPP, CANCELED = ECANCELED, TIMEDOUT = ETIMEDOUT,
        DQUOT = EDQUOT, OVERFLOW = EOVERFLOW, NXIO = ENXIO, NODEV = ENODEV, EXIST = EEXIST,
        TXTBSY = ETXTBSY, NODATA = ENODATA,
    }
    internal {
        INTR = EINTR, FAULT = EFAULT, INPROGRESS = EINPROGRESS, TIME = ETIME, ALREADY = EALREADY,
        MSGSIZE = EMSGSIZE, SHUTDOWN = ESHUTDOWN, NOTTY = ENOTTY, SRCH = ESRCH, NOTCONN = ENOTCONN,
    }
}

impl Errno {
    /// Wraps a positive error number.
    #[inline]
    pub const fn new(number: i32) -> Errno {
        Errno(number)
    }

    #[doc(hidden)]
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Returns the positive number.
    #[inline]
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", std::io::Error::from_raw_os_error(self.0), self.name())
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Runs `f` and restores the C library's `errno`: libaio's callers rely on that.
pub fn preserved<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: __errno_location returns this thread's errno, valid for the thread's life.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: as above; no other thread accesses it.
    let before = unsafe { *location };
    let result = f();
    // SAFETY: as above.
    unsafe { *location = before };
    result
}
