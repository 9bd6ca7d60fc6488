//! The resources that this process, or a thread of it, has used so far.

use std::io;

use crate::error::{Context, Result};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Used {
    pub cpu_us: f64,
    pub switches: f64,
}

impl Used {
    /// Returns the usage of all threads of the process, including those that have ended.
    pub fn now() -> Result<Self> {
        usage(libc::RUSAGE_SELF).map(|used| Self::of(&used))
    }

    pub fn of(used: &libc::rusage) -> Self {
        let time_us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        Self {
            cpu_us: time_us(used.ru_utime) + time_us(used.ru_stime),
            switches: (used.ru_nvcsw + used.ru_nivcsw) as f64,
        }
    }

    /// Each thread reports on the process when it ends, so the last report has the largest values.
    pub fn last(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |a, b| Self {
            cpu_us: a.cpu_us.max(b.cpu_us),
            switches: a.switches.max(b.switches),
        })
    }

    #[must_use]
    pub fn less(self, before: Self) -> Self {
        let (cpu_us, switches) = (self.cpu_us - before.cpu_us, self.switches - before.switches);
        Self { cpu_us, switches }
    }
}

pub fn cpu_us_of(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).context(|| format!("read {path}"))?;
    // SAFETY: sysconf reads no memory of this program.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(cpu_ticks(&text) * 1e6 / ticks_per_s.max(1) as f64)
}

/// The second field is a name in parentheses, which may contain spaces.
fn cpu_ticks(stat: &str) -> f64 {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().skip(11).take(2).flat_map(str::parse::<f64>).sum()
}

/// Returns how often the calling thread has gone to sleep so far.
pub fn sleeps() -> Result<u64> {
    Ok(usage(libc::RUSAGE_THREAD)?.ru_nvcsw as u64)
}

fn usage(of: libc::c_int) -> Result<libc::rusage> {
    // SAFETY: all-zero bytes are a valid rusage, which is made of integers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is a live local.
    if unsafe { libc::getrusage(of, &raw mut used) } != 0 {
        return Err(io::Error::last_os_error()).context(|| "getrusage".to_owned());
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_found_behind_its_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 2 0 30 12 0 0 20 0 1 0 5";
        assert_eq!((cpu_ticks(stat), cpu_ticks("")), (42.0, 0.0));
        assert!(cpu_us_of(std::process::id()).is_ok_and(|us| us >= 0.0));
    }
}
