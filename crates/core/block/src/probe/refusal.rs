//! Why a system call failed, as far as the system shows the cause, and what to change.

use core::fmt;
use nowait_sys::{
    Errno,
    confined::{self, Extra},
    inspect,
};
use std::ffi::CStr;

/// A call that did not work, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The system call that does not work.
    pub call: &'static str,
    /// The errno that the call returned; `EPERM` if the call was not tried ([`Cause::Confined`]).
    pub errno: Errno,
    /// The reason for the error.
    pub cause: Cause,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The kernel does not have the call: it is too old, or was built without the call.
    NoKernel,
    /// The kernel has the call, but not all features of the call that nowait needs.
    OldKernel,
    /// gVisor runs in place of the kernel and does not offer the call.
    Gvisor,
    /// A seccomp filter answers instead of the kernel.
    Seccomp,
    /// The program's own seccomp filter may kill the program for the call, so the call was not
    /// tried.
    Confined,
    /// `kernel.io_uring_disabled` has this value.
    Sysctl(u8),
    /// A filter of io_uring requests (Linux 7.0): the ring could be made, but the filter refuses
    /// its requests.
    RequestFilter,
    /// No filter and no sysctl refused the call, so a security module (SELinux, AppArmor) or the
    /// host did.
    Policy,
    /// RLIMIT_MEMLOCK, in bytes, leaves no room for the ring.
    Memlock(u64),
    /// `fs.aio-max-nr` is used up.
    AioSlots {
        /// The slots that all processes together use (`fs.aio-nr`).
        used: u64,
        /// The limit of slots (`fs.aio-max-nr`).
        max: u64,
    },
    /// No descriptors left, for this process or the system.
    Descriptors,
    /// No memory, or no more processes allowed.
    Resources,
    /// The file system does not offer the operation.
    FileSystem,
    /// Another cause; only the errno is known.
    Other,
}

/// The properties of the system from which [`Refusal::classify`] finds the cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// `/proc/version`.
    pub kernel: String,
    /// `Seccomp:` of `/proc/thread-self/status`: 0 off, 1 strict, 2 filter; `None` unknown.
    pub seccomp: Option<u8>,
    /// The calling thread's effective capabilities, a bit each.
    pub capabilities: u64,
    /// `/proc/sys/kernel/io_uring_disabled`; `None` if it cannot be read, as before Linux 6.6.
    pub uring_disabled: Option<u8>,
    /// `/proc/sys/fs/aio-nr` and `aio-max-nr`.
    pub aio_slots: Option<(u64, u64)>,
    /// Soft and hard RLIMIT_MEMLOCK in bytes.
    pub memlock: (u64, u64),
    /// The error of io_uring_enter with the descriptor -1: `EBADF` comes from the kernel itself.
    pub enter: Option<Errno>,
}

const CAP_IPC_LOCK: u64 = 1 << 14;
const CAP_SYS_ADMIN: u64 = 1 << 21;

impl Situation {
    /// Examines the running system.
    pub fn current() -> Situation {
        let status = inspect::read_text(c"/proc/thread-self/status")
            .or_else(|_| inspect::read_text(c"/proc/self/status"))
            .unwrap_or_default();
        let field = |name: &str| field(&status, name);
        Situation {
            kernel: inspect::read_text(c"/proc/version").unwrap_or_default().trim().to_owned(),
            seccomp: field("Seccomp:").and_then(|value| value.parse().ok()),
            capabilities: field("CapEff:")
                .and_then(|value| u64::from_str_radix(value, 16).ok())
                .unwrap_or(0),
            uring_disabled: number(c"/proc/sys/kernel/io_uring_disabled").map(|n| n as u8),
            aio_slots: number(c"/proc/sys/fs/aio-nr").zip(number(c"/proc/sys/fs/aio-max-nr")),
            memlock: inspect::memlock_limit(),
            enter: Some(inspect::uring_enter_nothing()),
        }
    }

    fn filtered(&self) -> bool {
        self.seccomp == Some(2)
    }

    /// Returns `true` on gVisor, which has reported this build time since its first release.
    pub fn is_gvisor(&self) -> bool {
        self.kernel.contains("Sun Jan 10 15:06:54 PST 2016")
    }

