//! Names of files that the server has made, each with the file's device and inode. By device and
//! inode the server recognizes another file that has taken the name, and does not remove that file.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub(crate) struct OwnName {
    path: PathBuf,
    file: (u64, u64),
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl OwnName {
    /// Records the device and inode of the file at `path`, which the caller has just made.
    pub(crate) fn new(path: &Path) -> io::Result<OwnName> {
        Ok(OwnName { path: path.to_owned(), file: identity(path)? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the name, unless it belongs to another file by now. Does not see a change of the
    /// name between the check and the removal. Ignores errors.
    pub(crate) fn remove(&self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
