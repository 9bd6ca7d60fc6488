//! Busy loops beside the runs: a machine whose processors have other work.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::error::{Context, Result};

/// Processes that only burn processor time, at the ordinary priority; dropping it ends them.
pub struct Busy(Vec<Child>);

impl Busy {
    /// Starts so many of them.
    ///
    /// # Errors
    /// The shell cannot be started.
    pub fn start(count: usize) -> Result<Self> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            // SAFETY: between fork and exec the closure makes one system call on constants.
            unsafe {
                command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?))
            };
            busy.0.push(command.spawn().context(|| "cannot start a busy loop".to_owned())?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // If the process has ended already, nothing is left to do.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::cpu_us_of;
    use std::time::{Duration, Instant};

    #[test]
    fn a_loop_burns_processor_time_and_ends_with_its_owner() {
        let busy = Busy::start(1).expect("a shell");
        let (pid, begun) = (busy.0[0].id(), Instant::now());
        while cpu_us_of(pid).is_ok_and(|us| us < 20_000.0) {
            assert!(begun.elapsed() < Duration::from_secs(20), "the loop does not run");
            std::thread::yield_now();
        }
        drop(busy);
        assert!(cpu_us_of(pid).is_err(), "it has ended");
    }
}
