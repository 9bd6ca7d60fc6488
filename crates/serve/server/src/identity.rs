//! Which file a name stands for: one that another has put there is not ours to remove.

use core::{fmt, num::ParseIntError, str::FromStr};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Device and inode: of no other file as long as this one is open, or has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns that of the file at `path`, which is not followed if it is a link.
    ///
    /// # Errors
    /// Those of lstat(2).
    pub(crate) fn of(path: &Path) -> io::Result<Identity> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Identity { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Tells whether the file still has this name.
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

/// The name of a file that was made here.
#[derive(Debug)]
pub struct OwnName {
    path: PathBuf,
    identity: Identity,
}

impl OwnName {
    /// Notes which file `path` stands for: it was made just now.
    ///
    /// # Errors
    /// Those of lstat(2).
    pub(crate) fn new(path: &Path) -> io::Result<OwnName> {
        Ok(OwnName { path: path.to_owned(), identity: Identity::of(path)? })
    }

    /// Takes over an empty file that a server before has made at `path`; `None`: it is not there,
    /// or another program has put something into it.
    pub(crate) fn left_at(path: &Path, identity: Identity) -> Option<OwnName> {
        let metadata = fs::symlink_metadata(path).ok()?;
        let is_left = metadata.is_file() && metadata.len() == 0 && identity.is_at(path);
        is_left.then(|| OwnName { path: path.to_owned(), identity })
    }

    /// Returns which file it is.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Removes the name, unless it stands for another file by now.
    pub(crate) fn remove(&self) {
        if self.identity.is_at(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
