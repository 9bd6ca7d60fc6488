//! Eventfds of a VMM.

use nowait::Errno;
use nowait_sys::{eventfd, file};
use std::{
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
};

/// An eventfd that a VMM has sent by a socket.
#[derive(Debug)]
pub struct Counter(OwnedFd);

impl Counter {
    /// Takes the descriptor over, and sets `O_NONBLOCK` on it.
    ///
    /// # Errors
    /// `EINVAL`: the descriptor is not an eventfd. A descriptor of another kind might block the
    /// server.
    pub fn new(file: File) -> Result<Counter, Errno> {
        if !eventfd::is_eventfd(file.as_raw_fd())? {
            return Err(Errno::INVAL);
        }
        file::set_nonblocking(file.as_raw_fd())?;
        Ok(Counter(file.into()))
    }

    /// Adds one to the counter, unless the counter is full. The VMM may have cleared `O_NONBLOCK`.
    pub fn signal(&self) {
        eventfd::count(self.0.as_raw_fd());
    }

    pub(crate) fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }
}
