//! What a program may ask of its machine: devices that fail, and what a power cut would leave.

use crate::interpose::with_machine;
use nowait_sim::Faults;

/// Sets how the devices of the calling thread's machine fail from now on.
///
/// # Panics
/// The thread is on no machine.
pub fn set_faults(faults: Faults) {
    with_machine(|world| world.faults = faults);
}

/// Has rings give up what waits in them as the thread ends that entered it. Linux does so with what
/// it continues on that thread, and with what its unbound workers have.
///
/// # Panics
/// The thread is on no machine.
pub fn give_up_with_threads() {
    with_machine(|world| world.gives_up = true);
}

/// Has rings wait on no words of memory, as before Linux 6.7.
///
/// # Panics
/// The thread is on no machine.
pub fn wait_on_no_words() {
    with_machine(|world| world.waits_on_words = false);
}

/// Has reads with RWF_NOWAIT end before some cached pages, with nothing at the first one, as before
/// Linux 5.11 at a page that is marked for read-ahead.
///
/// # Panics
/// The thread is on no machine.
pub fn mark_pages() {
    with_machine(|world| world.marks_pages = true);
}

/// Has files on a disk know no RWF_NOWAIT, as some file systems.
///
/// # Panics
/// The thread is on no machine.
pub fn know_no_nowait() {
    with_machine(|world| world.knows_no_nowait = true);
}

/// Has attempts with RWF_NOWAIT start no read of what is missing, as on old kernels.
///
/// # Panics
/// The thread is on no machine.
pub fn start_no_read() {
    with_machine(|world| world.starts_no_read = true);
}

/// Has so many of a million buffered writes block for up to `ns` nanoseconds while they have their
/// inode locked, as those of a thread that has made too many pages dirty.
///
/// # Panics
/// The thread is on no machine.
pub fn throttle(ppm: u32, ns: u64) {
    with_machine(|world| world.throttled = (ppm, ns));
}

/// Returns the longest time that a transfer takes in this run, and a throttled write, in
/// nanoseconds.
///
/// # Panics
/// The thread is on no machine.
pub fn longest_ns() -> (u64, u64) {
    with_machine(|world| (world.rates.transfer_ns, world.throttled.1))
}

/// Returns how often the calling thread has slept in a system call until a transfer was over.
///
/// # Panics
/// The thread is on no machine.
pub fn transfers_awaited() -> u64 {
    with_machine(|world| world.transfers_awaited())
}

/// Has so many of a million direct reads of several pages by native AIO with RWF_NOWAIT end
/// with EAGAIN after they were accepted, as those for which the device has no room.
///
/// # Panics
/// The thread is on no machine.
pub fn refuse_late(ppm: u32) {
    with_machine(|world| world.late_ppm = ppm);
}

/// Has transfers move all of their bytes.
///
/// # Panics
/// The thread is on no machine.
pub fn come_whole() {
    with_machine(|world| world.rates.short = 0);
}

/// Has each call that zeroes a range take so long at least, as on a device that must write zeroes.
///
/// # Panics
/// The thread is on no machine.
pub fn zero_slowly(ns: u64) {
    with_machine(|world| world.zeroing_ns = ns);
}

/// Has the device say, in /sys, that it has so many request tags.
///
/// # Panics
/// The thread is on no machine.
pub fn say_tags(tags: u32) {
    with_machine(|world| world.tags = Some(tags));
}

/// Returns how often a file is open, by whatever thread.
///
/// # Panics
/// The thread is on no machine, or there is no such file.
pub fn opens_of(path: &str) -> usize {
    with_machine(|world| world.opens_of(path))
}

/// Draws what would be left of a file if the power failed now, as `faults` says. The run goes on:
/// one run is judged at many cuts, and at its end.
///
/// # Panics
/// The thread is on no machine, or there is no such file.
pub fn left_after_cut(path: &str, faults: &Faults) -> Vec<u8> {
    with_machine(|world| {
        world.note(|| "the power could fail here".to_owned());
        world.left_after_cut(path, faults)
    })
}
