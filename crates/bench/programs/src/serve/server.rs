//! The servers of an image: their commands, and where the client finds it.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::client::Target;
use super::{LoopIo, Server as Kind};
use nowait_harness::error::{Context, Result};
use nowait_harness::launch::{self, Usage};
use nowait_harness::server::{self, Server};

/// How long a server may take to begin, and to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The server of an image, and its address; ended when dropped.
#[derive(Debug)]
pub(crate) enum Served {
    /// A program.
    Program(Server, Target),
    /// The kernel.
    Loop(LoopDevice),
    /// No server.
    Plain(PathBuf),
}

impl Served {
    /// Has a server of this kind serve `image`, and waits until it does. Sockets and files are made
    /// in `folder`.
    pub(crate) fn start(kind: &Kind, image: &Path, folder: &Path) -> Result<Self> {
        let target = match kind {
            Kind::File => return Ok(Self::Plain(image.to_owned())),
            Kind::Loop(io) => return LoopDevice::attach(image, *io).map(Self::Loop),
            Kind::NowaitFuse | Kind::QemuFuse => Target::File(folder.join("file")),
            Kind::Nowait | Kind::Qemu(..) | Kind::Nbdkit => Target::Nbd(folder.join("nbd")),
        };
        let mut command = command(kind, image, &target);
        prepare(&target).context(|| "make ready for a server".to_owned())?;
        let server = Server::start(&mut command, PATIENCE, || is_there(&target, image))?;
        Ok(Self::Program(server, target))
    }

    /// Returns the file, folder or socket that the client uses.
    pub(crate) fn target(&self) -> Target {
        match self {
            Self::Program(_, target) => target.clone(),
            Self::Loop(device) => Target::File(device.path().to_owned()),
            Self::Plain(image) => Target::File(image.clone()),
        }
    }

    /// Returns the process, if it is a program.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Program(server, _) => Some(server.pid()),
            Self::Loop(_) | Self::Plain(_) => None,
        }
    }

    /// Ends it in order; returns what the program has used, if it is one.
    pub(crate) fn stop(self) -> Result<Option<Usage>> {
        match self {
            Self::Program(server, _) => server.stop(PATIENCE).map(Some),
            Self::Loop(_) | Self::Plain(_) => Ok(None),
        }
    }
}

/// A loop device; given up when dropped.
#[derive(Debug)]
pub(crate) struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches one to `image`.
    pub(crate) fn attach(image: &Path, io: LoopIo) -> Result<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]);
        match io {
            LoopIo::Direct => losetup.args(["--direct-io=on", "--sector-size=4096"]),
            LoopIo::Buffered => &mut losetup,
        };
        let attached = launch::succeed(losetup.arg(image), PATIENCE)?;
        Ok(Self(PathBuf::from(attached.stdout.trim())))
    }

    /// Returns the device.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}

/// Removes the socket or file of the previous server: nbdkit refuses a socket that exists, and QEMU
/// wants a file to mount on.
fn prepare(target: &Target) -> io::Result<()> {
    match target {
        Target::Nbd(socket) => match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        Target::File(path) | Target::Folder(path) => fs::write(path, ""),
    }
}

/// Returns `true` if a server has begun: a server listens, or the file is as long as the image.
fn is_there(target: &Target, image: &Path) -> bool {
    match target {
        Target::Nbd(socket) => UnixStream::connect(socket).is_ok(),
        Target::File(path) | Target::Folder(path) => {
            let len = |path: &Path| fs::metadata(path).map(|about| about.len()).ok();
            len(path).is_some_and(|shown| Some(shown) == len(image))
        }
    }
}

fn command(kind: &Kind, image: &Path, target: &Target) -> Command {
    let (Target::Nbd(place) | Target::File(place) | Target::Folder(place)) = target;
    let place = place.display();
    let mut command;
    match kind {
        Kind::Nowait => {
            command = Command::new(server::nowait_serve());
            command.args(["serve", "--cache", "none", "--nbd"]);
            command.arg(format!("unix:{place}")).arg(image);
        }
        Kind::Qemu(cache, aio) => {
            command = Command::new("qemu-nbd");
            command.args(["--format=raw", "--persistent", "--shared=8"]);
            command.arg(format!("--cache={cache}")).arg(format!("--aio={aio}"));
            command.arg(format!("--socket={place}")).arg(image);
        }
        Kind::Nbdkit => {
            command = Command::new("nbdkit");
            command.args(["--foreground", "--unix", &place.to_string(), "file"]).arg(image);
        }
        Kind::QemuFuse => {
            let file = format!("filename={},cache.direct=on,aio=native", image.display());
            command = Command::new("qemu-storage-daemon");
            command.arg("--blockdev").arg(format!("driver=file,node-name=image,{file}"));
            let export = format!("mountpoint={place},writable=on");
            command.arg("--export").arg(format!("type=fuse,id=file,node-name=image,{export}"));
        }
        Kind::NowaitFuse | Kind::Loop(_) | Kind::File => {
            command = Command::new(server::nowait_serve());
            command.args(["serve", "--cache", "none", "--fuse", &place.to_string()]).arg(image);
        }
    }
    command
}
