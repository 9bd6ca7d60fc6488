//! Processes with a library of nowait. `nowait status` finds them through /proc and does not
//! contact them.

use crate::args::Via;
use crate::libraries;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) unit: Option<String>,
    pub(super) library: String,
    pub(super) version: Option<String>,
    /// The file of the library was replaced or deleted after the process had loaded it.
    pub(super) is_replaced: bool,
    /// From the report, or derived from threads, descriptors and mappings. `threads` may also mean
    /// that there is no ring or context yet. Null: the engine has no threads yet.
    pub(super) backend: Option<String>,
    /// The last report of a process under `nowait run --stats`, if it is recent.
    pub(super) report: Option<Value>,
}

/// The beginning of the names of the engine's threads.
const THREADS: &str = "nowait-";

/// Skips processes that this user may not inspect.
pub(super) fn all(proc: &Path) -> Vec<Process> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut versions = HashMap::new();
    let mut found: Vec<_> = numbers
        .filter_map(|pid| look_at(&proc.join(u32::to_string(&pid)), pid, &mut versions))
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn look_at(
    folder: &Path,
    pid: u32,
    versions: &mut HashMap<PathBuf, Option<String>>,
) -> Option<Process> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let maps = read("maps")?;
    let mut libraries = maps.lines().filter_map(mapped_library);
    let (library, _, is_replaced) = libraries.find(|(path, via, is_replaced)| {
        // Any libaio has that name. The version in the mapped file shows if it is nowait's; a file
        // that has replaced the mapped one shows nothing.
        *via == Via::Preload || (!is_replaced && version(folder, path, versions).is_some())
    })?;
    let version = if is_replaced { None } else { version(folder, library, versions) };
    let report = nowait_status::place::figures(pid);
    let reported = report.as_ref().and_then(|report| report["backend"].as_str());
    Some(Process {
        pid,
        program: read("comm").unwrap_or_default().trim().to_owned(),
        unit: read("cgroup").and_then(|text| unit_of(&text)),
        library: library.to_owned(),
        version,
        is_replaced,
        backend: reported.or_else(|| backend(folder, &maps)).map(str::to_owned),
        report,
    })
}

/// Parses a line of proc_pid_maps(5). `true`: the file was deleted or replaced.
fn mapped_library(line: &str) -> Option<(&str, Via, bool)> {
    let path = &line[line.find('/')?..];
    let (path, is_replaced) = match path.strip_suffix(" (deleted)") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let name = Path::new(path).file_name()?.to_str()?;
    let is = |via: &Via| name.starts_with(via.file_name());
    let via = [Via::Preload, Via::Libaio].into_iter().find(is)?;
    Some((path, via, is_replaced))
}

/// The path is as the process sees it, perhaps in a container. Reads each file only once.
fn version(
    folder: &Path,
    path: &str,
    versions: &mut HashMap<PathBuf, Option<String>>,
) -> Option<String> {
    let file = folder.join("root").join(path.trim_start_matches('/'));
    let file = if file.exists() { file } else { PathBuf::from(path) };
    let real = fs::canonicalize(&file).unwrap_or(file);
    versions.entry(real).or_insert_with_key(|file| libraries::version(file)).clone()
}

fn unit_of(cgroup: &str) -> Option<String> {
    let parts = cgroup.lines().flat_map(|line| line.rsplit('/'));
    parts.into_iter().find(|part| part.ends_with(".service")).map(str::to_owned)
}

fn backend(folder: &Path, maps: &str) -> Option<&'static str> {
    let tasks = fs::read_dir(folder.join("task")).ok()?.flatten().map(|entry| entry.path());
    let is_ours = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with(THREADS))
    };
    let ours: Vec<_> = tasks.filter(is_ours).collect();
    let has_ring = |task: &PathBuf| {
        let entries = fs::read_dir(task.join("fd")).into_iter().flatten().flatten();
        let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.into_iter().any(|target| target == Path::new("anon_inode:[io_uring]"))
    };
    if ours.is_empty() {
        None
    } else if ours.iter().any(has_ring) {
        Some("uring")
    } else if maps.lines().any(|line| line.contains("/[aio]")) {
        Some("kaio")
    } else {
        Some("threads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Proc(tempfile::TempDir);

    impl Proc {
        fn file(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// The process has a second thread `thread`, with a descriptor that leads to `target`.
        fn process(&self, pid: u32, maps: &str, thread: &str, target: &str) {
            self.file(&format!("{pid}/maps"), maps);
            self.file(&format!("{pid}/comm"), "fio\n");
            self.file(&format!("{pid}/task/{pid}/comm"), "fio\n");
            self.file(&format!("{pid}/task/9/comm"), thread);
            let fd = self.0.path().join(format!("{pid}/task/9/fd"));
            fs::create_dir_all(&fd).unwrap();
            symlink(target, fd.join("3")).unwrap();
        }
    }

    #[test]
    fn processes_are_told_by_what_they_have_mapped_and_backends_by_what_they_use() {
        let proc = Proc(tempfile::tempdir().unwrap());
        let map =
            |path: &str| format!("7f00-7f01 r-xp 00000000 08:01 42    {path}\n7f02-7f03 rw-p\n");
        let preload = map("/a b/libnowait_preload.so");
        let aio = format!("{preload}7f04-7f05 rw-s 00000000 00:0e 7 /[aio] (deleted)\n");
        let ring = "anon_inode:[io_uring]";
        proc.process(1, &preload, "nowait-driver\n", ring);
        proc.process(2, &aio, "nowait-w0\n", "anon_inode:[eventfd]");
        proc.process(3, &preload, "nowait-w0\n", "/x");
        // The program has a ring of its own, and the engine has no thread.
        proc.process(4, &map("/a b/libnowait_preload.so (deleted)"), "fio\n", ring);
        proc.process(5, &map("/usr/lib/libaio.so.1.0.2"), "fio\n", "/x");
        proc.process(6, &map("/opt/lib/libaio.so.1"), "nowait-w0\n", "/x");
        proc.file("6/root/opt/lib/libaio.so.1", "\0nowait 1.2.3-rc.4 library\0");
        proc.file("6/cgroup", "0::/system.slice/system-a.slice/a@1.service/sub\n");
        proc.file("self/maps", &preload);
        let found = all(proc.0.path());
        let seen: Vec<_> =
            found.iter().map(|it| (it.pid, it.backend.as_deref(), it.is_replaced)).collect();
        let expected = [
            (1, Some("uring"), false),
            (2, Some("kaio"), false),
            (3, Some("threads"), false),
            (4, None, true),
            (6, Some("threads"), false),
        ];
        assert_eq!(seen, expected);
        assert_eq!(found[0].library, "/a b/libnowait_preload.so");
        assert_eq!(found[4].version.as_deref(), Some("1.2.3-rc.4"));
        assert_eq!(found[4].unit.as_deref(), Some("a@1.service"));
    }
}
