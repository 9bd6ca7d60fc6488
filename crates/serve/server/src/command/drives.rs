//! The ublk devices of images. The server makes them at its start, and removes them at its end.

use super::{ServeArgs, args::WantedDrive};
use crate::{
    ServeError,
    server::{Config, Server},
    ublk::{Drive, Limits, RemoveOutcome},
};
use nowait_device::Image;
use nowait_sys::ublk;
use nowait_terminal::say;
use std::sync::Arc;

pub(super) fn make(
    server: &Server,
    args: &ServeArgs,
    config: &Config,
) -> Result<Vec<Drive>, ServeError> {
    let view = server.view();
    // Find all names first, so that no device is made in vain.
    let chosen = args.ublk.iter().map(|wanted| {
        let image = choose(view.images(), wanted)?;
        if view.access().is_about(image.name()) {
            let name = image.name();
            return Err(ServeError::new(format!(
                "--ublk and --allow for {name}: --allow does not restrict a device: use its file \
                     mode"
            )));
        }
        Ok((wanted.id, image))
    });
    let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
    let limits = Limits {
        queues: u16::try_from(config.threads).unwrap_or(u16::MAX),
        memory_bytes: config.memory_bytes / chosen.len().max(1),
    };
    chosen.into_iter().map(|(id, image)| make_one(server, id, image, limits)).collect()
}

fn choose<'a>(
    images: &'a [Arc<Image>],
    wanted: &WantedDrive,
) -> Result<&'a Arc<Image>, ServeError> {
    let Some(name) = &wanted.export else { return Ok(&images[0]) };
    let found = images.iter().find(|image| image.name() == name);
    found.ok_or_else(|| ServeError::new(format!("--ublk {name}=…: no image has the name {name}")))
}

fn make_one(
    server: &Server,
    id: Option<u32>,
    image: &Arc<Image>,
    limits: Limits,
) -> Result<Drive, ServeError> {
    let mut drive = Drive::new(id, image, limits)?;
    let started = server.attach(&drive).and_then(|()| drive.start());
    started.inspect_err(|_| server.unmounted(drive.path()))?;
    Ok(drive)
}

/// With `--ublk`, keeps memory reclaim in the server's threads from waiting for their own devices.
/// The threads inherit this setting, so the caller calls this before it starts an engine or server.
pub(super) fn prepare(args: &ServeArgs) {
    if !args.ublk.is_empty() {
        // Without the privilege for this, serving is safe as long as the machine has free memory.
        let _ = ublk::become_io_flusher();
    }
}

pub(super) fn remove(server: &Server, drives: &mut [Drive]) {
    for drive in drives.iter_mut().filter(|drive| drive.is_up()) {
        if drive.remove() == RemoveOutcome::InUse {
            let path = drive.path().display();
            say(format_args!(
                "{path} is in use: programs that have it open get errors from now on"
            ));
        }
        server.unmounted(drive.path());
    }
}
