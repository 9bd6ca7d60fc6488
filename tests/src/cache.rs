//! A cache of what is expensive to make and never changes, below the build folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The folder `name`, filled by `make` if it is not there in this `version` already.
pub fn folder<E>(
    name: &str,
    version: &str,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let lock = File::create(profile.join(format!("{name}.lock"))).expect("a lock file");
    lock.lock().expect("flock"); // other tests and test processes may be at it too
    let folder = profile.join(name);
    // Beside the folder: what is in it is the maker's.
    let stamp = profile.join(format!("{name}.version"));
    if fs::read_to_string(&stamp).is_ok_and(|made| made == version) && folder.exists() {
        return Ok(folder);
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder in the build folder");
    make(&folder)?;
    fs::write(&stamp, version).expect("a stamp");
    Ok(folder)
}
