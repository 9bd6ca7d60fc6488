//! Waiting on a word of memory.

use crate::{Errno, inside, sys, time::Deadline};
use core::sync::atomic::AtomicU32;

/// Sleeps while `*word == expected`, until woken or the deadline. Wake-ups may be spurious. Source:
/// futex(2), FUTEX_WAIT_BITSET (absolute CLOCK_MONOTONIC time).
///
/// # Errors
/// `EAGAIN`: the word had another value. `EINTR`: a signal handler ran, or has to run. `ETIMEDOUT`.
pub fn wait(word: &AtomicU32, expected: u32, deadline: Deadline) -> Result<(), Errno> {
    let op = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    // The call always gets a time limit: without one the kernel would resume the wait after a
    // signal handler installed with SA_RESTART.
    const CENTURY_NS: u64 = 100 * 366 * 86_400 * 1_000_000_000;
    let until = deadline.min(Deadline::at_ns(CENTURY_NS)).timespec();
    let mut until = until.ok_or(Errno::INVAL)?;
    let until = &raw mut until;
    // A deferred signal writes 0 to the first word of the time limit, the seconds: that time has
    // passed.
    inside::sleep(until.cast(), 0, || {
        // SAFETY: the word outlives the call, the timespec is a live local.
        unsafe { sys!(libc::SYS_futex, word.as_ptr(), op, expected, until, 0, u32::MAX) }.map(drop)
    })
}

/// Wakes up to `count` threads that wait on `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // The kernel's count is signed, and a negative one wakes a single thread.
    let count = count.min(i32::MAX as u32);
    // SAFETY: the kernel only uses the address as a key.
    let _ = unsafe { sys!(libc::SYS_futex, word.as_ptr(), op, count) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::thread_id;
    use std::sync::mpsc;

    fn until_asleep(thread: i32) {
        let file = format!("/proc/self/task/{thread}/stat");
        while !std::fs::read_to_string(&file).unwrap().contains(") S ") {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_wake_of_all_wakes_more_than_one() {
        const THREADS: usize = 3;
        let word = AtomicU32::new(0);
        let (begun, threads) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let begun = begun.clone();
                scope.spawn(|| {
                    let begun = begun; // nothing else puts this thread to sleep
                    begun.send(thread_id()).unwrap();
                    wait(&word, 0, Deadline::NEVER)
                });
            }
            threads.iter().take(THREADS).for_each(until_asleep);
            wake(&word, u32::MAX);
        });
    }
}
