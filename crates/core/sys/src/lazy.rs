//! A value that is made at its first use, unless that fails.

use std::sync::{Mutex, OnceLock, PoisonError};

/// A value that is made once. What could not be made is tried again at the next use: descriptors,
/// threads and memory that were short may be there then.
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

    /// Returns the value, made by `make` if it was not; others that want it wait meanwhile.
    ///
    /// # Errors
    /// Those of `make`, which must leave nothing behind then.
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
