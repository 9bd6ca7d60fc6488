//! The needs of a case: whether they are there, and the command that installs them.

use std::env;
use std::path::{Path, PathBuf};

use super::Load;
use super::nginx;
use super::python::{CAIO_PACKAGE, NIXL_PACKAGE};

/// Folders of programs that the search path of a user may leave out.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Something that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    /// Such as `nginx is not installed`.
    pub(crate) why: String,
    /// The command that installs it.
    pub(crate) install: String,
}

/// Returns the program or package that a case lacks here, if any; `python` is the folder of
/// Python's packages, and `install` tells whether they may be installed into it.
pub(super) fn lack(load: &Load, python: &Path, install: bool) -> Option<Lack> {
    let (programs, package): (&[(&str, &str)], _) = match load {
        Load::Qemu { .. } => {
            (&[("qemu-storage-daemon", "qemu-system-common"), ("fio", "fio")], None)
        }
        Load::Caio { .. } => (&[("python3", "python3-venv")], Some(CAIO_PACKAGE)),
        Load::Nixl { .. } => (&[("python3", "python3-venv")], Some(NIXL_PACKAGE)),
        Load::Mariadb { .. } => (
            &[
                ("mariadbd", "mariadb-server"),
                ("mariadb-install-db", "mariadb-server"),
                ("mariadb", "mariadb-client"),
                ("sysbench", "sysbench"),
            ],
            None,
        ),
        Load::Nginx {} => (&[("nginx", "nginx")], None),
        Load::Thin {} => (
            &[
                ("thin_check", "thin-provisioning-tools"),
                ("thin_restore", "thin-provisioning-tools"),
            ],
            None,
        ),
        Load::SysbenchFiles { .. } => (&[("sysbench", "sysbench")], None),
    };
    let missing = programs.iter().find(|(name, _)| program(name).is_none());
    match missing {
        None if matches!(load, Load::Nginx {}) => nginx::lack(),
        None => package.and_then(|package| package.lack(python, install)),
        Some((name, package)) => Some(Lack {
            why: format!("{name} is not installed"),
            install: format!("apt install {package}"),
        }),
    }
}

/// Finds a program.
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
