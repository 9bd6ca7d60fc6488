//! The credentials with which a request acts: those of the submitting thread at the time of
//! submission, as in the kernel.
//!
//! The engine stores the credentials with requests that may allocate blocks or change the mode bits
//! ([`credentials_matter`]). The engine's threads do not remember their own credentials, because
//! the process may change them at any time. A worker compares a request's credentials with its own
//! when it makes the call, and takes on what differs. The driver compares these credentials with
//! its own before it commits, and leaves requests with other credentials to a worker.
//!
//! The submitter itself commits a direct write on the own queue. If the queue refuses the write or
//! ends it short, the write goes on with the credentials of the thread that reaps the result. That
//! is the submitter, another thread of the application that takes events, or the driver if no
//! thread comes for events. If a seccomp filter forbids that thread to read its credentials, the
//! write ends, with the bytes written so far or EPERM.
//!
//! [`credentials_matter`]: crate::hints::filesystem::FileSystem::credentials_matter

use super::Submission;
use nowait_sys::{Errno, cred::Credentials};
use std::sync::Arc;

impl Submission<'_> {
    pub(crate) fn credentials(&mut self) -> Result<Option<Arc<Credentials>>, Errno> {
        if self.credentials.is_none() {
            self.credentials = self.context.engine().known.credentials_of_this_thread()?;
        }
        Ok(self.credentials.clone())
    }
}
