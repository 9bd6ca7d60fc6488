//! A system whose root is a folder of the test, with unit files, programs and libraries.

use crate::support::{nowait, outcome};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub(crate) const ETC: &str = "etc/systemd/system";
pub(crate) const LIB: &str = "usr/lib/systemd/system";
pub(crate) const LIBRARY: &str = "/usr/lib/nowait/libnowait_preload.so";

const SYSTEMD: &str = "/usr/lib/systemd/systemd";

pub(crate) struct System {
    root: TempDir,
}

impl System {
    pub(crate) fn new() -> System {
        let system = System { root: tempfile::tempdir().unwrap() };
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(system.root.path(), open).unwrap();
        for name in ["libnowait_preload.so", "libaio.so.1"] {
            system.file(&format!("usr/lib/nowait/{name}"), "");
        }
        system.program("usr/sbin/daemon", &fs::read("/bin/true").unwrap());
        system
    }

    pub(crate) fn with(lines: &str) -> System {
        let system = System::new();
        let text = format!("[Service]\nExecStart=/usr/sbin/daemon\n{lines}\n");
        system.file(&format!("{LIB}/a.service"), &text);
        system
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(crate) fn program(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn nowait(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = nowait(args);
        command.arg("--root").arg(self.root.path()).env("NOWAIT_LIBDIR", "/usr/lib/nowait");
        outcome(&mut command)
    }

    pub(crate) fn environments(
        &self,
        units: &[String],
    ) -> Option<BTreeMap<String, Vec<(String, String)>>> {
        if !Path::new(SYSTEMD).exists() {
            return None;
        }
        let wants = format!("[Unit]\nWants={}\n", units.join(" "));
        self.file(&format!("{ETC}/all.target"), &wants);
        let mut command = Command::new(SYSTEMD);
        let folders = format!("{}:{}", self.path(ETC).display(), self.path(LIB).display());
        command.args(["--test", "--system", "--unit=all.target"]);
        command.env_clear().env("SYSTEMD_UNIT_PATH", folders).env("SYSTEMD_LOG_TARGET", "console");
        // SAFETY: geteuid(2) takes no argument and cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            // systemd does not run its test mode as root.
            command.uid(65_534).gid(65_534);
        }
        let (code, out, err) = outcome(&mut command);
        assert_eq!(code, 0, "{err}");
        let mut found: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        let mut unit = String::new();
        for line in out.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("-> Unit ") {
                name.trim_end_matches(':').clone_into(&mut unit);
            } else if let Some(pair) = line.strip_prefix("Environment: ") {
                let (name, value) = pair.split_once('=').unwrap();
                let pair = (name.to_owned(), value.to_owned());
                found.entry(unit.clone()).or_default().push(pair);
            }
        }
        Some(found)
    }
}
