//! The folder of this user's status sockets, and of the counters of programs.

use nowait_sys::{
    file::{O_NOFOLLOW, O_NONBLOCK},
    inspect,
};
use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

/// The folder of root's servers if `XDG_RUNTIME_DIR` is not set.
const ROOTS: &str = "/run/nowait";
const INSTANCES: (&str, &str) = ("/run", "nowait-serve-");

/// A running program normally writes its counters once a second. A file of this age or older is
/// ignored, because a killed program has probably left it.
const FIGURES_AGE_MAX: Duration = Duration::from_secs(10);

/// Returns the folder for the status sockets of this user's servers and for the counters of
/// programs. It is below `XDG_RUNTIME_DIR`. Without that variable it is `/run/nowait` for root; for
/// other users it is below the folder for temporary files.
pub fn folder() -> PathBuf {
    let user = inspect::user_ids().1;
    match env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join("nowait"),
        None if user == 0 => PathBuf::from(ROOTS),
        None => env::temp_dir().join(format!("nowait-{user}")),
    }
}

/// Returns [`folder()`] after a check that it belongs to this user. Makes a missing folder, for
/// this user alone.
///
/// # Errors
/// The folder cannot be made or examined, it is not a folder, or it belongs to another user.
pub fn own_folder() -> io::Result<PathBuf> {
    let folder = folder();
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Through another user's links in the folder, this process would write elsewhere.
    if !is_of(inspect::user_ids().1, &folder)? {
        let reason = format!("{} is not a private folder of this user", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(folder)
}

/// Returns the report that a program under `nowait run --stats` has written about itself, in JSON.
/// `None`: there is no report that is less than 10 seconds old, or it cannot be read.
pub fn figures(pid: u32) -> Option<serde_json::Value> {
    let mut files = folders().into_iter().map(|folder| folder.join(format!("run-{pid}.json")));
    files.find_map(|file| figures_in(&file))
}

fn figures_in(path: &Path) -> Option<serde_json::Value> {
    // Root also reads folders of other users, where the open of a FIFO would wait for a writer, and
    // the open of a device behind a link may have an effect.
    let mut options = fs::File::options();
    let file = options.read(true).custom_flags(O_NONBLOCK | O_NOFOLLOW).open(path).ok()?;
    let about = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let age = about.modified().ok()?.elapsed().unwrap_or_default();
    let text = io::read_to_string(file).ok().filter(|_| age < FIGURES_AGE_MAX)?;
    // A file that its program is writing at this moment may not parse.
    serde_json::from_str(&text).ok()
}

fn folders() -> Vec<PathBuf> {
    let user = inspect::user_ids().1;
    let mut folders = vec![folder()];
    if user == 0 {
        folders.push(PathBuf::from(ROOTS));
        folders.extend(instances(Path::new(INSTANCES.0)));
    }
    // Any user can make a folder with this name in the folder for temporary files.
    folders.retain(|folder| user == 0 || is_of(user, folder).unwrap_or(false));
    folders
}

/// Returns `true` if the file at `folder` is a folder, not a link, and belongs to `user`.
fn is_of(user: u32, folder: &Path) -> io::Result<bool> {
    let about = fs::symlink_metadata(folder)?;
    Ok(about.is_dir() && about.uid() == user)
}

fn instances(run: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(run).into_iter().flatten().flatten();
    let of_unit =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(INSTANCES.1));
    of_unit.map(|entry| entry.path().join("nowait"))
}

/// Returns the paths of the sockets of this user's servers; for root, also of the services of
/// `contrib/systemd`. Servers that ended without removing their sockets are included.
pub fn sockets() -> Vec<PathBuf> {
    let entries = folders().into_iter().flat_map(|folder| fs::read_dir(folder).into_iter());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::symlink, process::Command};

    #[test]
    fn instances_of_the_unit_have_folders_of_their_own() {
        let run = tempfile::tempdir().unwrap();
        for name in ["nowait-serve-a", "nowait-serve", "nowait", "other"] {
            fs::create_dir(run.path().join(name)).unwrap();
        }
        let found: Vec<PathBuf> = instances(run.path()).collect();
        assert_eq!(found, [run.path().join("nowait-serve-a/nowait")]);
    }

    #[test]
    fn figures_come_from_files_only() {
        let run = tempfile::tempdir().unwrap();
        let [file, link, fifo] = ["file", "link", "fifo"].map(|name| run.path().join(name));
        fs::write(&file, "{}").unwrap();
        assert_eq!(figures_in(&file), Some(serde_json::json!({})));
        symlink(&file, &link).unwrap();
        assert_eq!(figures_in(&link), None);
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(figures_in(&fifo), None);
    }

    #[test]
    fn a_folder_of_another_user_is_not_read() {
        let run = tempfile::tempdir().unwrap();
        let owner = fs::metadata(run.path()).unwrap().uid();
        assert!(is_of(owner, run.path()).unwrap());
        assert!(!is_of(owner + 1, run.path()).unwrap());
        let link = run.path().join("link");
        symlink(run.path(), &link).unwrap();
        assert!(!is_of(owner, &link).unwrap());
    }
}
