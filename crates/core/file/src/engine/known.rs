//! Facts about the process, its files, and the kernel, each found out once.

use crate::{
    Command, Kind,
    hints::{Calm, Closes, filesystem::FileSystems},
};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use nowait_sys::{
    Errno,
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
