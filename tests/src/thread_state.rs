//! Waits until a thread of this process sleeps in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A wide time limit: the thread only has to be scheduled once.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs `block` in a thread and returns once that thread sleeps in it (or has ended).
pub fn spawn_until_asleep<T: Send + 'static>(
    block: impl FnOnce() -> T + Send + 'static,
) -> (JoinHandle<T>, i32) {
    let number = Arc::new(AtomicI32::new(0));
    let told = number.clone();
    let handle = thread::spawn(move || {
        // SAFETY: takes nothing, cannot fail.
        told.store(unsafe { libc::gettid() }, Ordering::Release);
        block()
    });
    wait_until(|| {
        let thread = number.load(Ordering::Acquire);
        thread != 0 && (handle.is_finished() || matches!(state(thread), Some('S' | 'D')))
    });
    (handle, number.load(Ordering::Acquire))
}

/// Yields until `condition` holds.
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

/// Returns the state letter of a thread of this process: `R`, `S`, `D`...
fn state(thread: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
