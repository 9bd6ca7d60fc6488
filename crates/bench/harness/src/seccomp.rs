//! A seccomp filter that refuses `io_uring` with EPERM, as the default profiles of containers do.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

const URING_CALLS: [i64; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

fn filter() -> BpfProgram {
    let refused = URING_CALLS.map(|call| (call, Vec::new())).into();
    let (others, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32));
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("an architecture of ours");
    let filter = SeccompFilter::new(refused, others, refuse, arch).expect("two actions");
    filter.try_into().expect("a short program")
}

pub fn forbid_uring(command: &mut Command) {
    let program = filter();
    let install =
        move || seccompiler::apply_filter(&program).map_err(|_| io::Error::last_os_error());
    // SAFETY: between fork and exec the closure makes two system calls on memory of its own; it
    // neither allocates nor locks.
    unsafe { command.pre_exec(install) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_block::skip::note_skip_here;
    use std::io;

    /// Calls `io_uring_setup` without parameters. A kernel that permits `io_uring` returns EFAULT.
    fn uring_setup_error() -> Option<i32> {
        let nowhere = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the kernel checks the pointer, and the call fails.
        let rc = unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, nowhere) };
        (rc < 0).then(io::Error::last_os_error)?.raw_os_error()
    }

    #[test]
    fn uring_is_refused_and_the_rest_works() {
        // A filter belongs to the thread that installed it, and ends with that thread.
        let thread = std::thread::spawn(|| {
            seccompiler::apply_filter(&filter()).map(|()| uring_setup_error())
        });
        match thread.join().expect("the filter lets a thread end") {
            Ok(errno) => assert_eq!(errno, Some(libc::EPERM)),
            Err(error) => note_skip_here(&error.to_string()),
        }
    }
}
