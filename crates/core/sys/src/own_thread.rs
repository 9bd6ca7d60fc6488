//! The library's own threads, which the program does not know.

use crate::{Errno, inside::Inside, inspect, thread};
use core::{
    ffi::c_void,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};
use std::ffi::CString;

mod start;
pub use start::{OwnHandle, STACK_BYTES, aside, leave_stacks, start};

/// The number of the library's live threads and, in the upper bits, how often one has begun or
/// ended. The process has one such number, because [`lives_for_itself`] compares it with the
/// kernel's count, which does not distinguish libraries.
static OWN: AtomicU64 = AtomicU64::new(0);
const COUNT: u64 = u32::MAX as u64;
const CHANGE: u64 = COUNT + 1;

/// Counts a thread as one of the library's, for as long as this lives. The process need not stay
/// alive for such threads ([`lives_for_itself`]).
#[must_use]
#[derive(Debug)]
pub struct OwnThread(());

impl OwnThread {
    /// Makes the calling thread one of the library's, and blocks [`thread::ALL_SIGNALS`] on it: the
    /// application's handlers run on the application's threads only.
    ///
    /// The C library may still interrupt calls that wait (`EINTR`). The thread counts as in a call
    /// of the library for good: if the thread aborts the process, the library waits only a short
    /// time for requests.
    pub fn begin() -> OwnThread {
        core::mem::forget(Inside::enter());
        thread::swap_signal_mask(thread::ALL_SIGNALS);
        OwnThread::standing_by()
    }

    /// Starts a thread of the library for `body`, as [`start`] does. No handler of the application
    /// runs on the thread, from its first instruction on.
    pub fn spawn(
        name: &str,
        stack_bytes: usize,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<OwnHandle, Errno> {
        let mask = thread::swap_signal_mask(thread::ALL_SIGNALS);
        let spawned = start(name, stack_bytes, move || {
            let _own = OwnThread::begin();
            body();
        });
        thread::swap_signal_mask(mask);
        spawned
    }

    /// Counts the calling thread as the library's until the result is dropped. Meanwhile the thread
    /// must run no function of the program.
    pub fn standing_by() -> OwnThread {
        OWN.fetch_add(CHANGE + 1, SeqCst);
        OwnThread(())
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        OWN.fetch_add(CHANGE - 1, SeqCst);
    }
}

/// Resets the count in a forked child, which has none of the library's threads.
pub fn forget_own_threads() {
    OWN.store(0, SeqCst);
}

/// Returns `true` if only threads of the library are left in this process.
///
/// A thread that has just begun or is just ending counts as the program's, so the function may
/// return `false` nevertheless. `true` is final, because the library's threads start no thread of
/// the program, and because no thread began or ended during the check.
///
/// # Errors
/// There is no /proc, or no free descriptor.
pub fn lives_for_itself() -> Result<bool, Errno> {
    let own = OWN.load(SeqCst);
    let mut others = 0;
    let names = inspect::names_in(c"/proc/self/task")?;
    for name in &names {
        let stat = CString::new(format!("/proc/self/task/{name}/stat")).unwrap_or_default();
        match inspect::read_text(&stat) {
            Ok(stat) => others += u64::from(is_a_thread_of_the_c_library(&stat)),
            Err(Errno::NOENT | Errno::SRCH) => return Ok(false), // the thread has ended meanwhile
            Err(errno) => return Err(errno),
        }
        if others > own & COUNT {
            return Ok(false);
        }
    }
    // If a thread ends during the read, the kernel may leave out the threads after it.
    let is_whole = thread_count(&inspect::read_text(c"/proc/self/stat")?) == Some(names.len());
    Ok(others == own & COUNT && is_whole && OWN.load(SeqCst) == own)
}

/// Returns the number of threads of the process, including ended ones that the kernel still lists.
fn thread_count(stat: &str) -> Option<usize> {
    const AFTER_NAME: usize = 17; // the 20th field; the first two precede the split
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(AFTER_NAME)?.parse().ok()
}

/// Returns `true` if `stat` (proc_pid_stat(5)) describes a thread that has not ended, except one
/// that io_uring has made in the process (iou-wrk, iou-sqp).
fn is_a_thread_of_the_c_library(stat: &str) -> bool {
    let Some((before, after)) = stat.rsplit_once(')') else { return true };
    let name = before.split_once('(').map_or("", |(_, name)| name);
    let has_ended = after.trim_start().starts_with(['Z', 'X']);
    !has_ended && !name.starts_with("iou-")
}

/// A function that runs when a thread that called [`AtThreadEnd::of_this_thread`] ends (return,
/// pthread_exit, pthread_cancel), but not when the process exits. The library that contains the
/// function must never be unmapped. Source: pthread_key_create(3).
///
/// Thread-local variables of std with a destructor are no replacement: they call malloc, and glibc
/// ends the process where that fails.
#[derive(Debug)]
pub struct AtThreadEnd {
    runs: extern "C" fn(*mut c_void),
    /// The key plus one; 0: not made yet. No thread waits for another that makes the key, because
    /// a child that is forked meanwhile would wait for ever.
    key: AtomicU64,
}

impl AtThreadEnd {
    /// Makes a value for `runs`, which must not unwind.
    pub const fn new(runs: extern "C" fn(*mut c_void)) -> AtThreadEnd {
        AtThreadEnd { runs, key: AtomicU64::new(0) }
    }

