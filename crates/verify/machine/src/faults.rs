//! Settings that a program may make on its machine: failing devices, kernel versions, and power
//! cuts.

use crate::interpose::with_machine;
use nowait_sim::Faults;

/// Sets the faults of the devices of the calling thread's machine from now on.
///
/// # Panics
/// The thread is on no machine.
pub fn set_faults(faults: Faults) {
    with_machine(|world| world.faults = faults);
}

/// Makes rings cancel the waiting requests that an ending thread submitted. Linux cancels requests
/// that it continues on the submitting thread, and those of its unbound workers.
///
/// # Panics
/// The thread is on no machine.
pub fn give_up_with_threads() {
    with_machine(|world| world.gives_up = true);
}

/// Makes rings unable to wait on words of memory, as before Linux 6.7.
///
/// # Panics
/// The thread is on no machine.
pub fn wait_on_no_words() {
    with_machine(|world| world.waits_on_words = false);
}

/// Makes reads with RWF_NOWAIT stop before some pages, and return 0 if that is the first page, as
/// before Linux 5.11 at a page that is marked for readahead.
///
/// # Panics
/// The thread is on no machine.
pub fn mark_pages() {
    with_machine(|world| world.marks_pages = true);
}

/// Makes files on a disk refuse RWF_NOWAIT, as some file systems do.
///
/// # Panics
/// The thread is on no machine.
pub fn know_no_nowait() {
    with_machine(|world| world.knows_no_nowait = true);
}

/// Makes attempts with RWF_NOWAIT start no read of missing pages, as on old kernels.
///
/// # Panics
/// The thread is on no machine.
pub fn start_no_read() {
    with_machine(|world| world.starts_no_read = true);
}

/// Makes `ppm` of a million buffered writes block for up to `ns` nanoseconds while they hold their
/// inode's lock, like writes of a thread that has made too many pages dirty.
///
/// # Panics
/// The thread is on no machine.
pub fn throttle(ppm: u32, ns: u64) {
    with_machine(|world| world.throttled = (ppm, ns));
}

/// Returns the longest times of a transfer and of a throttled write in this run, in nanoseconds.
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

/// Makes `ppm` of a million direct reads of several pages by native AIO with RWF_NOWAIT end with
/// EAGAIN after they were accepted, like reads for which the device has no room.
///
/// # Panics
/// The thread is on no machine.
pub fn refuse_late(ppm: u32) {
    with_machine(|world| world.late_ppm = ppm);
}

/// Makes transfers move all of their bytes.
///
/// # Panics
/// The thread is on no machine.
pub fn come_whole() {
    with_machine(|world| world.rates.short = 0);
}

/// Makes each call that zeroes a range take at least `ns` nanoseconds, as on a device that must
/// write zeroes.
///
/// # Panics
/// The thread is on no machine.
pub fn zero_slowly(ns: u64) {
    with_machine(|world| world.zeroing_ns = ns);
}

/// Makes /sys show `tags` request tags for the device.
///
/// # Panics
/// The thread is on no machine.
pub fn say_tags(tags: u32) {
    with_machine(|world| world.tags = Some(tags));
}

/// Returns the number of open files of a path, in all threads: each open counts once, and copies of
/// its descriptor do not count.
///
/// # Panics
/// The thread is on no machine, or the file does not exist.
pub fn opens_of(path: &str) -> usize {
    with_machine(|world| world.opens_of(path))
}

/// Draws the remains of a file if the power failed now, with the losses `faults`. The run
/// continues, so that it can check many cuts and its end.
///
/// # Panics
/// The thread is on no machine, or the file does not exist.
pub fn left_after_cut(path: &str, faults: &Faults) -> Vec<u8> {
    with_machine(|world| {
        world.note(|| "the power could fail here".to_owned());
        world.left_after_cut(path, faults)
    })
}
