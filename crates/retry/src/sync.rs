//! The one switch between the real primitives and loom's.

#[cfg(not(loom))]
mod chosen {
    pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub use parking_lot::Mutex;

    /// Sleeps while the word holds `expected`; may return for no reason.
    pub fn futex_wait(
        word: &AtomicU32,
        expected: u32,
        deadline: nowait_sys::time::Deadline,
    ) -> Result<(), nowait_sys::Errno> {
        nowait_sys::futex::wait(word, expected, deadline)
    }

    /// Wakes threads that sleep on the word.
    pub fn futex_wake(word: &AtomicU32, count: u32) {
        nowait_sys::futex::wake(word, count);
    }
}

#[cfg(loom)]
mod chosen {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};

    /// loom's mutex with the other's interface.
    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Makes an unlocked mutex.
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        /// Locks it.
        pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        /// Locks it if nobody holds it.
        pub fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// Lets loom run another thread: a model of a futex that wakes up early all the time.
    pub fn futex_wait(
        word: &AtomicU32,
        expected: u32,
        _: nowait_sys::time::Deadline,
    ) -> Result<(), nowait_sys::Errno> {
        while word.load(core::sync::atomic::Ordering::Acquire) == expected {
            loom::thread::yield_now();
        }
        Ok(())
    }

    /// Nothing to do: the model's waiters look at the word themselves.
    pub fn futex_wake(_: &AtomicU32, _: u32) {}
}

pub use chosen::*;
pub use core::sync::atomic::Ordering;
// Reference counts are std's in models too: what is modelled is what they guard.
pub use std::sync::Arc;