    fn has(&self, capability: u64) -> bool {
        self.capabilities & capability != 0
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn number(path: &CStr) -> Option<u64> {
    inspect::read_text(path).ok()?.trim().parse().ok()
}

impl Refusal {
    /// Fails with [`Cause::Confined`] if the program's own seccomp filter may kill the program for
    /// `call`.
    pub(crate) fn unless_confined(call: &'static str, extra: Extra) -> Result<(), Refusal> {
        let refusal = Refusal { call, errno: Errno::PERM, cause: Cause::Confined };
        if confined::forbids(extra) { Err(refusal) } else { Ok(()) }
    }

    /// Finds the cause on the running system.
    pub fn diagnose(call: &'static str, errno: Errno) -> Refusal {
        Refusal::classify(call, errno, &Situation::current())
    }

    /// Finds the cause from the arguments alone.
    pub fn classify(call: &'static str, errno: Errno, seen: &Situation) -> Refusal {
        let uring = call.starts_with("io_uring");
        let cause = match errno {
            Errno::NOSYS => missing(uring, seen),
            Errno::PERM | Errno::ACCES => forbidden(call, errno, seen),
            Errno::NOMEM if uring && !seen.has(CAP_IPC_LOCK) && seen.memlock.0 != u64::MAX => {
                Cause::Memlock(seen.memlock.0)
            }
            Errno::AGAIN if call == "io_setup" => {
                let (used, max) = seen.aio_slots.unwrap_or_default();
                Cause::AioSlots { used, max }
            }
            Errno::MFILE | Errno::NFILE => Cause::Descriptors,
            // If the kernel cannot start a worker thread, io_uring cancels requests that need such
            // a thread.
            Errno::CANCELED if uring => Cause::Resources,
            Errno::NOMEM | Errno::AGAIN => Cause::Resources,
            Errno::OPNOTSUPP if call.starts_with('p') || call == "open" => Cause::FileSystem,
            Errno::INVAL if uring => Cause::OldKernel,
            Errno::INVAL if call == "open" => Cause::FileSystem,
            _ => Cause::Other,
        };
        Refusal { call, errno, cause }
    }

    /// Returns the cause as an identifier, for programs.
    pub fn cause_name(&self) -> &'static str {
        match self.cause {
            Cause::NoKernel => "no-kernel",
            Cause::OldKernel => "old-kernel",
            Cause::Gvisor => "gvisor",
            Cause::Seccomp => "seccomp",
            Cause::Confined => "confined",
            Cause::Sysctl(_) => "sysctl",
            Cause::RequestFilter => "request-filter",
            Cause::Policy => "policy",
            Cause::Memlock(_) => "memlock",
            Cause::AioSlots { .. } => "aio-max-nr",
            Cause::Descriptors => "descriptors",
            Cause::Resources => "resources",
            Cause::FileSystem => "file-system",
            Cause::Other => "other",
        }
    }

    /// Returns one line that says what to change.
    pub fn advice(&self) -> String {
        match self.cause {
            Cause::NoKernel => "use a kernel that has it (io_uring: 5.11 or newer)".to_owned(),
            Cause::OldKernel => "use Linux 5.11 or newer".to_owned(),
            Cause::Gvisor => {
                "run with another container runtime (runc), or see `runsc --help` for --iouring"
                    .to_owned()
            }
            Cause::Seccomp => format!(
                "allow {} in the container's seccomp profile (Docker: --security-opt \
                 seccomp=PROFILE.json; Kubernetes: securityContext.seccompProfile)",
                family(self.call)
            ),
            Cause::Confined => format!(
                "have the program allow {} where it puts a seccomp filter on itself",
                family(self.call)
            ),
            Cause::Sysctl(1) => "set sysctl kernel.io_uring_group to a group of the user, grant \
                CAP_SYS_ADMIN, or set kernel.io_uring_disabled=0"
                .to_owned(),
            Cause::Sysctl(_) => "sysctl kernel.io_uring_disabled=0 (on the host)".to_owned(),
            Cause::RequestFilter => {
                "allow reads, writes, syncs and polls in the io_uring filter of the container or \
                 service"
                    .to_owned()
            }
            Cause::Policy => {
                "ask the host's administrator: a security module or the virtual machine forbids it"
                    .to_owned()
            }
            Cause::Memlock(_) => "raise RLIMIT_MEMLOCK (ulimit -l; Docker: --ulimit memlock=-1; \
                systemd: LimitMEMLOCK=infinity)"
                .to_owned(),
            Cause::AioSlots { max, .. } => {
                format!("raise it: sysctl fs.aio-max-nr={}", (max * 4).max(1 << 20))
            }
            Cause::Descriptors => "raise RLIMIT_NOFILE (ulimit -n) or fs.file-max".to_owned(),
            Cause::Resources => "free memory, or raise ulimit -u / the pids limit".to_owned(),
            Cause::FileSystem => {
                "none needed: it only costs speed; ext4, xfs and btrfs have it".to_owned()
            }
            Cause::Other => format!("see {}(2) for {}", self.call, self.errno.name()),
        }
    }
}

fn missing(uring: bool, seen: &Situation) -> Cause {
    // Only a kernel with io_uring has the sysctl, or answers io_uring_enter(2) with EBADF.
    let kernel_has_uring = seen.uring_disabled.is_some() || seen.enter == Some(Errno::BADF);
    if uring && kernel_has_uring || !uring && seen.aio_slots.is_some() && seen.filtered() {
        Cause::Seccomp
    } else if seen.is_gvisor() {
        Cause::Gvisor
    } else if seen.filtered() {
        Cause::Seccomp
    } else {
        Cause::NoKernel
    }
}

fn forbidden(call: &str, errno: Errno, seen: &Situation) -> Cause {
    if call == "io_uring_setup" {
        // The kernel answers io_uring_enter(2) on descriptor -1 with EBADF, whatever the sysctl is.
        // If the answer is the same errno as for io_uring_setup(2), a filter returns both.
        let filter_speaks = seen.enter == Some(errno);
        match seen.uring_disabled {
            _ if filter_speaks => return Cause::Seccomp,
            Some(2..) => return Cause::Sysctl(2),
            Some(1) if !seen.has(CAP_SYS_ADMIN) => return Cause::Sysctl(1),
            _ => {}
        }
    }
    // EACCES is the result of a request: io_uring_enter(2) itself works.
    if call == "io_uring_enter" && errno == Errno::ACCES && seen.enter == Some(Errno::BADF) {
        return Cause::RequestFilter;
    }
    if seen.filtered() { Cause::Seccomp } else { Cause::Policy }
}

fn family(call: &str) -> &str {
    match call {
        _ if call.starts_with("io_uring") => "io_uring_setup, io_uring_enter and io_uring_register",
        "io_setup" | "io_submit" | "io_getevents" => {
            "io_setup, io_submit, io_getevents, io_cancel and io_destroy"
        }
        other => other,
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.call, self.errno.name())?;
        match self.cause {
            Cause::NoKernel => f.write_str("this kernel does not have it"),
            Cause::OldKernel => f.write_str("this kernel is too old"),
            Cause::Gvisor => f.write_str("gVisor does not offer it"),
            Cause::Seccomp => f.write_str("a seccomp filter refuses it"),
            Cause::Confined => {
                f.write_str("not tried: the program's own seccomp filter may kill the process")
            }
            Cause::Sysctl(value) => write!(f, "sysctl kernel.io_uring_disabled={value}"),
            Cause::RequestFilter => {
                f.write_str("a filter of io_uring requests (Linux 7.0) refuses it")
            }
            Cause::Policy => f.write_str("forbidden, and not by seccomp or sysctl"),
            Cause::Memlock(limit) => write!(f, "RLIMIT_MEMLOCK is {} KiB", limit >> 10),
            Cause::AioSlots { used, max } => write!(f, "fs.aio-max-nr is used up ({used}/{max})"),
            Cause::Descriptors => f.write_str("no descriptors left"),
            Cause::Resources => f.write_str("no memory, or no more threads allowed"),
            Cause::FileSystem => f.write_str("this file system does not offer it"),
            Cause::Other => write!(f, "error {}", self.errno.raw()),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel_with_uring() -> Situation {
        Situation {
            uring_disabled: Some(0),
            seccomp: Some(0),
            aio_slots: Some((65_000, 65_536)),
            memlock: (64 << 10, 64 << 10),
            enter: Some(Errno::BADF),
            ..Situation::default()
        }
    }

    fn cause(call: &'static str, errno: Errno, seen: &Situation) -> Cause {
        Refusal::classify(call, errno, seen).cause
    }

    #[test]
    fn sysctl_and_filter_are_told_apart_by_who_answers_enter() {
        let sysctl = Situation { uring_disabled: Some(2), ..kernel_with_uring() };
        assert_eq!(cause("io_uring_setup", Errno::PERM, &sysctl), Cause::Sysctl(2));
        let both = Situation { seccomp: Some(2), ..sysctl.clone() };
        assert_eq!(cause("io_uring_setup", Errno::PERM, &both), Cause::Sysctl(2));
        let filter = Situation { enter: Some(Errno::PERM), ..both };
        assert_eq!(cause("io_uring_setup", Errno::PERM, &filter), Cause::Seccomp);
    }

    #[test]
    fn a_filter_of_requests_is_told_from_one_of_calls() {
        let seen = Situation { seccomp: Some(2), ..kernel_with_uring() };
        assert_eq!(cause("io_uring_enter", Errno::ACCES, &seen), Cause::RequestFilter);
        let calls = Situation { enter: Some(Errno::ACCES), ..seen };
        assert_eq!(cause("io_uring_enter", Errno::ACCES, &calls), Cause::Seccomp);
    }

    #[test]
    fn the_restricted_sysctl_spares_the_privileged() {
        let plain = Situation { uring_disabled: Some(1), ..kernel_with_uring() };
        assert_eq!(cause("io_uring_setup", Errno::PERM, &plain), Cause::Sysctl(1));
        let admin = Situation { capabilities: CAP_SYS_ADMIN, ..plain };
        assert_eq!(cause("io_uring_setup", Errno::PERM, &admin), Cause::Policy);
    }

    #[test]
    fn enosys_of_a_filter_of_an_old_kernel_and_of_gvisor_differ() {
        let known =
            Situation { seccomp: Some(2), enter: Some(Errno::NOSYS), ..kernel_with_uring() };
        assert_eq!(cause("io_uring_setup", Errno::NOSYS, &known), Cause::Seccomp);
        assert_eq!(cause("io_setup", Errno::NOSYS, &known), Cause::Seccomp);
        let old = Situation { enter: Some(Errno::NOSYS), seccomp: Some(0), ..Situation::default() };
        assert_eq!(cause("io_uring_setup", Errno::NOSYS, &old), Cause::NoKernel);
        assert_eq!(cause("io_setup", Errno::NOSYS, &old), Cause::NoKernel);
        let kernel = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016".to_owned();
        let gvisor = Situation { kernel, ..old };
        assert_eq!(cause("io_uring_setup", Errno::NOSYS, &gvisor), Cause::Gvisor);
    }

    #[test]
    fn limits_have_their_own_causes() {
        let seen = kernel_with_uring();
        assert_eq!(cause("io_uring_setup", Errno::NOMEM, &seen), Cause::Memlock(64 << 10));
        let may_lock = Situation { capabilities: CAP_IPC_LOCK, ..seen.clone() };
        assert_eq!(cause("io_uring_setup", Errno::NOMEM, &may_lock), Cause::Resources);
        let slots = Cause::AioSlots { used: 65_000, max: 65_536 };
        assert_eq!(cause("io_setup", Errno::AGAIN, &seen), slots);
        assert_eq!(cause("io_uring_setup", Errno::MFILE, &seen), Cause::Descriptors);
        assert_eq!(cause("clone", Errno::AGAIN, &seen), Cause::Resources);
    }

    #[test]
    fn a_refusal_is_one_line_and_so_is_the_advice() {
        let refusal = Refusal::classify("io_setup", Errno::AGAIN, &kernel_with_uring());
        assert_eq!(refusal.to_string(), "io_setup: EAGAIN, fs.aio-max-nr is used up (65000/65536)");
        assert_eq!(refusal.advice(), "raise it: sysctl fs.aio-max-nr=1048576");
        let filtered = Situation { enter: Some(Errno::PERM), ..kernel_with_uring() };
        let refusal = Refusal::classify("io_uring_setup", Errno::PERM, &filtered);
        assert!(!refusal.advice().contains('\n') && !refusal.advice().contains("  "));
    }

    #[test]
    fn the_running_system_is_described() {
        let seen = Situation::current();
        assert!(seen.kernel.starts_with("Linux"), "{seen:?}");
        assert!(seen.enter.is_some());
    }
}
