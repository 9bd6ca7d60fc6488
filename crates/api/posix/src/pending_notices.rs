//! Notices that are being sent.
//!
//! glibc stores the outcome of a request and sends its notice under one lock, which aio_error,
//! aio_suspend and lio_listio take: none of them returns between the two. Here they wait without a
//! lock, because signal handlers call them. The block cannot hold the state "notice being sent":
//! the program may free the block as soon as its outcome is visible.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use nowait_sys::{futex, time::Deadline};

const BUCKETS: usize = 64;
/// Set in a bucket if a thread sleeps until the bucket is empty.
const IS_AWAITED: u32 = 1 << 31;

/// Counts of notices being sent, by a hash of the blocks' addresses. A thread that waits for one
/// block waits for all blocks of its bucket, which takes no longer than sending a notice.
#[derive(Debug)]
pub struct PendingNotices([AtomicU32; BUCKETS]);

impl Default for PendingNotices {
    fn default() -> PendingNotices {
        PendingNotices([const { AtomicU32::new(0) }; BUCKETS])
    }
}

/// A notice that is being sent, until this is dropped.
#[must_use]
pub struct NoticeGuard<'a>(&'a AtomicU32);

impl PendingNotices {
    /// Begins to send the notice of the block at `address`, before its outcome is visible.
    pub fn begin(&self, address: usize) -> NoticeGuard<'_> {
        let bucket = self.bucket(address);
        // The store of the outcome, which follows, releases this.
        bucket.fetch_add(1, Relaxed);
        NoticeGuard(bucket)
    }

    /// Returns `true` if the notice of the block at `address`, whose outcome the caller has seen,
    /// may still be being sent.
    pub fn is_pending(&self, address: usize) -> bool {
        self.bucket(address).load(Acquire) != 0
    }

    /// Waits until the notice of the block at `address`, whose outcome the caller has seen, was
    /// sent.
    pub fn wait(&self, address: usize) {
        let bucket = self.bucket(address);
        loop {
            let now = bucket.load(Acquire);
            if now == 0 {
                return;
            }
            let awaited = now | IS_AWAITED;
            if bucket.compare_exchange(now, awaited, Acquire, Relaxed).is_ok() {
                let _ = futex::wait(bucket, awaited, Deadline::NEVER);
            }
        }
    }

    fn bucket(&self, address: usize) -> &AtomicU32 {
        // Blocks have 168 bytes; the blocks of an array are in different buckets.
        &self.0[address / 128 % BUCKETS]
    }
}

impl Drop for NoticeGuard<'_> {
    fn drop(&mut self) {
        if self.0.fetch_sub(1, Release) == IS_AWAITED | 1
            && self.0.compare_exchange(IS_AWAITED, 0, Relaxed, Relaxed).is_ok()
        {
            futex::wake(self.0, u32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            assert_eq!(pending_notices.bucket(ADDRESS).load(Relaxed), 0);
        }
    }
}
