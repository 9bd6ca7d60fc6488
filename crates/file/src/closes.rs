//! How a face says that the application closes descriptors.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Counts closes, so that what was known of a descriptor is not used after one of them, nor while
/// one is under way: another thread may be given the number before the close has returned.
#[derive(Debug, Default)]
pub struct Closes {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Closes {
    /// Starts with none.
    pub const fn new() -> Closes {
        Closes { begun: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// Says that a descriptor is about to be closed or replaced.
    pub fn begin(&self) {
        self.begun.fetch_add(1, SeqCst);
    }

    /// Says that it has been, once for each [`Closes::begin`].
    pub fn end(&self) {
        self.ended.fetch_add(1, SeqCst);
    }

    /// Returns how many there were; `None` while one is under way.
    pub fn count(&self) -> Option<u64> {
        // In this order: one that begins after the first look and ends before the second is one
        // that was seen to end, and has begun.
        let ended = self.ended.load(SeqCst);
        (self.begun.load(SeqCst) == ended).then_some(ended)
    }
}

impl PartialEq for Closes {
    fn eq(&self, other: &Closes) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for Closes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_while_a_close_is_under_way() {
        let closes = Closes::new();
        assert_eq!(closes.count(), Some(0));
        closes.begin();
        closes.begin();
        closes.end();
        assert_eq!(closes.count(), None);
        closes.end();
        assert_eq!(closes.count(), Some(2));
    }
}
