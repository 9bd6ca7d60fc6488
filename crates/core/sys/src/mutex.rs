//! Locks of code that no model runs: those of parking_lot. What models run is in
//! [`crate::primitives`].
//!
//! A simulation has those of std: parking_lot's table of sleepers goes by addresses and by the
//! clock, is the process's, and a run would depend on the runs before it. There another thread may
//! go on wherever one takes a lock.

#[cfg(not(simulated))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(simulated)]
pub use simulated::{Condvar, Mutex, MutexGuard, RwLock};

/// std's, without poison.
#[cfg(simulated)]
mod simulated {
    use crate::raw::pause;
    use core::ptr;
    use std::sync::{self, PoisonError, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
    use std::time::{Duration, Instant};

    pub use sync::MutexGuard;

    /// As parking_lot's.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Makes an unlocked mutex.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        /// Locks it.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            pause();
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Locks it if it is not locked.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            pause();
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(sync::TryLockError::WouldBlock) => None,
            }
        }

        /// Returns the value: nothing else can have it.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }

        /// Returns the value.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// As parking_lot's.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Makes an unlocked lock.
        pub const fn new(value: T) -> RwLock<T> {
            RwLock(sync::RwLock::new(value))
        }

        /// Locks it, with other readers.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            pause();
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Locks it, with other readers, if none has it alone.
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            match self.0.try_read() {
                Ok(guard) => Some(guard),
                Err(sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(sync::TryLockError::WouldBlock) => None,
            }
        }

        /// Locks it alone.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            pause();
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// As parking_lot's.
    #[derive(Debug, Default)]
    pub struct Condvar(sync::Condvar);

    impl Condvar {
        /// Makes one.
        pub const fn new() -> Condvar {
            Condvar(sync::Condvar::new())
        }

        /// Wakes one thread that waits.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all threads that wait.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        /// Unlocks the mutex, waits, and locks it again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            // SAFETY: the guard that is read is replaced before it could be dropped again: std's
            // wait does not panic with one mutex.
            unsafe {
                let waited = self.0.wait(ptr::read(guard));
                ptr::write(guard, waited.unwrap_or_else(PoisonError::into_inner));
            }
        }

        /// The same, for so long at most.
        pub fn wait_for<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            time: Duration,
        ) -> WaitTimeoutResult {
            // SAFETY: as above.
            unsafe {
                let waited = self.0.wait_timeout(ptr::read(guard), time);
                let (waited, result) = waited.unwrap_or_else(PoisonError::into_inner);
                ptr::write(guard, waited);
                result
            }
        }

        /// The same, until then at most.
        pub fn wait_until<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            end: Instant,
        ) -> WaitTimeoutResult {
            self.wait_for(guard, end.saturating_duration_since(Instant::now()))
        }
    }
}
