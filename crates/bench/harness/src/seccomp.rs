//! A seccomp filter that refuses `io_uring` with EPERM, as the default profiles of containers do.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

/// Offset of the system call number in `struct seccomp_data`.
const NR_OFFSET: u32 = 0;
/// Offset of the architecture in `struct seccomp_data`.
const ARCH_OFFSET: u32 = 4;

/// `AUDIT_ARCH_*` of this machine, from the header `linux/audit.h`.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// The three system calls of `io_uring`.
const URING_CALLS: [u32; 3] = [
    libc::SYS_io_uring_setup as u32,
    libc::SYS_io_uring_enter as u32,
    libc::SYS_io_uring_register as u32,
];

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Jumps over `skip` instructions when the loaded word equals `k`.
const fn skip_if_equal(k: u32, skip: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt: skip, jf: 0, k }
}

/// Load the architecture, allow a foreign one; load the number, refuse the three calls.
const PROGRAM: [sock_filter; 9] = [
    statement(BPF_LD | BPF_W | BPF_ABS, ARCH_OFFSET),
    skip_if_equal(ARCH, 1),
    statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW),
    statement(BPF_LD | BPF_W | BPF_ABS, NR_OFFSET),
    skip_if_equal(URING_CALLS[0], 3),
    skip_if_equal(URING_CALLS[1], 2),
    skip_if_equal(URING_CALLS[2], 1),
    statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW),
    statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
];

/// Makes the child refuse `io_uring` to itself before it executes the program.
pub fn forbid_uring(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes two system calls on constants and its own
    // stack; it neither allocates nor locks.
    unsafe { command.pre_exec(install) };
}

/// Installs the filter on the calling thread.
fn install() -> io::Result<()> {
    // The kernel copies the program and never writes to it, whatever the pointer's type says.
    let filter = PROGRAM;
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: plain arguments; the call reads no memory.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` and the array it points to live until the call returns.
    let rc = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_block::conformance::note_skip_here;

    /// Asks for a ring with no entries, which a kernel with `io_uring` finds invalid.
    fn uring_setup_error() -> Option<i32> {
        let nowhere = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the kernel checks the pointer and fails.
        let rc = unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, nowhere) };
        (rc < 0).then(io::Error::last_os_error)?.raw_os_error()
    }

    #[test]
    fn uring_is_refused_and_the_rest_works() {
        // A filter belongs to its thread, and goes with it.
        let thread = std::thread::spawn(|| install().map(|()| uring_setup_error()));
        match thread.join().expect("the filter lets a thread end") {
            Ok(errno) => assert_eq!(errno, Some(libc::EPERM)),
            Err(error) => note_skip_here(&error.to_string()),
        }
    }
}
