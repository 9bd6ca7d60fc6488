//! How the machine's real threads wait for their turns.

use nowait_sys::raw;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

#[derive(Default)]
pub(crate) struct Baton(AtomicU32);

impl Baton {
    pub(super) fn give(&self) {
        self.0.store(1, SeqCst);
        futex(&self.0, libc::FUTEX_WAKE, 1);
    }

    pub(crate) fn take(&self) {
        while self.0.swap(0, SeqCst) == 0 {
            futex(&self.0, libc::FUTEX_WAIT, 0);
        }
    }
}

fn futex(word: &AtomicU32, op: i32, value: usize) {
    let op = (op | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the word outlives the call, and there is no timeout.
    unsafe { raw::kernel6(libc::SYS_futex, [word.as_ptr() as usize, op, value, 0, 0, 0]) };
}
