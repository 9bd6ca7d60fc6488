//! A machine with a processor for each thread, on which the times of all threads pass in parallel.
//!
//! In a run without processors, threads share memory at no cost: one thread runs at a time, and
//! only calls and waits take time. From [`begin`] on each thread has a clock of its own. The thread
//! whose clock is the earliest runs, so what threads do to each other happens in the order of their
//! clocks. A thread's clock advances by its system calls, its waits and its atomic operations; an
//! atomic operation takes longer if the thread must get the line of memory from another processor.
//!
//! The compiler replaces each atomic operation of the workspace's crates, and of the code that they
//! inline (such as std's locks and reference counts), by a call of a function in `c/atomics.c`. The
//! machine does not see other accesses to memory.

mod lines;

use crate::{
    interpose::with_machine,
    schedule::{Key, World},
};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use lines::{LINE_BYTES, Lines};
pub use lines::{LINE_NS, Wait};

/// Time from one atomic operation to the next, with the code between them.
pub(crate) const STEP_NS: u64 = 5;
/// Time of a system call without its work.
const CALL_NS: u64 = 200;
/// Time of the work of pread(2) and io_submit(2), and of a buffered write, which holds its inode's
/// lock meanwhile.
pub(crate) const TRANSFER_NS: u64 = 900;
/// Longest time of a transfer in the device, which has room for all requests at once.
const DEVICE_NS: u64 = 10_000;
/// Time from a call that wakes a thread until the thread runs.
const WAKE_NS: u64 = 5_000;

/// A bit of the addresses of the kernel's lines: no program has such addresses.
const KERNEL: u64 = 1 << 63;

/// The state of the processors.
#[derive(Default)]
pub(crate) struct Cores {
    pub(crate) lines: Lines,
}

/// `true` after [`begin`]: from then on the machine observes the atomic operations of all its
/// threads.
#[unsafe(export_name = "simulated_observes")]
static OBSERVES: AtomicBool = AtomicBool::new(false);

/// Returns the line of an address.
pub(crate) fn line(address: usize) -> u64 {
    address as u64 / LINE_BYTES
}

/// Returns the time of a system call.
pub(crate) fn call_ns(name: &str) -> u64 {
    CALL_NS + if name.starts_with("pread") || name == "io_submit" { TRANSFER_NS } else { 0 }
}

/// Returns the time from an event until a thread runs that slept for it. For the lock of an inode,
/// threads spin, so they only wait for its line. The time of a transfer or of a timer includes the
/// waking of the thread.
pub(crate) fn wake_ns(key: Key) -> u64 {
    match key {
        Key::Transfer(_) | Key::Time => 0,
        Key::Inode(_) => LINE_NS,
        Key::Futex(_) | Key::End(_) | Key::Readiness => WAKE_NS,
    }
}

impl World {
    /// Accesses the line that the lock of an inode is in, to take it.
    pub(crate) fn touch_inode(&mut self, ino: u64) {
        let (core, now) = (self.running(), self.now);
        if let Some(cores) = &mut self.cores {
            self.now = cores.lines.access(KERNEL | ino, core, true, 0, now);
        }
    }

    /// Counts a wait for the lock of an inode; the wait began at `began`.
    pub(crate) fn waited_for_inode(&mut self, ino: u64, began: u64) {
        let waited = self.now.saturating_sub(began);
        if let Some(cores) = &mut self.cores {
            cores.lines.add_wait(KERNEL | ino, waited);
        }
    }
}

/// From now on, gives each thread of the calling thread's machine a processor. The machine must
/// have a process of its own. The machine no longer switches threads at random, and all pages are
/// cached; transfers are whole.
///
/// # Panics
/// The thread is on no machine.
pub fn begin() {
    with_machine(|world| {
        let rates = &mut world.rates;
        (rates.switch, rates.lock, rates.short, rates.cached) = (0, 0, 0, 1_000_000);
        rates.transfer_ns = DEVICE_NS;
        world.cores = Some(Cores::default());
    });
    OBSERVES.store(true, SeqCst);
}

/// Returns the calling thread's clock, in nanoseconds.
///
/// # Panics
/// The thread is on no machine.
pub fn now() -> u64 {
    with_machine(|world| world.now)
}

/// Forgets how long threads have waited until now.
///
/// # Panics
/// The thread is on no machine with processors.
pub fn forget_waits() {
    with_machine(|world| world.cores.as_mut().expect("processors").lines.forget_waits());
}

/// Returns the lines for which threads have waited, the longest wait first.
///
/// # Panics
/// The thread is on no machine with processors.
pub fn waits() -> Vec<Wait> {
    with_machine(|world| world.cores.as_ref().expect("processors").lines.waits())
}
