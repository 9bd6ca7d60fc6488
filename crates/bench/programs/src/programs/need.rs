//! The programs and packages that a case needs, and the command that installs missing ones.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::nginx;
use super::python::{CAIO_PACKAGE, NIXL_PACKAGE, Package, Packages};
use super::{Load, Way};
use crate::kv::tier;

/// Folders of programs that the search path of a user may leave out.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Lack {
    pub(crate) why: String,
    /// The command that installs the missing program or package, or a hint; empty if there is none.
    pub(crate) install: String,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.install)
    }
}

/// A program, and Debian's package of it.
type Program = (&'static str, &'static str);

pub(super) fn lack(load: &Load, way: &Way, packages: &mut Packages) -> Option<Lack> {
    let (programs, wanted) = needs(load, way);
    let missing = programs.iter().find(|(name, _)| program(name).is_none());
    if let Some((name, package)) = missing {
        let (why, install) = (format!("{name} is not installed"), format!("apt install {package}"));
        return Some(Lack { why, install });
    }
    let packages = wanted.iter().find_map(|package| packages.lack(*package));
    packages.or_else(|| matches!(load, Load::Nginx {}).then(nginx::lack).flatten())
}

fn needs(load: &Load, way: &Way) -> (&'static [Program], &'static [Package]) {
    const PYTHON: &[Program] = &[("python3", "python3-venv")];
    match load {
        Load::Qemu { .. } => {
            (&[("qemu-storage-daemon", "qemu-system-common"), ("fio", "fio")], &[])
        }
        Load::Caio { .. } => (PYTHON, &[CAIO_PACKAGE]),
        Load::Nixl { .. } => (PYTHON, &[NIXL_PACKAGE]),
        Load::Tier(_) if tier::is_ours(way) => (PYTHON, &[tier::VLLM, tier::OURS]),
        Load::Tier(_) => (PYTHON, &[tier::VLLM]),
        Load::Mariadb { .. } => (
            &[
                ("mariadbd", "mariadb-server"),
                ("mariadb-install-db", "mariadb-server"),
                ("mariadb", "mariadb-client"),
                ("sysbench", "sysbench"),
            ],
            &[],
        ),
        Load::Nginx {} => (&[("nginx", "nginx")], &[]),
        Load::Thin {} => (
            &[
                ("thin_check", "thin-provisioning-tools"),
                ("thin_restore", "thin-provisioning-tools"),
            ],
            &[],
        ),
        Load::SysbenchFiles { .. } => (&[("sysbench", "sysbench")], &[]),
    }
}

pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(SYSTEM_FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| Path::is_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_users_do_not_look() {
        assert!(program("sh").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(program("no-such-program"), None);
    }
}
