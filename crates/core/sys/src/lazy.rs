//! Values that are made at their first use.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_not_for_ever_and_a_value_is() {
        let lazy = Lazy::default();
        assert_eq!(lazy.get_or_make(|| Err("short")), Err("short"));
        assert_eq!(lazy.get(), None);
        assert_eq!(lazy.get_or_make(|| Ok::<_, &str>(1)), Ok(&1));
        assert_eq!(lazy.get_or_make(|| Err("not asked")), Ok(&1));
    }
}
