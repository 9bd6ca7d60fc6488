//! Locks of code that no loom model runs. Code that loom models run uses [`crate::primitives`].
//!
//! The locks are std's without poison. A waiting thread sleeps on the lock's own word (futex(2)).
//! The locks share no other state, which a forked child might find half-changed by another thread
//! of its parent (docs/decisions/0035-locks-of-std.md). In a simulation, another thread may run
//! wherever a thread takes a lock, except by [`RwLock::try_read`].

use core::ptr;
use std::sync::{self, PoisonError, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
use std::time::{Duration, Instant};

#[cfg(simulated)]
use crate::raw::pause;
pub use sync::MutexGuard;

#[cfg(not(simulated))]
#[inline]
fn pause() {}

/// A lock that one thread has at a time.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    #[inline]
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    /// Locks the mutex.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        pause();
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        pause();
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value, to which the caller has exclusive access.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value.
    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock for one writer or any number of readers.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Makes an unlocked lock.
    #[inline]
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }

    /// Locks it for reading.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        pause();
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it for reading if that is possible without waiting.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Locks it for writing.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        pause();
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Makes a condition variable.
    #[inline]
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Wakes one waiting thread.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks the mutex, waits, and locks it again.
    #[inline]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        // SAFETY: the guard that is read is replaced before it could be dropped again: std's wait
        // does not panic if it is used with one mutex.
        unsafe {
            let waited = self.0.wait(ptr::read(guard));
            ptr::write(guard, waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Waits as [`Condvar::wait`] does, for the given time at most.
    #[inline]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitTimeoutResult {
        // SAFETY: as above.
        unsafe {
            let waited = self.0.wait_timeout(ptr::read(guard), time);
            let (waited, result) = waited.unwrap_or_else(PoisonError::into_inner);
            ptr::write(guard, waited);
            result
        }
    }

    /// Waits as [`Condvar::wait`] does, until the deadline at most.
    #[inline]
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, end: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, end.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::{thread, time::Duration};

    /// Ends the process by a signal if a lock blocks it for ever.
    fn waits_at_many_places() -> ! {
        // SAFETY: plain numbers.
        unsafe { libc::alarm(60) };
        let (mutex, places) = (Mutex::new(()), [const { Condvar::new() }; 128]);
        for place in &places {
            place.wait_for(&mut mutex.lock(), Duration::from_nanos(1));
        }
        // SAFETY: ends the process without the exit handlers of its parent.
        unsafe { libc::_exit(0) }
    }

    /// The parent's threads wait and wake while the parent forks; the child has none of these
    /// threads.
    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_child_waits_with_its_own_locks_whatever_its_parents_threads_were_at() {
        const FORKS: usize = 100;
        let (mutex, changed, is_over) = (Mutex::new(()), Condvar::new(), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        changed.notify_all();
                        changed.wait_for(&mut mutex.lock(), Duration::from_nanos(1));
                    }
                });
            }
            let ends = (0..FORKS).map(|_| {
                // SAFETY: the child uses only its own memory, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    waits_at_many_places();
                }
                let mut status = 0;
                // SAFETY: a live local; a child that was not waited for.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                status
            });
            let failed = ends.filter(|status| *status != 0).count();
            is_over.store(true, Relaxed);
            assert_eq!(failed, 0);
        });
    }
}
