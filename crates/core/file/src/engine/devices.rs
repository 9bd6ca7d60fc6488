//! What files lie on: a device with request tags, or memory.

use super::Engine;
use crate::hints::filesystem::FileSystem;
use nowait_sys::{Errno, file::Stat};
use std::sync::Arc;

impl Engine {
    /// Returns what is known about the file system of `fd`, which has this `stat`; its device has
    /// request tags.
    ///
    /// # Errors
    /// Those of [`FileSystems::of`].
    pub(crate) fn filesystem(&self, stat: &Stat, fd: i32) -> Result<Arc<FileSystem>, Errno> {
        let found = self.filesystems.of(stat, fd)?;
        if !found.in_memory {
            self.backends.note_device(stat.device());
        }
        Ok(found)
    }

    /// Tells whether a user-space page cache can serve the file behind `fd`, which has this `stat`:
    /// a regular file that is not in memory already.
    pub fn may_cache(&self, stat: &Stat, fd: i32) -> bool {
        let on_a_device = || self.filesystem(stat, fd).is_ok_and(|fs| !fs.in_memory);
        stat.is_regular() && on_a_device()
    }

    /// Looks at devices that are new; on the driver's thread.
    pub(crate) fn look_at_devices(&self) {
        self.backends.look_at_devices();
    }
}
