//! Values that are dropped later, on a thread with the other descriptor table: a descriptor must be
//! closed in the table that contains it.

use nowait_sys::mutex::Mutex;

pub(crate) struct Deferred<T>(Mutex<Vec<T>>);

impl<T> core::fmt::Debug for Deferred<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} deferred", self.0.lock().len())
    }
}

impl<T> Default for Deferred<T> {
    fn default() -> Deferred<T> {
        Deferred(Mutex::default())
    }
}

impl<T> Deferred<T> {
    pub(crate) fn put(&self, value: T) {
        self.0.lock().push(value);
    }

    /// The caller, on a thread with the right table, drops the values without the lock.
    pub(crate) fn take(&self) -> Vec<T> {
        core::mem::take(&mut *self.0.lock())
    }
}
