//! Whose rights a request acts with: as in the kernel, those of the thread that submitted it, as
//! they were then.
//!
//! The rights go with requests that may use up blocks or change the mode bits ([`credentials_matter`]).
//! The engine does not remember the rights of its own threads: the process may change them at any
//! time. A worker compares when it makes its call, and takes on what differs; the driver compares
//! when it hands over to its queue, and leaves to a worker what differs.
//!
//! A direct write on the own queue is asked for by the submitter itself. If that refuses it, or
//! ends it short, it goes on with the rights of the thread that learns of it: the submitter, or
//! another of the application that had taken the event, or the driver, where no thread comes for
//! events.
//! Where a filter keeps that thread from asking, it ends: with what was written, or EPERM.
//!
//! [`credentials_matter`]: crate::hints::filesystem::FileSystem::credentials_matter

use super::Submission;
use nowait_sys::{Errno, cred::Credentials};
use std::sync::Arc;

impl Submission<'_> {
    /// Returns the rights of the thread that submits, asked once; `None`: a filter keeps threads
    /// from asking.
    ///
    /// # Errors
    /// `EPERM`: a filter keeps this thread from asking, and not those of the engine.
    pub(crate) fn credentials(&mut self) -> Result<Option<Arc<Credentials>>, Errno> {
        if self.credentials.is_none() {
            self.credentials = self.context.engine().known.credentials_of_this_thread()?;
        }
        Ok(self.credentials.clone())
    }
}
