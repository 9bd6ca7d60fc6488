//! Hints: the history of a descriptor, and its use.
//!
//! A number may be closed and mean another file, and the flags of an open file may change, at any
//! moment and unseen: by another thread, by stdio, by a system call that the program makes itself,
//! by another process that has the same open file. So there is one rule:
//!
//! 1. A remembered fact is a hint. It chooses by which system call a request begins, never what
//!    the request comes to: no errno, no access mode, not whether it appends, is direct, or waits.
//! 2. That system call is a transfer of the request itself, on the number itself, in one piece if
//!    it writes: the kernel looks at the descriptor in it, as it would in io_submit. The bytes
//!    transferred count in the command (`Command::done`).
//! 3. If that is not all, the flags are read (`Command::refresh`) and everything is
//!    decided by them, for what is left. A request that leaves the submitter's hands has been
//!    decided so.
//!
//! | remembered | chooses | the kernel looks in |
//! |---|---|---|
//! | status flags | an attempt without fcntl(2) before it, or io_submit | preadv2, pwrite, io_submit |
//! | the blocks of the file (`Blocks`) | a direct write by io_submit, without fstat(2) before it | io_submit |
//! | that the file is in memory | an attempt without RWF_NOWAIT | the attempt: it may have to wait |
//! | the device that a buffered write went to | a write in submit | the write: it may block |
//! | that RWF_NOWAIT was refused as such | the driver, not native AIO | |
//! | that it is an eventfd | whether to read its name in /proc | a write that cannot be |
//! | how long buffered writes took (`Calm`) | submit, or the thread that waits | the write itself |
//! | how attempts have ended (`DescriptorHints`) | an attempt, or none | |
//!
//! A wrong hint costs time: of a number that has come to mean another file, at most `BELIEVED`
//! requests wait for a device inside submit.

mod burst;
mod calm;
mod descriptor;
pub mod filesystem;

pub(crate) use burst::Burst;
pub(crate) use calm::{Calm, Device, Write};
pub(crate) use descriptor::{Blocks, DescriptorHints};
pub use nowait_retry::Closes;

use std::sync::Arc;

/// The hints of a context.
pub(crate) struct Hints {
    pub(crate) descriptors: DescriptorHints,
    pub(crate) burst: Burst,
}

impl Hints {
    pub(crate) fn new(closes: Arc<Closes>) -> Hints {
        Hints { descriptors: DescriptorHints::new(closes), burst: Burst::default() }
    }
}
