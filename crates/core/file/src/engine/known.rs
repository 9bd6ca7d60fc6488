//! Facts about the process, its files, and the kernel, each found out once.

use crate::{
    Command, Kind,
    hints::{Calm, Closes, filesystem::FileSystems},
};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use nowait_sys::{
    Errno, announce,
    cred::Credentials,
    file::{self, rwf},
};
use std::sync::{Arc, OnceLock};

/// The facts that an engine has found out.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) closes: Arc<Closes>,
    pub(crate) calm: Calm,
    pub(super) filesystems: FileSystems,
    /// The number of contexts that were made.
    contexts: AtomicUsize,
    /// `true`: a thread can read its own credentials; no seccomp filter forbids that.
    can_read_credentials: AtomicBool,
    /// `true`: the kernel knows the flags RWF_APPEND and RWF_NOAPPEND, by which a write chooses
    /// whether it appends.
    chooses_append: OnceLock<bool>,
    /// A buffered read that fails with EAGAIN has started in the kernel.
    starts_reads: OnceLock<bool>,
}

impl Known {
    /// Returns the number of a new context, from 0 on.
    pub(crate) fn next_context(&self) -> usize {
        self.contexts.fetch_add(1, Relaxed)
    }

    /// Returns the flags of a transfer. A write appends if the file was open for appending when it
    /// was submitted: the flags of the open file may have changed when the write begins on a worker
    /// or on a thread of io_uring. Before Linux 6.9 the kernel has no flag for that.
    pub(crate) fn rw_flags(&self, command: &Command) -> u32 {
        let append = match command.kind {
            Kind::Write if self.chooses_append() && command.is_append() => rwf::APPEND,
            Kind::Write if self.chooses_append() => rwf::NOAPPEND,
            _ => 0,
        };
        command.rw_flags | append
    }

    /// Returns `true` if a write can choose not to append (RWF_NOAPPEND).
    fn chooses_append(&self) -> bool {
        *self.chooses_append.get_or_init(file::can_choose_append)
    }

    /// Has the kernel begin a read whose attempt found no data. The attempt has done so itself on
    /// newer kernels: Linux 6.12 does, 6.1 does not.
    pub(crate) fn begin_missed_read(&self, command: &Command) {
        let Ok(next) = u64::try_from(command.next_offset()) else { return };
        let fd = command.fd;
        let starts = || starts_reads(announce::has_page(fd, next));
        if !self.starts_reads.get_or_init(starts) {
            announce::announce(fd, next, command.len - command.done);
        }
    }

    /// Finds out on this thread whether threads can read their own credentials.
    pub(super) fn probe_credentials(&self) {
        self.can_read_credentials.store(Credentials::current().is_ok(), Relaxed);
    }

    /// Returns the credentials of the calling thread; `None` if a seccomp filter forbids all
    /// threads to read theirs.
    ///
    /// # Errors
    /// `EPERM`: a seccomp filter forbids this thread to read its credentials, but not the engine's
    /// threads. The filter's own errno may be another.
    pub(crate) fn credentials_of_this_thread(&self) -> Result<Option<Arc<Credentials>>, Errno> {
        #[cfg(test)]
        crate::failure::RefusedCredentials::look()?;
        let can_read_credentials = self.can_read_credentials.load(Relaxed);
        let credentials =
            can_read_credentials.then(|| Credentials::current().map(Arc::new)).transpose();
        credentials.map_err(|_| Errno::PERM)
    }
}

/// Returns `true` if attempts start reads, by a look at the page of one that failed. No kernel
/// without cachestat(2) starts them; where the look is refused, they are taken to start.
fn starts_reads(has_page: Result<bool, Errno>) -> bool {
    match has_page {
        Ok(has_page) => has_page,
        Err(errno) => errno != Errno::NOSYS,
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
        let known = Known { starts_reads: OnceLock::from(false), ..Known::default() };
        let segment = IoVec { base: core::ptr::null_mut(), len: 4096 };
        // SAFETY: nothing is read by the command.
        let read = unsafe {
            Command::new(Kind::Read, (fd, open_for(fd).unwrap()), Segments::One(segment), 0)
        };
        known.begin_missed_read(&read);
        assert_eq!(announce::has_page(fd, 0), Ok(true));
    }

    #[test]
    fn which_attempts_start_reads() {
        let table = [
            (Ok(true), true),
            (Ok(false), false),
            (Err(Errno::NOSYS), false),
            (Err(Errno::PERM), true),
        ];
        for (has_page, starts) in table {
            assert_eq!(starts_reads(has_page), starts, "{has_page:?}");
        }
    }
}
