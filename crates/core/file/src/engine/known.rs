//! Facts about the process, its files, and the kernel.

use crate::{
    Command, Kind,
    hints::{Calm, Closes, filesystem::FileSystems},
};
use core::sync::atomic::{AtomicBool, AtomicI8, AtomicUsize, Ordering::Relaxed};
use nowait_sys::{
    Errno, announce,
    cred::Credentials,
    file::{self, rwf},
};
use std::sync::{Arc, OnceLock};

#[derive(Default)]
pub(crate) struct Known {
    pub(crate) closes: Arc<Closes>,
    pub(crate) calm: Calm,
    pub(super) filesystems: FileSystems,
    contexts: AtomicUsize,
    /// Set if a thread of the engine could read its credentials; a seccomp filter may forbid that.
    can_read_credentials: AtomicBool,
    /// `true`: the kernel knows RWF_NOAPPEND (Linux 6.9).
    chooses_append: OnceLock<bool>,
    missed_reads: MissedReads,
}

impl Known {
    pub(crate) fn next_context(&self) -> usize {
        self.contexts.fetch_add(1, Relaxed)
    }

    /// Returns the flags of a transfer. A write appends if its file was open for appending at
    /// submission: the flags may have changed when a worker or io_uring begins the write. Linux
    /// before 6.9 has no flag for a write that must not append.
    pub(crate) fn rw_flags(&self, command: &Command) -> u32 {
        let append = match command.kind {
            Kind::Write if self.chooses_append() && command.is_append() => rwf::APPEND,
            Kind::Write if self.chooses_append() => rwf::NOAPPEND,
            _ => 0,
        };
        command.rw_flags | append
    }

    fn chooses_append(&self) -> bool {
        *self.chooses_append.get_or_init(file::can_choose_append)
    }

    /// Makes the kernel begin a read whose attempt found no data, on kernels on which the attempt
    /// has not begun it.
    pub(crate) fn begin_missed_read(&self, command: &Command) {
        let Ok(next) = u64::try_from(command.next_offset()) else { return };
        if !self.missed_reads.has_begun(|| announce::has_page(command.fd, next)) {
            announce::announce(command.fd, next, command.len - command.done);
        }
    }

    pub(super) fn probe_credentials(&self) {
        self.can_read_credentials.store(Credentials::current().is_ok(), Relaxed);
    }

    /// Returns `None` if a seccomp filter forbids the engine's threads to read credentials, and
    /// `EPERM` if a filter forbids it only to this thread.
    pub(crate) fn credentials_of_this_thread(&self) -> Result<Option<Arc<Credentials>>, Errno> {
        #[cfg(test)]
        crate::failure::RefusedCredentials::look()?;
        let can_read_credentials = self.can_read_credentials.load(Relaxed);
        let credentials =
            can_read_credentials.then(|| Credentials::current().map(Arc::new)).transpose();
        credentials.map_err(|_| Errno::PERM)
    }
}

/// Tells kernels that begin a buffered read when its attempt fails with EAGAIN (Linux 6.12) from
/// those that do not (6.1).
///
/// A single look at the page may mislead: the attempt may have failed on a lock, or another program
/// may have read the page. So the first misses are looked at until one answer leads by `LEAD`.
#[derive(Default)]
struct MissedReads {
    /// The looks that found the page, less those that did not.
    balance: AtomicI8,
}

const LEAD: i8 = 4;

impl MissedReads {
    /// Guesses whether the kernel has begun the read whose attempt has just failed; `has_page`
    /// looks at the first page that the attempt missed.
    fn has_begun(&self, has_page: impl FnOnce() -> Result<bool, Errno>) -> bool {
        let balance = self.balance.load(Relaxed);
        if balance.abs() >= LEAD {
            return balance > 0;
        }
        // If two threads look at once, one look may be lost.
        let next = balance_after(balance, has_page());
        self.balance.store(next, Relaxed);
        next > balance
    }
}

/// Kernels without cachestat(2) (before Linux 6.5) do not begin a read whose attempt has failed. If
/// the look fails otherwise, the kernel is assumed to begin such reads.
fn balance_after(balance: i8, has_page: Result<bool, Errno>) -> i8 {
    match has_page {
        Ok(true) => balance + 1,
        Ok(false) => balance - 1,
        Err(Errno::NOSYS) => -LEAD,
        Err(_) => LEAD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::open_for;
    use nowait_block::{Segments, skip::note_skip_here};
    use nowait_sys::file::{Advice, IoVec};
    use std::{io::Write, os::fd::AsRawFd};

    #[test]
    fn a_missed_read_begins_where_attempts_start_none() {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(&[7; 4096]).unwrap();
        file.sync_data().unwrap();
        let fd = file.as_raw_fd();
        file::advise(fd, 0, 0, Advice::DontNeed).unwrap();
        if announce::has_page(fd, 0) != Ok(false) {
            return note_skip_here("cachestat(2) is not there, or /var/tmp is in memory");
        }
        let missed_reads = MissedReads { balance: AtomicI8::new(-LEAD) };
        let known = Known { missed_reads, ..Known::default() };
        let segment = IoVec { base: core::ptr::null_mut(), len: 4096 };
        // SAFETY: nothing is read by the command.
        let read = unsafe {
            Command::new(Kind::Read, (fd, open_for(fd).unwrap()), Segments::One(segment), 0)
        };
        known.begin_missed_read(&read);
        assert_eq!(announce::has_page(fd, 0), Ok(true));
    }

    #[test]
    fn the_first_looks_decide_whether_attempts_begin_reads() {
        const NO: Result<bool, Errno> = Ok(false);
        const YES: Result<bool, Errno> = Ok(true);
        let no_call = Err(Errno::NOSYS);
        // Each row: the looks, the answer to the last one, and whether a further miss is looked at.
        let table: [(&[_], bool, bool); 8] = [
            (&[YES], true, true),
            (&[NO], false, true),
            (&[NO, YES], true, true),
            (&[YES, YES, NO, YES, YES, YES], true, false),
            (&[NO, NO, YES, NO, NO, NO], false, false),
            (&[no_call], false, false),
            (&[Err(Errno::PERM)], true, false),
            (&[NO, Err(Errno::PERM)], true, false),
        ];
        for (looks, begun, looks_again) in table {
            let reads = MissedReads::default();
            let answers: Vec<bool> = looks.iter().map(|look| reads.has_begun(|| *look)).collect();
            assert_eq!(answers.last(), Some(&begun), "{looks:?}");
            let mut looked = false;
            reads.has_begun(|| {
                looked = true;
                YES
            });
            assert_eq!(looked, looks_again, "{looks:?}");
        }
    }
}
