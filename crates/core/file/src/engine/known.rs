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
    /// Threads may ask what rights they have.
    knows_rights: AtomicBool,
    /// The kernel knows flags by which a write appends, or does not (RWF_APPEND, RWF_NOAPPEND).
    chooses_append: OnceLock<bool>,
}

impl Known {
    /// Returns the number of a new context, from 0 on.
    pub(crate) fn next_context(&self) -> usize {
        self.contexts.fetch_add(1, Relaxed)
    }

    /// Returns the flags of a transfer. A write appends, or does not, as it was to when it was
    /// submitted: the flags of the open file may have changed when it begins, on a worker or on one
    /// of io_uring. Kernels before 6.9 have no way to say so.
    pub(crate) fn rw_flags(&self, command: &Command) -> u32 {
        let append = match command.kind {
            Kind::Write if self.chooses_append() && command.is_append() => rwf::APPEND,
            Kind::Write if self.chooses_append() => rwf::NOAPPEND,
            _ => 0,
        };
        command.rw_flags | append
    }

    /// Returns `true` if a write can say that it does not append (RWF_NOAPPEND).
    fn chooses_append(&self) -> bool {
        *self.chooses_append.get_or_init(file::can_choose_append)
    }

    /// Finds out on this thread whether threads may ask what rights they have.
    pub(super) fn look_at_rights(&self) {
        self.knows_rights.store(Credentials::current().is_ok(), Relaxed);
    }

    /// Returns the rights of the calling thread; `None`: a filter keeps threads from asking.
    ///
    /// # Errors
    /// `EPERM`: a filter keeps this thread from asking, by whatever errno, and not those of the
    /// engine.
    pub(crate) fn rights_of_this_thread(&self) -> Result<Option<Arc<Credentials>>, Errno> {
        #[cfg(test)]
        crate::failure::RefusedRights::look()?;
        let knows_rights = self.knows_rights.load(Relaxed);
        let rights = knows_rights.then(|| Credentials::current().map(Arc::new)).transpose();
        rights.map_err(|_| Errno::PERM)
    }
}
