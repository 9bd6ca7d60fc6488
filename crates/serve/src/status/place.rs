//! Where the status sockets of this user are.

use nowait_sys::inspect;
use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process,
};

/// Returns the folder in which each server has a socket: below `XDG_RUNTIME_DIR`, `/run` for root.
pub fn folder() -> PathBuf {
    let user = inspect::user_ids().1;
    match env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join("nowait"),
        None if user == 0 => PathBuf::from("/run/nowait"),
        None => env::temp_dir().join(format!("nowait-{user}")),
    }
}

/// Returns the path of this process's socket, in a folder that is this user's alone.
///
/// # Errors
/// The folder cannot be made, or it is somebody else's.
pub fn own_socket() -> io::Result<PathBuf> {
    let folder = folder();
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let about = fs::symlink_metadata(&folder)?;
    // Somebody else's folder in /tmp could lead us anywhere.
    if !about.is_dir() || about.uid() != inspect::user_ids().1 {
        let reason = format!("{} is not a folder of ours", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(folder.join(format!("serve-{}.sock", process::id())))
}

/// Returns the sockets of all servers of this user, those that ended without removing theirs
/// among them.
pub fn sockets() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder()) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    found.sort();
    found
}
