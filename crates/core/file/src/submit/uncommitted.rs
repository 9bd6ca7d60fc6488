//! Direct requests that a submission has queued but not yet committed to the kernel.
//!
//! These requests have no place in the order of their inode. If a command must take effect after
//! one of them, the submission commits them first. Requests that the kernel refuses then get a
//! place in the order, where the command finds them.

use crate::{
    Command, Kind,
    order::{Access, FileState, InodeKey, Reach},
};
use nowait_sys::{
    file,
    mistake::{self, Mistake},
};

#[derive(Default)]
pub(super) struct Uncommitted {
    requests: Vec<Queued>,
    writes: bool,
}

struct Queued {
    fd: i32,
    key: Option<InodeKey>,
    reach: Reach,
}

impl Uncommitted {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn push(&mut self, command: &Command, file: Option<FileState>) {
        // Queued direct writes do not move the end of their file.
        let reach = Reach::of(command, u64::MAX);
        self.writes |= reach.access == Access::Write;
        self.requests.push(Queued { fd: command.fd, key: file.map(|file| file.key), reach });
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.writes = false;
    }

    pub(super) fn precede(&self, command: &Command, end: u64) -> bool {
        let access = Access::of(command.kind);
        if self.is_empty() || access != Access::Write && !self.writes {
            return false;
        }
        if matches!(command.kind, Kind::Poll(_)) || mistake::makes(Mistake::OvertakeUncommitted) {
            return false;
        }
        // A write whose flags are only remembered may be an append.
        let is_unsure = access == Access::Write && command.is_hinted();
        let reach = Reach::of(command, end);
        let mut requests = self.requests.iter();
        requests.any(|it| (is_unsure || it.reach.precedes(&reach)) && it.may_be_of(command.fd))
    }
}

impl Queued {
    /// Returns `false` if `fd` is known to mean another file.
    fn may_be_of(&self, fd: i32) -> bool {
        let key_of = |fd| file::stat(fd).ok().map(|stat| FileState::of(&stat).key);
        fd == self.fd || {
            let (ours, other) = (self.key.or_else(|| key_of(self.fd)), key_of(fd));
            ours.is_none() || other.is_none() || ours == other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Flags;
    use nowait_block::Segments;
    use nowait_sys::file::{IoVec, O_APPEND, O_DIRECT, O_RDWR};
    use std::os::fd::AsRawFd;

    fn command(kind: Kind, (fd, flags): (i32, Flags), range: core::ops::Range<i64>) -> Command {
        let part = IoVec { base: core::ptr::null_mut(), len: (range.end - range.start) as usize };
        // SAFETY: the command is never carried out.
        unsafe { Command::new(kind, (fd, flags), Segments::One(part), range.start) }
    }

    #[test]
    fn a_command_waits_for_the_commit_of_what_it_must_not_overtake() {
        let (one, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let again = one.try_clone().unwrap();
        let (fd, again, other) = (one.as_raw_fd(), again.as_raw_fd(), other.as_raw_fd());
        let flags = Flags::Read(O_RDWR | O_DIRECT);
        let (append, hinted) = (Flags::Read(O_RDWR | O_APPEND), Flags::Remembered(O_RDWR));
        let mut queued = Uncommitted::default();
        let write = command(Kind::Write, (fd, flags), 0..100);
        assert!(!queued.precede(&write, 1000), "nothing is queued");

        queued.push(&command(Kind::Read, (fd, flags), 0..100), None);
        assert!(!queued.precede(&command(Kind::Read, (fd, flags), 0..100), 1000), "two reads");
        assert!(!queued.precede(&command(Kind::Fsync, (fd, flags), 0..0), 1000));
        assert!(queued.precede(&write, 1000));
        assert!(
            queued.precede(&command(Kind::Write, (again, flags), 99..200), 1000),
            "the same file"
        );
        assert!(
            !queued.precede(&command(Kind::Write, (other, flags), 0..100), 1000),
            "another file"
        );
        assert!(!queued.precede(&command(Kind::Write, (fd, flags), 100..200), 1000), "other bytes");
        assert!(queued.precede(&command(Kind::Write, (fd, append), 200..300), 1000));
        assert!(queued.precede(&command(Kind::Write, (fd, flags), 200..300), 50), "moves the end");
        assert!(queued.precede(&command(Kind::Write, (fd, hinted), 200..300), 1000));

        queued.push(&write, None);
        assert!(queued.precede(&command(Kind::Read, (again, flags), 50..60), 1000));
        assert!(!queued.precede(&command(Kind::Read, (fd, flags), 100..200), 1000));
        assert!(queued.precede(&command(Kind::Fsync, (fd, flags), 0..0), 1000));
        assert!(!queued.precede(&command(Kind::Poll(1), (fd, flags), 0..0), 1000));
        queued.clear();
        assert!(!queued.precede(&write, 1000));
    }
}
