//! Processes with more than one engine. The preload library (or nowait's libaio), the C library and
//! the Python package each bring an engine: these work side by side, and share nothing.

use crate::libraries;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// A process, and the files that brought its engines.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Engines {
    pub(super) pid: u32,
    pub(super) program: String,
    /// Paths as the process sees them.
    pub(super) brought_by: Vec<String>,
}

/// Inspects all processes that this user may inspect.
pub(super) fn several(proc: &Path) -> Vec<Engines> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<_> = numbers.filter_map(|pid| look_at(proc, pid)).collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn look_at(proc: &Path, pid: u32) -> Option<Engines> {
    let folder = proc.join(pid.to_string());
    let maps = fs::read_to_string(folder.join("maps")).ok()?;
    let mut kinds = Vec::new();
    let mut brought_by = Vec::new();
    for path in maps.lines().filter_map(mapped) {
        let Some(kind) = Kind::of(path).filter(|kind| !kinds.contains(kind)) else { continue };
        if kind != Kind::DropIn || is_ours(&folder, path) {
            kinds.push(kind);
            brought_by.push(path.to_owned());
        }
    }
    let program = fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned();
    (kinds.len() > 1).then_some(Engines { pid, program, brought_by })
}

/// Reads a line of proc_pid_maps(5).
fn mapped(line: &str) -> Option<&str> {
    let path = &line[line.find('/')?..];
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

/// The kind of library that brings an engine into a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The preload library or libaio: if both are loaded, the program uses the functions of the
    /// first.
    DropIn,
    Library,
    Python,
}

impl Kind {
    fn of(path: &str) -> Option<Kind> {
        let (folder, name) = path.rsplit_once('/')?;
        let is = |start: &str| name.starts_with(start);
        if is("libnowait_preload.so") || is("libaio.so.1") {
            Some(Kind::DropIn)
        } else if is("libnowait.so") {
            Some(Kind::Library)
        } else {
            (is("_nowait.") && folder.ends_with("/nowait")).then_some(Kind::Python)
        }
    }
}

/// Returns `true` if a library with the name of the system's libaio is nowait's.
fn is_ours(folder: &Path, path: &str) -> bool {
    let seen = folder.join("root").join(path.trim_start_matches('/'));
    path.contains("libnowait") || libraries::version(&seen).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_with_engines_of_two_kinds_are_found_and_no_others() {
        let proc = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = proc.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let process = |pid: u32, paths: &[&str]| {
            let line = |path: &&str| format!("7f00-7f01 r-xp 00000000 08:01 42    {path}\n");
            file(&format!("{pid}/maps"), &paths.iter().map(line).collect::<String>());
            file(&format!("{pid}/comm"), "python3\n");
        };
        let (preload, own, c) = ("/o/libnowait_preload.so", "/o/libaio.so.1", "/o/libnowait.so.0");
        let (module, other) = ("/v/nowait/_nowait.abi3.so", "/usr/lib/libaio.so.1.0.2");
        process(1, &[module, preload, preload, "/lib/libc.so.6"]);
        process(2, &[own, c]);
        file("2/root/o/libaio.so.1", "\0nowait 1.2.3 library\0");
        process(3, &[preload, own, other]);
        process(4, &[other, module]);
        process(5, &[module, module, "/x/other/_nowait.abi3.so"]);
        process(6, &["/o/libnowait.so.0 (deleted)", module, own]);
        file("self/maps", module);
        let found = several(proc.path());
        let seen: Vec<_> = found.iter().map(|it| (it.pid, it.brought_by.len())).collect();
        assert_eq!(seen, [(1, 2), (2, 2), (6, 2)]);
        assert_eq!(found[0].brought_by, [module, preload]);
        assert_eq!(found[2].brought_by[0], c);
    }
}
