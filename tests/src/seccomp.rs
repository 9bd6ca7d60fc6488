//! Seccomp filters like those of containers: chosen system calls fail with an errno.

use std::io;

use libc::{sock_filter, sock_fprog};

/// Offsets into `struct seccomp_data` (linux/seccomp.h).
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
/// The lower half of the second argument.
const SECOND_AT: u32 = 24;

/// `AUDIT_ARCH_*` of linux/audit.h: ELF machine, 64-bit, little-endian.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

const IO_URING: &[libc::c_long] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
const AIO: &[libc::c_long] = &[
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    // The libc crate lacks this number on some architectures.
    SYS_IO_PGETEVENTS,
    libc::SYS_io_destroy,
    libc::SYS_io_cancel,
];
const OPENAT2: &[libc::c_long] = &[libc::SYS_openat2];
const RWF: &[libc::c_long] = &[libc::SYS_preadv2, libc::SYS_pwritev2];
const IO_PRIORITY: &[libc::c_long] = &[libc::SYS_ioprio_set];
const CLOSE_RANGE: &[libc::c_long] = &[libc::SYS_close_range];
const REGISTER: &[libc::c_long] = &[libc::SYS_io_uring_register];
/// The operation of io_uring_register(2) that returns the supported operations.
const IORING_REGISTER_PROBE: u32 = 8;

#[cfg(target_arch = "x86_64")]
const SYS_IO_PGETEVENTS: libc::c_long = 333;
#[cfg(target_arch = "aarch64")]
const SYS_IO_PGETEVENTS: libc::c_long = 292;

/// System calls of one group, which all fail with the same errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    calls: &'static [libc::c_long],
    /// The denial applies only to calls with this second argument; `None`: to all calls.
    second: Option<u32>,
    errno: i32,
}

impl Denial {
    /// Reads `GROUP=ERRNO`; groups are `io_uring`, `aio`, `openat2`, `rwf` (preadv2 and pwritev2),
    /// `ioprio` (ioprio_set) and `close_range`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (group, errno) = text.split_once('=').ok_or("GROUP=ERRNO expected")?;
        let calls = match group {
            "io_uring" => IO_URING,
            "aio" => AIO,
            "openat2" => OPENAT2,
            "rwf" => RWF,
            "ioprio" => IO_PRIORITY,
            "close_range" => CLOSE_RANGE,
            other => return Err(format!("unknown group {other}")),
        };
        let errno = match errno {
            "EPERM" => libc::EPERM,
            "ENOSYS" => libc::ENOSYS,
            other => return Err(format!("unknown errno {other}: EPERM or ENOSYS")),
        };
        Ok(Self { calls, second: None, errno })
    }

    /// Returns the denials of a profile. `docker` denies `io_uring`, as Docker's default profile
    /// does. `bare` denies `io_uring` and native AIO. `words` makes the probe of `io_uring` fail,
    /// so that nowait does not wait on futexes with its rings, as on Linux before 6.7.
    pub fn profile(name: &str) -> Result<Vec<Self>, String> {
        match name {
            "docker" => Ok(vec![Self { calls: IO_URING, second: None, errno: libc::EPERM }]),
            "bare" => Ok(vec![
                Self { calls: IO_URING, second: None, errno: libc::ENOSYS },
                Self { calls: AIO, second: None, errno: libc::ENOSYS },
            ]),
            "words" => {
                let second = Some(IORING_REGISTER_PROBE);
                Ok(vec![Self { calls: REGISTER, second, errno: libc::EINVAL }])
            }
            other => Err(format!("unknown profile {other}: docker, bare or words")),
        }
    }
}

/// Installs the filter permanently on the calling thread. Threads and processes that it starts
/// later inherit the filter.
///
/// # Errors
/// The kernel has no seccomp filters, or forbids them here.
pub fn install(denials: &[Denial]) -> io::Result<()> {
    let mut filter = compile(denials);
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // An unprivileged process must set this before it installs a filter. SAFETY: plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel only reads `program` and the live `filter` that it names, during the call.
    let rc =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Compiles the filter, which allows calls of another architecture. Each denied call has a
/// comparison of its number and a return. If the denial names a second argument, a comparison of
/// that argument lies between the two.
fn compile(denials: &[Denial]) -> Vec<sock_filter> {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let mut filter = vec![
        step(load, ARCHITECTURE_AT, 0, 0),
        step(equal, ARCHITECTURE, 1, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(load, NUMBER_AT, 0, 0),
    ];
    for denial in denials {
        for call in denial.calls {
            let denied = step(answer, libc::SECCOMP_RET_ERRNO | denial.errno as u32, 0, 0);
            match denial.second {
                None => filter.extend([step(equal, *call as u32, 0, 1), denied]),
                Some(second) => filter.extend([
                    step(equal, *call as u32, 0, 4),
                    step(load, SECOND_AT, 0, 0),
                    step(equal, second, 0, 1),
                    denied,
                    step(load, NUMBER_AT, 0, 0),
                ]),
            }
        }
    }
    filter.push(step(answer, libc::SECCOMP_RET_ALLOW, 0, 0));
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_denied_call_has_a_comparison_and_an_answer() {
        let bare = Denial::profile("bare").unwrap();
        assert_eq!(compile(&bare).len(), 4 + 2 * (3 + 6) + 1);
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        assert!(Denial::parse("io_uring=EBADF").unwrap_err().contains("EBADF"));
        assert!(Denial::parse("mmap=EPERM").unwrap_err().contains("mmap"));
        assert!(Denial::profile("podman").unwrap_err().contains("podman"));
    }
}
