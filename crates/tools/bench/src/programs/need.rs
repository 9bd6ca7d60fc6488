//! What a case needs, whether it is there, and the command that installs it.

use std::env;
use std::path::{Path, PathBuf};

use super::cases::Load;

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

/// Says what a case lacks here, if it lacks anything.
pub(crate) fn lack(load: Load) -> Option<Lack> {
    programs(load).iter().find_map(|(name, package)| {
        let missing = program(name).is_none();
        missing.then(|| Lack {
            why: format!("{name} is not installed"),
            install: format!("apt install {package}"),
        })
    })
}

/// Returns the programs of a case, with their packages in Debian.
fn programs(load: Load) -> &'static [(&'static str, &'static str)] {
    match load {
        Load::Qemu { .. } => &[("qemu-storage-daemon", "qemu-system-common"), ("fio", "fio")],
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
