//! Settings that a program may make on its machine: failing devices, kernel versions, and power
//! cuts.
//!
//! Each function panics if the calling thread is on no machine.

use crate::interpose::with_machine;
use nowait_sim::Faults;

/// Sets the faults of the devices of the calling thread's machine from now on.
pub fn set_faults(faults: Faults) {
    with_machine(|world| world.faults = faults);
}

/// Makes rings cancel the waiting requests that an ending thread submitted, as Linux cancels some.
pub fn give_up_with_threads() {
    with_machine(|world| world.gives_up = true);
}

/// Makes rings unable to wait on words of memory, as before Linux 6.7.
pub fn wait_on_no_words() {
    with_machine(|world| world.waits_on_words = false);
}

/// Makes reads with RWF_NOWAIT stop before drawn pages, as Linux before 5.11 does before a page
/// marked for readahead. A read that stops before its first page returns 0.
pub fn mark_pages() {
    with_machine(|world| world.marks_pages = true);
}

/// Makes files on a disk refuse RWF_NOWAIT, as some file systems do.
pub fn know_no_nowait() {
    with_machine(|world| world.knows_no_nowait = true);
}

/// Makes attempts with RWF_NOWAIT start no read of missing pages, as on old kernels.
pub fn start_no_read() {
    with_machine(|world| world.starts_no_read = true);
}

/// Makes `ppm` of a million buffered writes block for up to `ns` nanoseconds while they hold their
/// inode's lock. Linux throttles a thread like this when too many pages are dirty.
pub fn throttle(ppm: u32, ns: u64) {
    with_machine(|world| world.throttled = (ppm, ns));
}

/// Returns the longest times of a transfer and of a throttled write in this run, in nanoseconds.
pub fn longest_ns() -> (u64, u64) {
    with_machine(|world| (world.rates.transfer_ns, world.throttled.1))
}

/// Returns how often the calling thread has slept in a system call for a transfer or a sync.
pub fn transfers_awaited() -> u64 {
    with_machine(|world| world.transfers_awaited())
}

/// Makes `ppm` of a million accepted direct RWF_NOWAIT reads of several pages end with EAGAIN.
pub fn refuse_late(ppm: u32) {
    with_machine(|world| world.late_ppm = ppm);
}

/// Makes the device end no transfer short.
pub fn come_whole() {
    with_machine(|world| world.rates.short = 0);
}

/// Makes fallocate(2) take at least `ns` nanoseconds, as on a device that must write zeroes.
pub fn zero_slowly(ns: u64) {
    with_machine(|world| world.zeroing_ns = ns);
}

/// Makes /sys show `tags` request tags for the device.
pub fn say_tags(tags: u32) {
    with_machine(|world| world.tags = Some(tags));
}

/// Returns how many opens of an existing file are not closed. Duplicated descriptors count once.
pub fn opens_of(path: &str) -> usize {
    with_machine(|world| world.opens_of(path))
}

/// Draws the bytes of an existing file that a power cut with the losses `faults` would leave now.
/// The run continues, so that it can check many cuts.
pub fn left_after_cut(path: &str, faults: &Faults) -> Vec<u8> {
    with_machine(|world| {
        world.note(|| "the power could fail here".to_owned());
        world.left_after_cut(path, faults)
    })
}
