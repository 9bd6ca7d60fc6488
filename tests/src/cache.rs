//! A cache, below the build folder, of files that are expensive to make and never change.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Returns the folder `name`. Calls `make` to fill the folder, unless the last call that filled it
/// had the same `version`; returns the error of `make`.
pub fn folder<E>(
    name: &str,
    version: &str,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let lock = File::create(profile.join(format!("{name}.lock"))).expect("a lock file");
    lock.lock().expect("flock"); // other tests and test processes may make it, too
    let folder = profile.join(name);
    // The stamp lies beside the folder, because everything in the folder belongs to `make`.
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
