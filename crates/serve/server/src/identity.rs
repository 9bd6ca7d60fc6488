//! Identifies a file, so that the server does not remove another one that has its name.

use core::{fmt, num::ParseIntError, str::FromStr};
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

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

impl FromStr for Identity {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Identity, ParseIntError> {
        let (device, inode) = text.split_once(':').unwrap_or((text, ""));
        Ok(Identity { device: device.parse()?, inode: inode.parse()? })
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

    /// Takes over an empty file that an earlier server has made at `path`; `None`: the file is
    /// gone, or another program has written to it.
    pub(crate) fn left_at(path: &Path, identity: Identity) -> Option<OwnName> {
        let metadata = fs::symlink_metadata(path).ok()?;
        let is_left = metadata.is_file() && metadata.len() == 0 && identity.is_at(path);
        is_left.then(|| OwnName { path: path.to_owned(), identity })
    }

    /// Returns the identity of the file.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Removes the name, unless it belongs to another file by now.
    pub(crate) fn remove(&self) {
        if self.identity.is_at(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
