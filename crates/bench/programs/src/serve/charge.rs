//! The page cache charged to a server: its memory cgroup tells, where one can
//! be made. The machine's counters tell it only on a machine that does nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use nowait_harness::memory;

/// Where cgroups with memory are, and what the line is called: of the first version, the second.
const PLACES: [(&str, &str); 2] = [("/sys/fs/cgroup/memory", "cache"), ("/sys/fs/cgroup", "file")];

/// Counts from one moment to another.
#[derive(Debug)]
pub(crate) struct Charge {
    /// `None`: the whole machine is looked at.
    group: Option<Group>,
    before: f64,
}

#[derive(Debug)]
struct Group {
    folder: PathBuf,
    field: &'static str,
}

impl Charge {
    /// Begins to count what is cached for the process `pid`, which is moved into a cgroup of its
    /// own, if it is one.
    pub(crate) fn begin(pid: Option<u32>) -> Self {
        let group = pid.and_then(|pid| PLACES.into_iter().find_map(|place| Group::of(pid, place)));
        let mut charge = Self { group, before: 0.0 };
        charge.before = charge.bytes();
        charge
    }

    /// Returns by how much it has grown, in bytes.
    pub(crate) fn growth(&self) -> f64 {
        (self.bytes() - self.before).max(0.0)
    }

    fn bytes(&self) -> f64 {
        self.group.as_ref().map_or_else(memory::cached_and_buffers_bytes, |group| {
            group.bytes().unwrap_or(f64::NAN)
        })
    }
}

impl Group {
    fn of(pid: u32, (root, field): (&str, &'static str)) -> Option<Self> {
        let folder = Path::new(root).join(format!("nowait-bench-{pid}"));
        fs::create_dir(&folder).ok()?;
        // Removed again if it has no such counter.
        let group = Self { folder, field };
        group.bytes()?;
        fs::write(group.folder.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(group)
    }

    fn bytes(&self) -> Option<f64> {
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        field(&text, self.field)
    }
}

/// The kernel refuses while the process is there: drop it afterwards.
impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

fn field(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(field, _)| *field == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "total_cache 7\ncache 12288\nfile_dirty 1\n";
        assert_eq!(field(text, "cache"), Some(12288.0));
        assert_eq!(field(text, "file"), None);
    }

    #[test]
    fn without_a_process_the_machine_is_looked_at() {
        let charge = Charge::begin(None);
        assert!(charge.before > 0.0 && charge.growth() >= 0.0);
    }
}
