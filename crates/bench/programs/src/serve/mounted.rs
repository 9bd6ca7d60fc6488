//! An ext4 on what is served: the client of the loop patch of 2015 had files, not a device.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::LoopIo;
use super::client::Target;
use super::server::{LoopDevice, PATIENCE};
use nowait_harness::error::{Context, Result};
use nowait_harness::launch;

/// A new ext4, mounted; gone when dropped.
#[derive(Debug)]
pub(crate) struct Mounted {
    folder: PathBuf,
    /// Between a served file and the file system; a device needs none.
    _device: Option<LoopDevice>,
}

impl Mounted {
    /// Makes an ext4 on `target`, over what is there, and mounts it in `scratch`.
    pub(crate) fn new(target: &Target, scratch: &Path) -> Result<Self> {
        let (Target::Nbd(place) | Target::File(place) | Target::Folder(place)) = target;
        let device = match place.starts_with("/dev") {
            true => None,
            false => Some(LoopDevice::attach(place, LoopIo::Direct)?),
        };
        let block = device.as_ref().map_or(place.as_path(), LoopDevice::path);
        let folder = scratch.join("ext4");
        std::fs::create_dir_all(&folder).context(|| folder.display().to_string())?;
        let lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        launch::succeed(
            Command::new("mkfs.ext4").args(["-q", "-F", "-E", lazy]).arg(block),
            PATIENCE,
        )?;
        launch::succeed(
            Command::new("mount").args(["-t", "ext4"]).arg(block).arg(&folder),
            PATIENCE,
        )?;
        Ok(Self { folder, _device: device })
    }

    /// Returns the file, folder or socket that the client uses.
    pub(crate) fn target(&self) -> Target {
        Target::Folder(self.folder.clone())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).output();
    }
}
