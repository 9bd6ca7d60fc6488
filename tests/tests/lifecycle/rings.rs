//! Finds out with a small ring if io_uring on this machine can wait on a word of memory.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `IORING_REGISTER_PROBE`, and an operation of Linux 6.7 (linux/io_uring.h).
const PROBE: libc::c_long = 8;
const FUTEX_WAIT: usize = 51;
const OPERATIONS: usize = 64;
/// The flag of a supported operation, `IO_URING_OP_SUPPORTED`.
const SUPPORTED: u16 = 1;

/// `struct io_uring_probe` with its list.
#[repr(C)]
struct Probe {
    last: u8,
    count: u8,
    reserved: [u16; 7],
    operations: [Operation; OPERATIONS],
}

/// `struct io_uring_probe_op`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Operation {
    code: u8,
    reserved: u8,
    flags: u16,
    reserved_too: u32,
}

/// Returns `true` if a ring can wait on a word of memory. Without this ability the library needs an
/// eventfd to wake a ring.
pub(crate) fn wait_on_words() -> bool {
    // `struct io_uring_params`: no flags.
    let mut params = [0u32; 30];
    // SAFETY: room for the kernel's description of the new ring.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    if ring < 0 {
        return false;
    }
    // SAFETY: a new descriptor, owned here alone.
    let ring = unsafe { OwnedFd::from_raw_fd(ring as i32) };
    let operations = [Operation::default(); OPERATIONS];
    let mut probe = Probe { last: 0, count: 0, reserved: [0; 7], operations };
    let (fd, list) = (ring.as_raw_fd(), &raw mut probe);
    // SAFETY: a zeroed list with room for as many operations.
    let rc = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, PROBE, list, OPERATIONS) };
    rc == 0 && probe.operations[FUTEX_WAIT].flags & SUPPORTED != 0
}
