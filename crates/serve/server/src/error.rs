//! The error of the server, in one line.

use core::fmt;
use nowait::Errno;
use nowait_device::image::ImageError;
use std::io;

/// A failure, in one line for the user.
#[derive(Debug)]
pub struct ServeError(String);

impl ServeError {
    /// Makes an error whose message is the line `text`.
    pub fn new(text: impl Into<String>) -> ServeError {
        ServeError(text.into())
    }

    pub(crate) fn descriptors(errno: Errno) -> ServeError {
        ServeError(format!("cannot watch descriptors: {errno}"))
    }

    pub(crate) fn io(doing: impl fmt::Display, error: &io::Error) -> ServeError {
        ServeError(format!("{doing}: {error}"))
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServeError {}

impl From<nowait::Error> for ServeError {
    fn from(error: nowait::Error) -> ServeError {
        ServeError(error.to_string())
    }
}

impl From<ImageError> for ServeError {
    fn from(error: ImageError) -> ServeError {
        ServeError(error.to_string())
    }
}
