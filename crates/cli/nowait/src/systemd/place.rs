//! The folders of unit files. Source: systemd.unit(5), "Unit File Load Path".

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The folders from which a manager, the system's or a user's, reads unit files below one root.
#[derive(Debug)]
pub(crate) struct Place {
    root: PathBuf,
    /// The folders by precedence, the highest first, as paths inside the root.
    folders: Vec<PathBuf>,
    /// The administrator's or the user's folder, in which `nowait enable` writes.
    own: PathBuf,
    settings: &'static str,
}

const SYSTEM: [&str; 13] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
];

const LINKS_MAX: usize = 40;

impl Place {
    pub(crate) fn system(root: &Path) -> Place {
        Place {
            root: std::path::absolute(root).unwrap_or_else(|_| root.to_owned()),
            folders: SYSTEM.map(PathBuf::from).into(),
            own: PathBuf::from("/etc/systemd/system"),
            settings: "system.conf",
        }
    }

    /// `variable` reads the environment.
    pub(crate) fn user(variable: impl Fn(&str) -> Option<OsString>) -> Result<Place, String> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = set("HOME").map(PathBuf::from).ok_or("HOME is not set: set it, for --user")?;
        let folder = |name: &str, otherwise: &str| {
            set(name).map_or_else(|| home.join(otherwise), PathBuf::from).join("systemd")
        };
        let (config, data) =
            (folder("XDG_CONFIG_HOME", ".config"), folder("XDG_DATA_HOME", ".local/share"));
        let run = set("XDG_RUNTIME_DIR").map(|run| Path::new(&run).join("systemd"));
        let of_run = |name: &str| run.as_ref().map(|run| run.join(name));
        let own = config.join("user");
        let mut folders = vec![config.join("user.control")];
        folders.extend(
            ["user.control", "transient", "generator.early"].into_iter().filter_map(of_run),
        );
        folders.extend([own.clone(), PathBuf::from("/etc/systemd/user")]);
        folders.extend(of_run("user"));
        folders.push(PathBuf::from("/run/systemd/user"));
        folders.extend(of_run("generator"));
        folders.push(data.join("user"));
        let shared = ["/usr/local/share", "/usr/share", "/usr/local/lib", "/usr/lib"];
        folders.extend(shared.map(|folder| Path::new(folder).join("systemd/user")));
        folders.extend(of_run("generator.late"));
        Ok(Place { root: PathBuf::from("/"), folders, own, settings: "user.conf" })
    }

    /// Returns `true` if the root is the root of the running system, and not that of an image.
    pub(crate) fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    pub(crate) fn own(&self) -> &Path {
        &self.own
    }

    /// Returns the manager's main file, then its drop-ins. Source: systemd-system.conf(5).
    pub(crate) fn settings(&self) -> Vec<PathBuf> {
        let folders =
            ["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"];
        let mut mains = folders.iter().map(|folder| Path::new(folder).join(self.settings));
        let main = mains.find(|path| self.follow(path).is_file());
        let mut drop_ins = BTreeMap::new();
        for folder in folders {
            let folder = Path::new(folder).join(format!("{}.d", self.settings));
            let entries = std::fs::read_dir(self.follow(&folder)).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            for name in names.filter(|name| name.as_encoded_bytes().ends_with(b".conf")) {
                let path = folder.join(&name);
                drop_ins.entry(name).or_insert(path);
            }
        }
        main.into_iter().chain(drop_ins.into_values()).collect()
    }

    pub(crate) fn outside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Follows links in `path`, a path inside the root. Absolute links stay below the root.
    pub(crate) fn follow(&self, path: &Path) -> PathBuf {
        let parts = |path: &Path| -> Vec<OsString> {
            path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
        };
        let (mut left, mut done, mut links) = (parts(path), PathBuf::from("/"), 0);
        while let Some(part) = left.pop() {
            match Path::new(&part).components().next() {
                Some(Component::ParentDir) => drop(done.pop()),
                Some(Component::Normal(name)) => {
                    let next = done.join(name);
                    match std::fs::read_link(self.outside(&next)) {
                        Ok(target) if links < LINKS_MAX => {
                            links += 1;
                            if target.is_absolute() {
                                done = PathBuf::from("/");
                            }
                            left.extend(parts(&target));
                        }
                        _ => done = next,
                    }
                }
                _ => {}
            }
        }
        self.outside(&done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn absolute_links_stay_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        std::fs::write(root.path().join("usr/bin/real"), "").unwrap();
        symlink("/usr/bin", root.path().join("bin")).unwrap();
        symlink("/bin/../bin/real", root.path().join("usr/bin/link")).unwrap();
        symlink("circle", root.path().join("circle")).unwrap();
        let place = Place::system(root.path());
        assert_eq!(place.follow(Path::new("/bin/link")), root.path().join("usr/bin/real"));
        assert_eq!(place.follow(Path::new("/../../x")), root.path().join("x"));
        assert_eq!(place.follow(Path::new("/circle")), root.path().join("circle"));
    }

    #[test]
    fn a_user_s_own_folder_is_by_the_environment() {
        let place = Place::user(|name| match name {
            "HOME" => Some("/home/a".into()),
            "XDG_RUNTIME_DIR" => Some("/run/user/1".into()),
            _ => None,
        });
        let place = place.unwrap();
        assert_eq!(place.own(), Path::new("/home/a/.config/systemd/user"));
        assert!(place.folders().contains(&PathBuf::from("/run/user/1/systemd/generator")));
        assert!(Place::user(|_| None).is_err());
    }
}
