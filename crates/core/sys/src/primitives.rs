//! Synchronization: the one switch between the real primitives and loom's.

#[cfg(loom)]
mod model;

#[cfg(not(loom))]
mod real {
    use crate::{Errno, futex, time::Deadline};

    pub use crate::mutex::Mutex;
    pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};

    /// Sleeps while the word holds `expected`; may return for no reason. See [`futex::wait`].
    ///
    /// # Errors
    /// Those of [`futex::wait`].
    pub fn futex_wait(word: &AtomicU32, expected: u32, deadline: Deadline) -> Result<(), Errno> {
        futex::wait(word, expected, deadline)
    }

    /// Wakes up to `count` threads that sleep on the word. See [`futex::wake`].
    pub fn futex_wake(word: &AtomicU32, count: u32) {
        futex::wake(word, count);
    }
}

pub use core::sync::atomic::Ordering;
// It orders nothing between threads: models use the same.
pub use core::sync::atomic::compiler_fence;
#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use real::*;
// Reference counts are std's in models too: what is modelled is what they guard.
pub use std::sync::Arc;
