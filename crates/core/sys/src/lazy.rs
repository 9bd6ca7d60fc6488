//! Values that are made at their first use.

use core::{
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire},
};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A value that is made once. If making it fails, the next use tries again.
#[derive(Debug)]
pub struct Lazy<T> {
    made: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Default for Lazy<T> {
    fn default() -> Lazy<T> {
        Lazy { made: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> Lazy<T> {
    /// Returns the value if it was made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.made.get()
    }

    /// Returns the value. Calls `make` if it was not made yet; other callers wait meanwhile.
    ///
    /// # Errors
    /// The errors of `make`, which must undo its work if it fails.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        match self.made.get() {
            Some(made) => Ok(made),
            None => make().map(|new| self.made.get_or_init(|| new)),
        }
    }
}

/// A value of a static that several threads may make at a time; all callers get the first that was
/// stored. No thread waits for another, because a child that is forked meanwhile would wait for
/// ever.
#[derive(Debug)]
pub struct Raced<T: 'static>(AtomicPtr<T>, PhantomData<&'static T>);

impl<T> Raced<T> {
    /// Makes a static without a value.
    pub const fn new() -> Raced<T> {
        Raced(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// Returns the value, which lives as long as the process. Calls `make` if no thread has stored
    /// one.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &'static T {
        let mut known = self.0.load(Acquire);
        if known.is_null() {
            let made = Box::into_raw(Box::new(make()));
            let stored = self.0.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire);
            known = stored.map_or_else(
                |first| {
                    // SAFETY: made above, and not stored.
                    drop(unsafe { Box::from_raw(made) });
                    first
                },
                |_| made,
            );
        }
        // SAFETY: a stored value is never freed.
        unsafe { &*known }
    }
}

impl<T> Default for Raced<T> {
    fn default() -> Raced<T> {
        Raced::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread, time::Duration};

    /// A forked child is in the place of the second caller: the first does not exist there.
    #[test]
    fn a_caller_does_not_wait_for_one_that_is_making_the_value() {
        static VALUE: Raced<u32> = Raced::new();
        let ((begins, begun), (ends, end)) = (mpsc::channel(), mpsc::channel());
        let first = thread::spawn(move || {
            *VALUE.get_or_make(|| {
                begins.send(()).unwrap();
                end.recv().unwrap();
                1
            })
        });
        begun.recv().unwrap();
        let (tells, told) = mpsc::channel();
        thread::spawn(move || tells.send(*VALUE.get_or_make(|| 2)).unwrap());
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(2));
        ends.send(()).unwrap();
        assert_eq!(first.join().unwrap(), 2, "the value that was stored first");
        assert_eq!(*VALUE.get_or_make(|| 3), 2);
    }

    #[test]
    fn a_failure_is_not_for_ever_and_a_value_is() {
        let lazy = Lazy::default();
        assert_eq!(lazy.get_or_make(|| Err("short")), Err("short"));
        assert_eq!(lazy.get(), None);
        assert_eq!(lazy.get_or_make(|| Ok::<_, &str>(1)), Ok(&1));
        assert_eq!(lazy.get_or_make(|| Err("not asked")), Ok(&1));
    }
}
