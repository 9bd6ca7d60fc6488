//! Identifies a file, so that the server does not remove another one that has its name.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The device and inode of a file. No other file has them while this one is open, or has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of the file at `path`, without following a link.
    ///
    /// # Errors
    /// The errors of lstat(2).
    pub(crate) fn of(path: &Path) -> io::Result<Identity> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Identity { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Returns `true` if the file still has this name.
    pub(crate) fn is_at(self, path: &Path) -> bool {
        Identity::of(path).is_ok_and(|there| there == self)
    }
}

/// The name of a file that this server has made.
#[derive(Debug)]
pub struct OwnName {
    path: PathBuf,
    identity: Identity,
}

impl OwnName {
    /// Notes the file at `path`, which was just made.
    ///
    /// # Errors
    /// The errors of lstat(2).
    pub(crate) fn new(path: &Path) -> io::Result<OwnName> {
        Ok(OwnName { path: path.to_owned(), identity: Identity::of(path)? })
    }

    /// Removes the name, unless it belongs to another file by now.
    pub(crate) fn remove(&self) {
        if self.identity.is_at(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
