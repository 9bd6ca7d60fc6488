//! Synchronization: the one switch between the real primitives and loom's.

#[cfg(loom)]
mod model;

#[cfg(not(loom))]
mod real {
    use crate::{Errno, futex, time::Deadline};

    pub use crate::mutex::Mutex;
    pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};

    /// Sleeps as [`futex::wait`] does.
    pub fn futex_wait(word: &AtomicU32, expected: u32, deadline: Deadline) -> Result<(), Errno> {
        futex::wait(word, expected, deadline)
    }

    /// Wakes threads as [`futex::wake`] does.
    pub fn futex_wake(word: &AtomicU32, count: u32) {
        futex::wake(word, count);
    }
}

pub use core::sync::atomic::Ordering;
// A compiler fence orders nothing between threads, so models use the real one.
pub use core::sync::atomic::compiler_fence;
#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use real::*;
// Models use std's `Arc`, too: they check the guarded data, not the reference counts.
pub use std::sync::Arc;
