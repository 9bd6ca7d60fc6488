//! Notices that are being sent.
//!
//! glibc stores the outcome of a request and sends its notice under one lock. aio_error,
//! aio_suspend and lio_listio take this lock, so none of them reports an outcome whose notice is
//! not sent. In nowait these functions wait without a lock, because signal handlers call them. The
//! block cannot hold the state "notice being sent": the program may free the block as soon as its
//! outcome is visible.

use nowait_engine::presence::{Presence, Present};

const BUCKETS: usize = 64;

/// The threads that send notices, by a hash of the blocks' addresses. A thread that waits for one
/// block's notice waits until no thread sends a notice for a block in the same bucket.
#[derive(Debug)]
pub struct PendingNotices([Presence; BUCKETS]);

impl Default for PendingNotices {
    fn default() -> PendingNotices {
        PendingNotices(core::array::from_fn(|_| Presence::default()))
    }
}

impl PendingNotices {
    /// Records that the calling thread sends the notice of the block at `address`. Called before
    /// the block's outcome is visible. Dropping the result removes the record.
    pub fn begin(&self, address: usize) -> Present<'_> {
        self.bucket(address).enter()
    }

    /// Returns `true` if the notice of the block at `address`, whose outcome the caller has seen,
    /// may still be being sent.
    pub fn is_pending(&self, address: usize) -> bool {
        !self.bucket(address).is_empty()
    }

    /// Waits until the notice of the block at `address`, whose outcome the caller has seen, was
    /// sent.
    pub fn wait(&self, address: usize) {
        self.bucket(address).wait();
    }

    fn bucket(&self, address: usize) -> &Presence {
        // Blocks have 168 bytes; neighbours in an array are in different buckets.
        &self.0[address / 128 % BUCKETS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::thread;

    #[test]
    #[cfg_attr(miri, ignore = "sleeps in a system call")]
    fn who_waits_returns_when_all_notices_of_the_bucket_are_sent() {
        const ADDRESS: usize = 4096;
        let (pending_notices, sent) = (PendingNotices::default(), AtomicU32::new(0));
        pending_notices.wait(ADDRESS);
        for _ in 0..1000 {
            sent.store(0, Relaxed);
            let both =
                [pending_notices.begin(ADDRESS), pending_notices.begin(ADDRESS + BUCKETS * 128)];
            assert!(
                pending_notices.is_pending(ADDRESS) && !pending_notices.is_pending(ADDRESS + 128)
            );
            thread::scope(|scope| {
                for guard in both {
                    scope.spawn(|| {
                        sent.fetch_add(1, Relaxed);
                        drop(guard);
                    });
                }
                pending_notices.wait(ADDRESS);
                assert_eq!(sent.load(Relaxed), 2);
            });
            assert!(!pending_notices.is_pending(ADDRESS));
        }
    }
}
