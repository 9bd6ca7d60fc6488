//! The FUSE files that show images. The server mounts them at its start, and unmounts them at its
//! end.

use super::ServeArgs;
use crate::{
    ServeError,
    fuse::{ImageFile, Mount, MountPoint, Rights, UnmountOutcome},
    server::Server,
};
use nowait_device::Image;
use nowait_sys::inspect;
use nowait_terminal::say;
use std::{sync::Arc, time::SystemTime};

/// Unmounts files that killed servers have left mounted at the places of `--fuse`, because an image
/// may be below such a mount. Returns the places.
///
/// # Errors
/// Another file system is mounted at a place, or the folder of the place does not exist.
pub(super) fn clear(args: &ServeArgs) -> Result<Vec<MountPoint>, ServeError> {
    args.fuse.iter().map(|file| MountPoint::clear(&file.path)).collect()
}

pub(super) fn show(
    server: &Server,
    args: &ServeArgs,
    points: Vec<MountPoint>,
) -> Result<Vec<Mount>, ServeError> {
    let view = server.view();
    // Find all names first, so that no file is mounted in vain.
    let chosen = args.fuse.iter().map(|file| match &file.export {
        None => Ok(&view.images()[0]),
        Some(name) => {
            let found = view.images().iter().find(|image| image.name() == name);
            let missing = || format!("--fuse {name}=…: no image has the name {name}");
            found.ok_or_else(|| ServeError::new(missing()))
        }
    });
    let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
    chosen.into_iter().zip(points).map(|(image, point)| show_one(server, image, point)).collect()
}

fn show_one(server: &Server, image: &Arc<Image>, point: MountPoint) -> Result<Mount, ServeError> {
    let owner = (inspect::user_ids().1, inspect::group_ids().1);
    // Read the time before the mount, because the mount may hide the file of the image.
    let changed = image.file().metadata().and_then(|about| about.modified());
    let users = server.view().access().users_of(image.name());
    let rights = Rights { user: owner.0, group: owner.1, users };
    let others = !rights.users.is_empty();
    let file = ImageFile::new(image.clone(), rights, changed.unwrap_or_else(|_| SystemTime::now()));
    let mount = Mount::new(point, server.front(file), others, server.threads())?;
    server.mounted(image, mount.path());
    let (name, size, shown) = (image.name(), image.size(), mount.path().display());
    say(format_args!("serving {name} ({size} bytes) as {shown}"));
    Ok(mount)
}

pub(super) fn hide(mounts: &mut [Mount]) {
    for mount in mounts {
        if mount.unmount() == UnmountOutcome::InUse {
            let shown = mount.path().display();
            say(format_args!(
                "{shown} is in use: programs that have it open get errors from now on"
            ));
        }
    }
}
