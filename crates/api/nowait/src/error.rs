//! The one error type: an error number, the action that failed, and the reason.

use core::fmt;
use nowait_sys::Errno;
use std::{io, path::Path};

/// The reason why a request, or the start of an engine, failed.
///
/// The text is one line: *action: text of the error number: reason or remedy*, as in
///
/// ```text
/// read of 100 bytes at 7 of /data/x: Invalid argument (os error 22) (EINVAL): direct I/O …
/// ```
pub struct Error(Box<Parts>);

struct Parts {
    errno: Errno,
    doing: String,
    because: Option<String>,
}

impl Error {
    pub(crate) fn new(errno: Errno, doing: impl Into<String>) -> Error {
        Error(Box::new(Parts { errno, doing: doing.into(), because: None }))
    }

    pub(crate) fn from_io(error: &io::Error, doing: String) -> Error {
        match error.raw_os_error() {
            Some(number) => Error::new(Errno::new(number), doing),
            // The standard library itself found the error: a path with a zero byte, contradictory
            // options.
            None => Error::new(Errno::INVAL, doing).because(error.to_string()),
        }
    }

    pub(crate) fn because(mut self, reason: impl Into<String>) -> Error {
        self.0.because = Some(reason.into());
        self
    }

    /// Returns the error number.
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// Returns the reason or the remedy, if the error has one besides its number.
    pub fn reason(&self) -> Option<&str> {
        self.0.because.as_deref()
    }

    /// Returns the kind that the standard library gives to the error number; `UnexpectedEof` if the
    /// file ended before an exact read had filled its buffer.
    pub fn kind(&self) -> io::ErrorKind {
        if self.0.errno == Errno::NODATA {
            return io::ErrorKind::UnexpectedEof;
        }
        io::Error::from_raw_os_error(self.0.errno.raw()).kind()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { errno, doing, because } = &*self.0;
        write!(f, "{doing}: {errno}")?;
        match because {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    /// Makes an error of the same kind and text; [`io::Error::get_ref`] returns `error` itself.
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

pub(crate) fn transfer(verb: &str, len: u64, offset: u64, path: &Path) -> String {
    let target = if verb == "read" { "of" } else { "to" };
    format!("{verb} of {len} bytes at {offset} {target} {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_one_line_and_the_kind_survives() {
        let doing = transfer("write", 100, 7, Path::new("/data/x"));
        let error = Error::new(Errno::NOSPC, doing).because("try less");
        let text = "write of 100 bytes at 7 to /data/x: No space left on device (os error 28) \
                    (ENOSPC): try less";
        assert_eq!(error.to_string(), text);
        let error = io::Error::from(error);
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::StorageFull, text.into()));
    }
}
