//! A command's descriptor, with the facts that the submission knows about it.

use nowait_sys::{
    Errno,
    file::{self, Stat},
};

/// The file behind a descriptor. fstat(2) is called at most once, and only if a fact is needed.
pub(super) struct Descriptor {
    pub(super) fd: i32,
    /// The file's stat; `None`: fstat(2) was not called yet.
    pub(super) known: Option<Stat>,
}

/// The file of the last direct transfer of a submission.
#[derive(Clone, Copy)]
pub(super) struct KnownFile {
    fd: i32,
    stat: Stat,
}

impl Descriptor {
    /// Describes the descriptor `fd`; `last` is the file of the last direct transfer.
    pub(super) fn new(fd: i32, last: Option<KnownFile>) -> Descriptor {
        let last = last.filter(|last| last.fd == fd);
        Descriptor { fd, known: last.map(|last| last.stat) }
    }

    /// Returns the facts about the file that the submission's next request can use without another
    /// fstat(2).
    pub(super) fn known_file(&self) -> Option<KnownFile> {
        self.known.map(|stat| KnownFile { fd: self.fd, stat })
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
