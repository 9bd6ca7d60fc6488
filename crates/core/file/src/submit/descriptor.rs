//! A command's descriptor, as far as a submission has looked at it.

use nowait_sys::{
    Errno,
    file::{self, Stat},
};

/// The file behind a descriptor; looked at once, and only if it matters.
pub(super) struct Descriptor {
    pub(super) fd: i32,
    /// `None`: it was not looked at.
    pub(super) known: Option<Stat>,
}

impl Descriptor {
    pub(super) fn new(fd: i32) -> Descriptor {
        Descriptor { fd, known: None }
    }

    /// Returns the state of the file.
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub(super) fn stat(&mut self) -> Result<&Stat, Errno> {
        if self.known.is_none() {
            self.known = Some(file::stat(self.fd)?);
        }
        self.known.as_ref().ok_or(Errno::BADF)
    }
}