    /// Makes the function run when the calling thread ends; if it is running just now, it runs once
    /// more.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`: there are too many such functions, or no memory.
    pub fn of_this_thread(&self) -> Result<(), Errno> {
        if self.key.load(SeqCst) == 0 {
            let mut key = 0;
            let runs: unsafe extern "C" fn(*mut c_void) = self.runs;
            // SAFETY: `key` is a live local; the function lives as long as the library.
            check(unsafe { libc::pthread_key_create(&raw mut key, Some(runs)) })?;
            // If two threads make a key at a time, one key stays unused.
            let _ = self.key.compare_exchange(0, u64::from(key) + 1, SeqCst, SeqCst);
        }
        let key = (self.key.load(SeqCst) - 1) as libc::pthread_key_t;
        // SAFETY: a key that is never deleted; its value is only compared with null.
        unsafe {
            if libc::pthread_getspecific(key).is_null() {
                check(libc::pthread_setspecific(key, core::ptr::without_provenance(1)))?;
            }
        }
        Ok(())
    }
}

fn check(err: i32) -> Result<(), Errno> {
    if err == 0 { Ok(()) } else { Err(Errno::new(err)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_ended_or_are_the_kernels_are_not_counted() {
        let counted = |stat| is_a_thread_of_the_c_library(stat);
        assert!(counted("7 (fio) S 1 7 7 0"));
        assert!(counted("7 (a) Z (b) R 1 7 7 0"), "the name may have anything in it");
        assert!(!counted("7 (fio) Z 1 7 7 0") && !counted("7 (fio) X 1 7 7 0"));
        assert!(!counted("9 (iou-wrk-7) S 1 7 7 0") && !counted("9 (iou-sqp-7) S 1 7 7 0"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /proc")]
    fn the_kernels_count_of_threads_is_found() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 1 0 0 0 1 2 0 0 20 0 12 0 99 4096 1";
        assert_eq!(thread_count(stat), Some(12));
        assert!(thread_count(&inspect::read_text(c"/proc/self/stat").unwrap()) >= Some(1));
        assert_eq!(thread_count("7 (a"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /proc")]
    fn a_process_with_threads_of_the_program_does_not_live_for_itself() {
        let own = OwnThread::standing_by();
        // The threads of the test runner are the program's; this thread is marked as the library's.
        assert_eq!(lives_for_itself(), Ok(false));
        drop(own);
    }
}
