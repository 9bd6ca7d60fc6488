//! The server of one run, and the target of its client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Engine, Shows};
use crate::served::{self, Target};
use nowait_harness::error::{Context, Result};
use nowait_harness::launch::{self, Usage};
use nowait_harness::server::Server;

const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. Dropping it ends the server.
#[derive(Debug)]
pub(crate) struct Served {
    by: By,
    target: Target,
}

#[derive(Debug)]
enum By {
    Program(Server),
    /// The kernel's loop device, which exists until this is dropped.
    Loop {
        _device: LoopDevice,
    },
    Nobody,
}

impl Served {
    /// Sockets and mount points are in `folder`.
    pub(crate) fn start(engine: &Engine, image: &Path, folder: &Path) -> Result<Self> {
        let place = folder.join(if engine.shows == Shows::Nbd { "nbd" } else { "file" });
        let values = [("place", &*place), ("image", image)];
        let values = values.map(|(name, path)| (name, path.display().to_string()));
        let mut command = served::command(&engine.command, &values);
        let (by, target) = match engine.shows {
            Shows::Nbd => {
                let server = Server::listening(&mut command, PATIENCE, &place)?;
                (By::Program(server), Target::Nbd(served::uri(&place, "")))
            }
            Shows::File => {
                // QEMU needs an existing file to mount on.
                fs::write(&place, "").context(|| place.display().to_string())?;
                let len = |path: &Path| fs::metadata(path).map(|about| about.len()).ok();
                let is_shown = || len(&place).is_some_and(|shown| Some(shown) == len(image));
                let server = Server::start(&mut command, PATIENCE, is_shown)?;
                (By::Program(server), Target::File(place))
            }
            Shows::Device => {
                let attached = launch::succeed(&mut command, PATIENCE)?;
                let path = PathBuf::from(attached.stdout.trim());
                (By::Loop { _device: LoopDevice(path.clone()) }, Target::File(path))
            }
            Shows::Image => (By::Nobody, Target::File(image.to_owned())),
        };
        Ok(Self { by, target })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn stop(self) -> Result<Option<Usage>> {
        match self.by {
            By::Program(server) => server.stop(PATIENCE).map(Some),
            By::Loop { .. } | By::Nobody => Ok(None),
        }
    }
}

/// A loop device; detached when dropped.
#[derive(Debug)]
struct LoopDevice(PathBuf);

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}
