//! A command's descriptor, with the facts that the submission knows about it.

use nowait_sys::{
    Errno,
    file::{self, Stat},
};

/// fstat(2) is called at most once, and only if a fact is needed.
pub(super) struct Descriptor {
    pub(super) fd: i32,
    pub(super) known: Option<Stat>,
}

#[derive(Clone, Copy)]
pub(super) struct KnownFile {
    fd: i32,
    stat: Stat,
}

impl Descriptor {
    pub(super) fn new(fd: i32, last: Option<KnownFile>) -> Descriptor {
        let last = last.filter(|last| last.fd == fd);
        Descriptor { fd, known: last.map(|last| last.stat) }
    }

    pub(super) fn known_file(&self) -> Option<KnownFile> {
        self.known.map(|stat| KnownFile { fd: self.fd, stat })
    }

    pub(super) fn stat(&mut self) -> Result<&Stat, Errno> {
        if self.known.is_none() {
            self.known = Some(file::stat(self.fd)?);
        }
        self.known.as_ref().ok_or(Errno::BADF)
    }
}
