//! A server on an image: started, waited for, watched, ended.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cases::{LoopIo, Server as Kind};
use super::client::Target;
use crate::error::{BenchError, Context, Result};
use crate::launch::{self, Usage};

/// How long a server may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same, of one that gets no requests any more.
const PATIENCE_AT_DROP: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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
    ///
    /// # Errors
    /// A program cannot be started, or does not serve; there is no loop device.
    pub(crate) fn start(kind: Kind, nowait: &Path, image: &Path, folder: &Path) -> Result<Self> {
        let target = match kind {
            Kind::File => return Ok(Self::Plain(image.to_owned())),
            Kind::Loop(io) => return LoopDevice::attach(image, io).map(Self::Loop),
            Kind::NowaitFuse | Kind::QemuFuse => Target::File(folder.join("file")),
            Kind::Nowait(_) | Kind::Qemu(..) | Kind::Nbdkit => Target::Nbd(folder.join("nbd")),
        };
        let mut command = command(kind, nowait, image, &target);
        let server = Server::start(&mut command, image, &target)?;
        Ok(Self::Program(server, target))
    }

    /// Returns what the client uses.
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
            Self::Program(server, _) => Some(server.0.id()),
            Self::Loop(_) | Self::Plain(_) => None,
        }
    }

    /// Ends it in order; returns what the program has used, if it is one.
    ///
    /// # Errors
    /// It does not end.
    pub(crate) fn stop(self) -> Result<Option<Usage>> {
        match self {
            Self::Program(server, _) => server.stop().map(Some),
            Self::Loop(_) | Self::Plain(_) => Ok(None),
        }
    }
}

/// A loop device; given up when dropped.
#[derive(Debug)]
pub(crate) struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches one to `image`.
    ///
    /// # Errors
    /// There is none, or losetup is not installed.
    pub(crate) fn attach(image: &Path, io: LoopIo) -> Result<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]);
        match io {
            LoopIo::Direct => losetup.args(["--direct-io=on", "--sector-size=4096"]),
            LoopIo::Buffered => &mut losetup,
        };
        let output = losetup.arg(image).output().context(|| "cannot start losetup".to_owned())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(BenchError::failed(format!("losetup: {}", said.trim())));
        }
        Ok(Self(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
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

/// A server that runs, and whether it has ended. Dropped, it ends in order, for what it has mounted
/// would stay, or is killed if it does not.
#[derive(Debug)]
pub(crate) struct Server(Child, bool);

impl Server {
    fn start(command: &mut Command, image: &Path, target: &Target) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        prepare(target).context(|| "make ready for a server".to_owned())?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context(|| format!("cannot start {name}"))?;
        let mut server = Self(child, false);
        let deadline = Instant::now() + PATIENCE;
        while !is_there(target, image) {
            let ended = server.0.try_wait().context(|| format!("wait for {name}"))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(BenchError::failed(format!("{name} does not serve: {ended:?}")));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(server)
    }

    /// Ends it in order; returns what it has used from its start on, threads that ended before
    /// included.
    fn stop(mut self) -> Result<Usage> {
        self.end(PATIENCE)
    }

    fn end(&mut self, patience: Duration) -> Result<Usage> {
        let pid = libc::pid_t::try_from(self.0.id()).unwrap_or(libc::pid_t::MAX);
        // SAFETY: takes numbers; the process is ours and has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let deadline = Instant::now() + patience;
        loop {
            let ended = launch::reap(pid).context(|| "wait for the server".to_owned())?;
            if let Some((_, usage)) = ended {
                self.1 = true;
                return Ok(usage);
            }
            if Instant::now() > deadline {
                return Err(BenchError::failed("a server does not end after SIGTERM"));
            }
            sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.1 && self.end(PATIENCE_AT_DROP).is_err() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Clears what the server before left behind: nbdkit refuses a socket that exists, and QEMU wants a
/// file to mount on.
fn prepare(target: &Target) -> io::Result<()> {
    match target {
        Target::Nbd(socket) => match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        Target::File(path) | Target::Folder(path) => fs::write(path, ""),
    }
}

/// Tells whether a server has begun: a server listens, or the file is as long as the image.
fn is_there(target: &Target, image: &Path) -> bool {
    match target {
        Target::Nbd(socket) => UnixStream::connect(socket).is_ok(),
        Target::File(path) | Target::Folder(path) => {
            let len = |path: &Path| fs::metadata(path).map(|about| about.len()).ok();
            len(path).is_some_and(|shown| Some(shown) == len(image))
        }
    }
}

fn command(kind: Kind, nowait: &Path, image: &Path, target: &Target) -> Command {
    let (Target::Nbd(place) | Target::File(place) | Target::Folder(place)) = target;
    let place = place.display();
    let mut command;
    match kind {
        Kind::Nowait(cache) => {
            command = Command::new(nowait);
            command.args(["serve", "--cache", cache, "--nbd"]);
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
            command = Command::new(nowait);
            command.args(["serve", "--cache", "none", "--fuse", &place.to_string()]).arg(image);
        }
    }
    command
}
