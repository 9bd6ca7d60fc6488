//! Probes find out which backends work on this machine, by using them.
//!
//! No probe panics, leaves a descriptor open or writes to a file of the application. Probes do not
//! move their descriptors to high numbers: the descriptors live only briefly, and growing the
//! descriptor table of a program with several threads takes 16 ms.

mod kaio;
mod refusal;
mod support;
mod threads;
mod uring;

use nowait_sys::{Errno, Fd, inspect, own_thread, thread};
use std::fmt::Write as _;

pub use kaio::kaio;
pub use refusal::{Cause, Refusal, Situation};
pub use support::{Alignment, Answer, NowaitSupport, nowait_support};
pub use threads::threads;
pub use uring::uring;

/// The result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `uring`, `kaio` or `threads`, as in NOWAIT_BACKEND.
    pub backend: &'static str,
    /// `Ok` if the backend can be used here.
    pub usable: Result<(), Refusal>,
    /// Further findings. A refusal in a finding costs only speed or a guarantee.
    pub details: Vec<Detail>,
}

/// A further finding of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The name of the finding, a lower-case identifier.
    pub name: &'static str,
    /// The result, or why it does not work.
    pub found: Result<String, Refusal>,
}

impl Probe {
    fn refused(backend: &'static str, refusal: Refusal) -> Probe {
        Probe { backend, usable: Err(refusal), details: Vec::new() }
    }

    /// Returns the detail called `name`.
    pub fn detail(&self, name: &str) -> Option<&Detail> {
        self.details.iter().find(|detail| detail.name == name)
    }
}

/// The choice of `auto`, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// `uring`, `kaio` or `threads`.
    pub backend: &'static str,
    /// One line for logs and reports.
    pub reason: String,
}

/// Chooses the best backend that works. Probes native AIO only if io_uring does not work.
pub fn auto() -> Choice {
    let uring = uring();
    if uring.usable.is_ok() {
        return choose(&[uring]);
    }
    choose(&[uring, kaio()])
}

/// Chooses the first usable backend of `probes`, which are in order of preference; threads if none
/// is usable.
pub fn choose(probes: &[Probe]) -> Choice {
    let mut reason = String::new();
    for probe in probes {
        match &probe.usable {
            Ok(()) => {
                let _ = write!(reason, "{} works", probe.backend);
                return Choice { backend: probe.backend, reason };
            }
            Err(refusal) => {
                let _ = write!(reason, "{}: {refusal}; ", probe.backend);
            }
        }
    }
    reason.push_str("threads always work");
    Choice { backend: "threads", reason }
}

/// Runs `work` on a new thread that blocks all signals, and waits for its result. `EIO`: `work`
/// panicked.
pub(crate) fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Errno> {
    // A new thread starts with the signal mask of the thread that makes it.
    let mask = thread::swap_signal_mask(thread::ALL_SIGNALS);
    let done = own_thread::aside("nowait-probe", STACK_BYTES, work);
    thread::swap_signal_mask(mask);
    done
}

const STACK_BYTES: usize = 64 << 10;

const CONTENT: &[u8; 16] = b"nowait-probe-16b";

/// Makes a file in memory, or else opens the file of the running program.
fn test_file() -> Result<Fd, Refusal> {
    let file = inspect::memory_file(CONTENT).or_else(|refused| {
        inspect::open(c"/proc/thread-self/exe", inspect::O_RDONLY, 0).map_err(|_| refused)
    });
    file.map_err(|errno| Refusal::diagnose("memfd_create", errno))
}

/// A negative `result` is an errno.
fn check_read(call: &'static str, result: i64) -> Result<(), Refusal> {
    match result {
        16 => Ok(()),
        -4095..0 => Err(Refusal::diagnose(call, Errno::new(-result as i32))),
        _ => Err(Refusal::diagnose(call, Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(backend: &'static str) -> Probe {
        Probe { backend, usable: Ok(()), details: Vec::new() }
    }

    fn refused(backend: &'static str) -> Probe {
        let refusal = Refusal { call: "io_setup", errno: Errno::NOSYS, cause: Cause::NoKernel };
        Probe::refused(backend, refusal)
    }

    #[test]
    fn the_first_usable_backend_is_chosen_and_the_reason_names_the_others() {
        assert_eq!(choose(&[ok("uring"), ok("kaio")]).backend, "uring");
        let second = choose(&[refused("uring"), ok("kaio")]);
        assert_eq!(second.backend, "kaio");
        assert!(second.reason.starts_with("uring: io_setup: ENOSYS"), "{}", second.reason);
        assert!(second.reason.ends_with("kaio works"), "{}", second.reason);
        assert_eq!(choose(&[refused("uring"), refused("kaio")]).backend, "threads");
    }

    #[test]
    fn a_probe_is_quick_and_leaves_no_descriptor() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        // Other tests of this process open files, too: repeat until none did meanwhile.
        let quiet = (0..50).any(|_| {
            let (before, start) = (open(), std::time::Instant::now());
            let _ = (uring(), kaio());
            let elapsed = start.elapsed();
            let _ = threads();
            open() == before && elapsed.as_millis() < 5
        });
        assert!(quiet, "descriptors left, or too slow");
    }

    #[test]
    fn what_works_says_so_and_what_does_not_says_why() {
        for probe in [uring(), kaio(), threads()] {
            println!("{probe:?}");
            if let Err(refusal) = probe.usable {
                assert!(!refusal.advice().is_empty());
            }
        }
    }
}
