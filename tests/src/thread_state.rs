//! Waits until a thread of this process sleeps in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);

/// Starts a thread that runs `block`, and waits until the new thread sleeps in the kernel or has
/// ended. Returns the new thread's handle and number.
pub fn spawn_until_asleep<T: Send + 'static>(
    block: impl FnOnce() -> T + Send + 'static,
) -> (JoinHandle<T>, i32) {
    let number = Arc::new(AtomicI32::new(0));
    let told = number.clone();
    let handle = thread::spawn(move || {
        // SAFETY: gettid takes no arguments and cannot fail.
        told.store(unsafe { libc::gettid() }, Ordering::Release);
        block()
    });
    wait_until(|| {
        let thread = number.load(Ordering::Acquire);
        thread != 0 && (handle.is_finished() || matches!(state(thread), Some('S' | 'D')))
    });
    (handle, number.load(Ordering::Acquire))
}

/// Waits until `condition` holds; yields the processor between its checks.
///
/// # Panics
/// The condition does not hold within 20 s.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "a condition did not come true");
        thread::yield_now();
    }
}

/// Returns the state letter (`R`, `S`, `D`...) of a thread of this process; `None` if no such
/// thread exists.
fn state(thread: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
