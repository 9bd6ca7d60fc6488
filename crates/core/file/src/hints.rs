//! Hints: remembered facts about descriptors, and how they are used.
//!
//! A descriptor number may be closed and mean another file, and the flags of an open file may
//! change, at any moment and without a report: by another thread, by stdio, by a system call that
//! the program makes itself, or by another process that shares the open file. So these rules hold:
//!
//! 1. A remembered fact is a hint. It decides by which system call a request begins, but not its
//!    result: neither its errno nor the access mode, and not whether the request appends, is
//!    direct, or waits.
//! 2. That system call is a transfer by the request itself, on the descriptor itself, and in one
//!    piece if it writes. In it the kernel checks the descriptor, as it would in io_submit.
//!    `Command::done` counts the bytes transferred.
//! 3. If bytes are left, the flags are read (`Command::refresh`), and they decide about the rest.
//!    The flags of a request that goes on outside submit were read before, except for direct
//!    transfers that io_submit(2) has accepted.
//!
//! | remembered | chooses | the kernel looks in |
//! |---|---|---|
//! | status flags | an attempt without fcntl(2) before it, or io_submit | preadv2, pwrite, io_submit |
//! | the blocks of the file (`Blocks`), and its inode (`RememberedFile`) | a direct transfer by io_submit, without fstat(2) before it | io_submit |
//! | that the file is in memory | an attempt without RWF_NOWAIT | the attempt: it may have to wait |
//! | the device that a buffered write went to | a write in submit | the write: it may block |
//! | that the file system refuses RWF_NOWAIT | the driver, not native AIO | |
//! | that it is an eventfd | whether to read its name in /proc | a write that cannot be |
//! | how long buffered writes took (`Calm`) | submit, or the thread that waits | the write itself |
//! | how attempts have ended (`DescriptorHints`) | an attempt, or none | |
//! | how many requests are in flight (`Depth`) | the own queue or the driver | |
//!
//! A wrong hint costs time: if a number has come to mean another file, at most `BELIEVED` requests
//! wait for a device inside submit.
//!
//! The remembered file of a long direct read serves once more, if the kernel ends the read short
//! after submit: the rest is read only if the number means that file then. Only a program that has
//! exchanged the number's file twice, the first time by a close that nowait does not see, could get
//! bytes of the wrong file.

mod burst;
mod calm;
mod depth;
mod descriptor;
pub mod filesystem;

pub(crate) use burst::Burst;
pub(crate) use calm::{Calm, Device, Write};
pub(crate) use depth::Depth;
pub(crate) use descriptor::{Blocks, DescriptorHints, RememberedFile};
pub use nowait_retry::Closes;

use std::sync::Arc;

pub(crate) struct Hints {
    pub(crate) descriptors: DescriptorHints,
    pub(crate) burst: Burst,
    pub(crate) depth: Depth,
}

impl Hints {
    pub(crate) fn new(closes: Arc<Closes>) -> Hints {
        let descriptors = DescriptorHints::new(closes);
        Hints { descriptors, burst: Burst::default(), depth: Depth::default() }
    }
}
