//! A running process that `--program` names by its number.

use serde::Serialize;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// `None`: this user may not read the mappings of the process.
    pub(super) has_nowait: Option<bool>,
    /// A seccomp filter is in force for the process, so other backends may work there than here.
    pub(super) has_filter: bool,
}

impl Process {
    /// Returns `None` unless `name` is the number of a process that this user may inspect.
    pub(super) fn look(proc: &Path, name: &OsStr) -> Option<(Process, PathBuf)> {
        let pid = name.to_str()?.parse().ok()?;
        let folder = proc.join(name);
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let program = fs::read_link(folder.join("exe")).ok()?;
        let maps = fs::read_to_string(folder.join("maps")).ok();
        let process = Process {
            pid,
            has_nowait: maps.map(|maps| maps.contains("libnowait_preload.so")),
            has_filter: status.lines().any(|line| line == "Seccomp:\t2"),
        };
        Some((process, program))
    }

    /// The returned path works even if the process has another root, as in a container.
    pub(super) fn executable(self, proc: &Path) -> PathBuf {
        proc.join(self.pid.to_string()).join("exe")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_process_shows_if_nowait_is_loaded_and_a_filter_in_force() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("47");
        fs::create_dir(&folder).unwrap();
        symlink("/usr/bin/fio", folder.join("exe")).unwrap();
        fs::write(folder.join("status"), "Name:\tfio\nSeccomp:\t2\nSeccomp_filters:\t1\n").unwrap();
        let look = |name: &str| Process::look(proc.path(), OsStr::new(name));
        let (process, program) = look("47").unwrap();
        assert_eq!(program, Path::new("/usr/bin/fio"));
        assert_eq!(process, Process { pid: 47, has_nowait: None, has_filter: true });
        fs::write(folder.join("maps"), "7f00-7f01 r-xp 0 08:01 42 /x/libnowait_preload.so\n")
            .unwrap();
        assert_eq!(look("47").unwrap().0.has_nowait, Some(true));
        assert!(look("48").is_none() && look("fio").is_none());
    }
}
