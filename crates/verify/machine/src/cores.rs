//! A machine with a processor for each thread, on which the times of all threads pass in parallel.
//!
//! From [`begin`] on each thread has a clock of its own, which its system calls, waits and atomic
//! operations advance. An atomic operation takes longer if the thread must get the line of memory
//! from another processor.
//!
//! The compiler replaces the atomic operations of the workspace's crates, and of code inlined
//! there, by calls of functions in `c/atomics.c`. The machine sees no other accesses to memory.
//!
//! The functions of this module panic if the calling thread is on no machine.

mod lines;

use crate::{
    interpose::with_machine,
    schedule::{Key, World},
};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use lines::{LINE_BYTES, Lines};
pub use lines::{LINE_NS, Wait};

/// Time of an atomic operation, and of the code up to the next atomic operation.
pub(crate) const STEP_NS: u64 = 5;
/// Time of a system call without its work.
const CALL_NS: u64 = 200;
/// Time of the work of pread(2) and io_submit(2), and of a buffered write, which holds its inode's
/// lock meanwhile.
pub(crate) const TRANSFER_NS: u64 = 900;
/// Longest time of a transfer in the device, which has room for all requests at once.
const DEVICE_NS: u64 = 10_000;
/// Time from a call that wakes a thread until this thread runs.
const WAKE_NS: u64 = 5_000;

/// A bit that marks the kernel's lines: no address of a program has it.
const KERNEL: u64 = 1 << 63;

#[derive(Default)]
pub(crate) struct Cores {
    pub(crate) lines: Lines,
}

/// Set by [`begin`]: `c/atomics.c` reports no atomic operation before.
#[unsafe(export_name = "simulated_observes")]
static OBSERVES: AtomicBool = AtomicBool::new(false);

pub(crate) fn line(address: usize) -> u64 {
    address as u64 / LINE_BYTES
}

pub(crate) fn call_ns(name: &str) -> u64 {
    CALL_NS + if name.starts_with("pread") || name == "io_submit" { TRANSFER_NS } else { 0 }
}

/// Threads spin for the lock of an inode, so they only wait for its line. The time of a transfer or
/// a timer includes the wake-up.
pub(crate) fn wake_ns(key: Key) -> u64 {
    match key {
        Key::Transfer(_) | Key::Time => 0,
        Key::Inode(_) => LINE_NS,
        Key::Futex(_) | Key::End(_) | Key::Readiness => WAKE_NS,
    }
}

impl World {
    pub(crate) fn touch_inode(&mut self, ino: u64) {
        let (core, now) = (self.running(), self.now);
        if let Some(cores) = &mut self.cores {
            self.now = cores.lines.access(KERNEL | ino, core, true, 0, now);
        }
    }

    pub(crate) fn waited_for_inode(&mut self, ino: u64, began: u64) {
        let waited = self.now.saturating_sub(began);
        if let Some(cores) = &mut self.cores {
            cores.lines.add_wait(KERNEL | ino, waited);
        }
    }
}

/// Gives each thread of the calling thread's machine a processor from now on. The machine must have
/// a process of its own.
///
/// The machine then switches no thread at random, and counts all pages as cached.
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
pub fn now() -> u64 {
    with_machine(|world| world.now)
}

/// Forgets how long threads have waited until now; panics without [`begin`].
pub fn forget_waits() {
    with_machine(|world| world.cores.as_mut().expect("processors").lines.forget_waits());
}

/// Returns the lines that threads have waited for, the longest wait first; panics without
/// [`begin`].
pub fn waits() -> Vec<Wait> {
    with_machine(|world| world.cores.as_ref().expect("processors").lines.waits())
}
